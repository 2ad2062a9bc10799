"""SIGINT: raised as KeyboardInterrupt only where the code of the wanted cell runs on the main thread.

Two senders: the reader and watch threads (for a cell they name in this process) and the daemon (which names the cell in
run/interrupt and signals the pid, when this process is too busy to read its frame).
"""
import _signal
import os
import signal
import sys
import threading
from asyncio import current_task
from asyncio.events import Handle
from contextvars import ContextVar
from time import monotonic

import soma_output
from soma_code import is_cell_file, run_cell
from soma_output import CURRENT

SUPERVISING = ContextVar("soma_supervising", default=False)  # what runs here is no cell's to interrupt
CELL, KERNEL, LIBRARY = "cell", "kernel", "library"
_ID_BYTES = 160
_PATIENCE = 3  # knocks at a library's code in a task or callback, before it is torn: the cell may hear by its task
_AGAIN = " again"  # follows the id where the cell has swallowed an interrupt and is to get one more


class Interrupts:
    def __init__(self, place, live):
        self._file = place.file("interrupt")
        self._live = live  # cell id -> Cell, of those queued or running
        self._main = threading.main_thread().ident
        self._core = {m.__file__ for n, m in list(sys.modules.items()) if n.startswith("soma_")}
        self._core.add(__file__.rpartition("/")[0] + "/soma_executor.py")
        self._core.discard(sys.modules["soma_guard"].__file__)  # a cell that sleeps is in there
        soma_output.raise_deferred = self._raise_deferred
        self._unraisable = sys.unraisablehook
        sys.unraisablehook = self._swallowed
        self.arm()

    def arm(self):
        """Take SIGINT (again: a cell may have set its own handler). Main thread only."""
        if _signal.getsignal(_signal.SIGINT) != self._handle:
            signal.signal(signal.SIGINT, self._handle)

    def knock(self):
        """Run the handler on the main thread. Any thread."""
        signal.pthread_kill(self._main, signal.SIGINT)

    def _handle(self, _number, frame):
        out = CURRENT.get()
        if out is None or SUPERVISING.get():
            return  # of a binding's own work the cell hears by its task
        cell = self._live.get(out.cell)
        if cell is None:
            return
        if cell.reason is None or cell.delivered:
            name = self._named_outside()
            if name == cell.id + _AGAIN:
                cell.delivered = False
            elif name != cell.id or cell.delivered:
                return
            cell.reason = cell.reason or "interrupt"
        where = self._place(frame)
        if where == KERNEL:
            soma_output.deferred.append(cell)  # raised there it would break our own state
            return
        if where == LIBRARY:
            cell.knocks += 1
            if cell.knocks < _PATIENCE:
                return
        raise self._hit(cell)

    def _swallowed(self, unraisable):
        """Something was raised where nothing can be raised, such as in __del__: an interrupt comes again."""
        if unraisable.exc_type is not KeyboardInterrupt:
            self._unraisable(unraisable)
            return
        for cell in list(self._live.values()):
            if cell.raised is not None and cell.raised[0] is unraisable.exc_value:
                cell.delivered, cell.raised = False, None

    @staticmethod
    def _hit(cell):
        """The exception that is raised in a cell's code; it is looked after until it has arrived there."""
        failure = KeyboardInterrupt()
        cell.delivered = True
        cell.knocks = 0
        try:
            own = current_task() is cell.task
        except RuntimeError:
            own = False
        cell.raised = failure, own, monotonic()
        return failure

    def _raise_deferred(self):
        if threading.get_ident() != self._main:
            return
        waiting = soma_output.deferred[:]
        soma_output.deferred.clear()
        out = CURRENT.get()
        for cell in waiting:
            if cell.capture is out and cell.id in self._live and not cell.delivered:
                raise self._hit(cell)

    def _named_outside(self):
        try:
            fd = os.open(self._file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            name = os.read(fd, _ID_BYTES + 1).decode("utf-8", "replace")
        finally:
            os.close(fd)
        try:
            os.unlink(self._file)
        except OSError:
            pass
        return name

    def _place(self, frame):
        """Whose code it is that would be torn. A binding's is a person's in this (or it is supervising)."""
        while frame is not None:
            code = frame.f_code
            if is_cell_file(code.co_filename) or code is run_cell.__code__:  # that has called the repr of a value
                return CELL
            if code.co_filename in self._core:
                return KERNEL
            if code is Handle._run.__code__:
                return LIBRARY
            frame = frame.f_back
        return LIBRARY
