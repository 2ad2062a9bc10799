"""Launcher of a python kernel: loads the executor as `__main__` from its cached byte code and runs it.

A script that is run is compiled anew at every start; so this one stays tiny and everything else is imported.
"""
import sys
from _frozen_importlib_external import SourceFileLoader

if __name__ == "__main__":
    home = __file__.rpartition("/")[0] or "."
    sys.path.insert(0, home)
    executor = type(sys)("__main__")
    executor.__file__ = home + "/soma_executor.py"
    sys.modules["__main__"] = executor
    exec(SourceFileLoader("__main__", executor.__file__).get_code("__main__"), executor.__dict__)
    executor.main(sys.argv[1:])
