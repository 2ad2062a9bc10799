"""What a cell may not do because it would hold up every other cell, refused by an audit hook.

Refused: time.sleep of a second or more on the loop's thread, whoever calls it there; programs started by a cell's own code
past run(): subprocess, os.system, os.popen, os.spawn*, os.posix_spawn, pty, asyncio's subprocesses, and os.exec* of this
very process. Libraries and the bindings may start programs (the code that calls is judged, not the cell), os.fork is
allowed (multiprocessing lives by it), and a child process is free.
"""
import os
import sys
import threading
import time
from contextlib import contextmanager

from soma_code import is_cell_file
from soma_output import CURRENT

_SLEEP = 1.0
_WAIT = ("start it with run(), do other useful work while it runs, and when none is left report to the user where things "
         "stand, then wait with `await asyncio.sleep(n)`")
_SLEEPS = (f"time.sleep of {_SLEEP:g} s or more would stop every cell of this kernel. Work that takes long: {_WAIT} "
           "(a library that sleeps: `await asyncio.to_thread(...)`)")
_PROGRAMS = f"a cell does not start programs by {{}}: nobody could see, read or stop them. For a program: {_WAIT}"
# Modules between a cell's code and the event; who called the first of them is judged.
_THROUGH = {"subprocess", "os", "pty", "asyncio.base_events", "asyncio.subprocess", "asyncio.unix_events",
            "asyncio.base_subprocess", "asyncio.events", "asyncio.runners"}


class Refused(RuntimeError):
    """The kernel does not let a cell do this; the text says what to do instead."""


def install(names):
    """Hook in, for the life of the process."""
    kernel, loop_thread = os.getpid(), threading.get_ident()

    def sleep(seconds):
        if (seconds >= _SLEEP and CURRENT.get() is not None and threading.get_ident() == loop_thread
                and os.getpid() == kernel):
            raise Refused(_SLEEPS)

    def program(what):
        def check(*_):
            if os.getpid() == kernel and _from_a_cell(sys._getframe(2)):
                raise Refused(_PROGRAMS.format(what))
        return check

    def fork():
        caller = sys._getframe(2)
        if caller.f_code.co_name == "_spawnvef" and os.getpid() == kernel and _from_a_cell(caller):
            raise Refused(_PROGRAMS.format("os.spawn*"))

    def execute(code):
        if code.co_filename.startswith("<"):
            names.ensure(code)

    checks = {
        "subprocess.Popen": program("subprocess"), "os.system": program("os.system"),
        "os.posix_spawn": program("os.posix_spawn"), "os.exec": program("os.exec*"), "pty.spawn": program("pty"),
        "os.forkpty": program("os.forkpty"), "os.fork": fork, "time.sleep": sleep, "exec": execute}

    def hook(event, args):
        check = checks.get(event)
        if check is not None:
            check(*args)

    sys.addaudithook(hook)
    if sys.version_info < (3, 13):  # no such event
        real = time.sleep

        def time_sleep(seconds, /):
            sleep(seconds)
            real(seconds)

        time_sleep.__name__ = time_sleep.__qualname__ = "sleep"
        time_sleep.__module__, time_sleep.__doc__, time_sleep.__wrapped__ = "time", real.__doc__, real
        time.sleep = time_sleep


_spawning = threading.local()


@contextmanager
def spawning():
    """On this thread, programs may be started within."""
    before = getattr(_spawning, "on", False)
    _spawning.on = True
    try:
        yield
    finally:
        _spawning.on = before


def _from_a_cell(frame):
    if CURRENT.get() is None or getattr(_spawning, "on", False):
        return False
    while frame is not None:
        name = frame.f_code.co_filename
        if is_cell_file(name):
            return True
        if frame.f_globals.get("__name__") not in _THROUGH and not name.startswith("<"):  # <string>: exec, by whomever
            return False
        frame = frame.f_back
    return False
