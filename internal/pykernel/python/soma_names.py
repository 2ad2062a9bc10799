"""The names that a cell finds without making them: the bindings, common modules of the standard library, `import soma`.

They lie in a copy of Python's builtins that only the cells see, so a cell's own names are a plain dict that holds nothing
else. (A dict that refuses assignments by itself would make every global name in a person's functions 2 to 9 times slower.)
The bindings are locked: soma_syntax refuses what assigns them before a line of the cell runs, modules refuse attributes at
once, and what gets past both, such as `globals()["run"] = 1`, is taken back at the next step of a cell, which fails.
"""
import builtins
import sys
from types import CodeType, ModuleType

# Name in the cells -> (module, attribute or None). Those that the kernel has not loaded itself come when a cell names them.
PRELOADED = {name: (name, None) for name in (
    "asyncio", "base64", "collections", "datetime", "functools", "hashlib", "itertools", "json", "math", "os", "re",
    "shutil", "sys", "textwrap", "time")}
PRELOADED["Path"] = ("pathlib", "Path")


class LockedName(NameError):
    """A name of the kernel was to be assigned or deleted."""


def refusal(name, done="assigned or deleted"):
    """What a person reads who has tried it."""
    return f"{name!r} is a name of this kernel and cannot be {done} here; take another name"


def _guarded(locked):
    """A class of modules whose locked attributes stay what they are."""
    class Module(ModuleType):
        def __setattr__(self, name, value):
            if name in locked and locked[name] is not value:
                raise LockedName(refusal(name))
            super().__setattr__(name, value)

        def __delattr__(self, name):
            if name in locked:
                raise LockedName(refusal(name))
            super().__delattr__(name)

    return Module


class Names:
    """The namespace of the cells and what surrounds it. One per kernel; provide() before the first cell."""

    def __init__(self):
        self.locked = {}
        self._pending = set()
        private = ModuleType("builtins", builtins.__doc__)
        self._builtins = private.__dict__
        self.take_builtins()
        module = _guarded(self.locked)
        main = module("__main__")
        main.__builtins__ = self._private = private
        self.namespace = main.__dict__
        self._soma = module("soma", "The names that this kernel gives to its cells.")
        sys.modules["__main__"], sys.modules["soma"] = main, self._soma

    def take_builtins(self):
        """Copy Python's builtins (again, once `site` has added its own) and take the modules that are loaded."""
        self._builtins.update(builtins.__dict__)
        for name, (module, _) in PRELOADED.items():
            if module in sys.modules:
                self._load(name)
                self._pending.discard(name)
            else:
                self._pending.add(name)

    def provide(self, name, value):
        """Give the cells a locked name, also as an attribute of `import soma`. ValueError for a bad or taken one."""
        if not name.isidentifier() or name in self.locked or name in PRELOADED or hasattr(builtins, name):
            raise ValueError(f"cannot provide the name {name!r}: it is taken or no name")
        self.locked[name] = self._builtins[name] = value
        ModuleType.__setattr__(self._soma, name, value)

    def ensure(self, code):
        """Load the preloaded modules that a code object, or one inside it, names and that are not there yet."""
        if not self._pending:
            return
        waiting = [code]
        while waiting:
            code = waiting.pop()
            for name in self._pending.intersection(code.co_names):
                self._pending.discard(name)
                try:
                    self._load(name)
                except BaseException:
                    self._pending.add(name)
                    raise
            waiting += [c for c in code.co_consts if type(c) is CodeType]

    def _load(self, name):
        module, attribute = PRELOADED[name]
        value = __import__(module)
        self._builtins[name] = value if attribute is None else getattr(value, attribute)

    def put_back(self):
        """Undo what was done to locked names; the first such name, or None. A name that is another's is not touched."""
        spoiled = None
        if self.namespace.get("__builtins__") is not self._private:  # as after globals().clear()
            self.namespace["__builtins__"] = self._private
            self.namespace.setdefault("__name__", "__main__")
        for name, value in self.locked.items():
            if self.namespace.get(name, value) is not value:
                self.namespace.pop(name, None)
                spoiled = spoiled or name
            if self._builtins.get(name, self) is not value:
                self._builtins[name] = value
                spoiled = spoiled or name
        return spoiled

    def known(self):
        """The values of all names that a cell can use beside its own; None for a module that is not loaded yet."""
        return {**dict.fromkeys(self._pending), **self._builtins}
