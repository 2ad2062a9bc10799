"""Cells: admitted in frame order, run on the loop, ended once, their newest results kept.

Admission and interrupts come from the reader thread, so that they work
while the loop is held by a cell; the rest happens on the loop.
"""
import _signal
import os
import threading
from asyncio import CancelledError, Task
from contextvars import copy_context
from time import monotonic, time

import soma_output
from soma_cell import FINISHED, QUEUED, RUNNING, Cell
from soma_code import compile_cell, error_of, run_cell, run_code
from soma_interrupt import Interrupts
from soma_results import Results
from soma_wire import CELLS_LIVE, TIMEOUT_MS

# Signals whose handlers a cell is likely to set; ours (SIGINT, SIGTERM, SIGHUP) never raise outside a cell's code.
_HELD = (_signal.SIGALRM, _signal.SIGVTALRM, _signal.SIGPROF, _signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGCHLD)

# Why a cell was interrupted -> the status it ends with.
STATUS_OF = {"interrupt": "interrupted", "shutdown": "interrupted", "deadline": "timed_out"}


def _handlers():
    """Whether a cell has set a handler for a signal that may raise."""
    return any(callable(_signal.getsignal(number)) for number in _HELD)


def _hold(mask):
    if mask is not None:
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _HELD)


def _release(mask):
    if mask is not None:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


class Cells:
    """post(callback, argument) runs a callback on the loop, once or (after a disturbance) twice. Any thread."""

    def __init__(self, loop, post, link, calls, native, place, names, channels, api):
        self.live = {}           # id -> Cell, in frame order
        self._results = Results()
        self._lock = threading.RLock()  # a finalizer may ask about cells while it is held
        self._loop = loop
        self._context = copy_context()  # without any cell's
        self._post = post
        self._link = link
        self._calls = calls
        self._native = native
        self._names = names
        self._channels = channels
        self._api = api
        self._pid = os.getpid()
        self._interrupts = Interrupts(place, self.live)
        self._sources = 0             # given to run_source()
        self._resting = False         # told as eligible, and nothing has run since
        self.on_empty = lambda: None  # called on the loop when the last live cell has ended

    # --- the reader thread ---

    def execute(self, frame):
        name = frame["cell"]
        with self._lock:
            if name in self.live:
                return
            done = self._results.get(name)
            if done is None:
                refusal = self._refusal(frame)
                if refusal is None:
                    cell = self.live[name] = Cell(frame)
                    cell.capture = self._channels.open_cell(name)
        if done is not None:
            self._link.send_again(done, ("done", name))
        elif refusal is not None:
            self._refuse(name, refusal)
        else:
            self._post(self._start, cell)

    def _refusal(self, frame):
        if not 1 <= frame["timeout_ms"] <= TIMEOUT_MS:
            return "invalid timeout"
        if len(self.live) >= CELLS_LIVE:
            return "too many cells running"
        return None

    def _refuse(self, name, message):
        self._end_plainly(name, "CellRefused", message)

    def _end_plainly(self, name, kind, message, started_at=None, source=""):
        self._send_done(name, {
            "type": "done", "cell": name, "status": "error", "started_at": started_at or int(time() * 1000), "duration_ms": 0,
            "error": {"type": kind, "message": message, "traceback": ""},
            "output": {"head": "", "tail": "", "size": 0},
        }, {"id": name, "state": FINISHED, "status": "error", "started_at": started_at, "duration_ms": 0, "source": source,
            "background": False, "error": f"{kind}: {message}"})

    def interrupt(self, name, reason="interrupt"):
        """Steps 1 and 2 of SPEC.md, section 6; False when the cell is left alone. Any thread but the loop's."""
        cell = self.live.get(name)
        if cell is None or cell.cleans_up():
            return False
        cell.reason = reason
        cell.delivered = False
        self._post(self._cancel, cell)
        self._interrupts.knock()
        return True

    def interrupt_all(self, reason):
        for name in list(self.live):
            self.interrupt(name, reason)

    def names(self):
        """(ids queued or running, ids of the kept results)."""
        with self._lock:
            return list(self.live), self._results.names()

    def facts(self, name):
        """What code may ask of a cell, or None."""
        with self._lock:
            cell = self.live.get(name)
            return self._results.facts(name) if cell is None else cell.facts()

    def rest(self, rest):
        """Look whether the process rests and tell of a change; about once a second. The reader thread."""
        if self.live:
            return
        if self._resting and not (self._api.live_jobs() or self._api.held()):
            return
        rests = rest.look()
        with self._lock:
            if self.live or rests == self._resting:
                return
            self._resting = rests
            self._tell_cells()

    def _tell_cells(self, *frames):
        eligible = b"true" if self._resting else b"false"
        told = b'{"type":"cells","live":%d,"bloated":false,"eligible":%b}' % (len(self.live), eligible)
        self._link.send_all(((told, "cells", True), *frames))

    # --- the watch thread ---

    def watch(self):
        """Enforce deadlines, knock again for interrupts that have not arrived, start again what a disturbance of the
        loop has lost (a second start of a cell finds that it is not queued any more)."""
        now = monotonic()
        for cell in list(self.live.values()):
            if cell.state == QUEUED and cell.task is not None and not cell.restarting:
                cell.restarting = True
                self._post(self._start, cell)
            if cell.state != RUNNING:
                continue
            if cell.background_at is not None and now - cell.began >= cell.background_at:
                self._tell_background(cell, now)
            if not cell.timed_out and now - cell.began >= cell.timeout:
                cell.timed_out = self.interrupt(cell.id, "deadline")
            elif cell.reason is not None and (cell.missed() or not cell.delivered):
                if cell.delivered:
                    cell.delivered, cell.raised = False, None
                    self._post(self._cancel, cell)
                self._interrupts.knock()

    def _tell_background(self, cell, now):
        """Say that a cell takes long; once, and never after its end."""
        cell.background_at = None
        output = cell.capture.preview()
        with self._lock:
            if cell.state != RUNNING:
                return
            cell.backgrounded = True
            self._api.send("backgrounded", {"cell": cell.id, "duration_ms": int((now - cell.began) * 1000),
                                            "output": output})

    def drain(self):
        """Collect native output; the captures of all running cells."""
        captures = [out for c in self._running() if (out := c.capture) is not None]  # one may end meanwhile
        self._channels.drain_native(self._native, captures)
        return captures

    def _running(self):
        return [c for c in list(self.live.values()) if c.state == RUNNING]

    # --- the loop ---

    def cancel(self, name):
        """End a live cell, wherever it waits, without a wake; False when it is not live."""
        cell = self.live.get(name)
        if cell is None:
            return False
        cell.wake = False
        cell.reason = cell.reason or "interrupt"
        self._post(self._cancel, cell)
        return True

    async def run_source(self, source):
        """Run source within the cell that runs here, under its rules; the value of its final expression."""
        self._sources += 1
        body, last, _ = compile_cell(f"source {self._sources}", source, self._names)
        return await run_code(body, last, self._names)

    def _start(self, cell):
        cell.restarting = False
        if cell.state != QUEUED:
            return
        context = self._context.copy()
        context.run(soma_output.CURRENT.set, cell.capture)
        # Task itself: a cell may have given the loop a factory.
        cell.task = Task(self._run(cell), loop=self._loop, name=f"cell {cell.id}", context=context)

    def _cancel(self, cell):
        if cell.state == RUNNING and not cell.delivered:
            cell.delivered = True
            cell.cancelled_at = monotonic()
            cell.task.cancel()

    async def _run(self, cell):
        """Run a cell to its done. A signal handler of a cell may raise between any two of these lines: what it raises
        counts as raised by the code, and outside the code such signals are held back."""
        value, failure, mask, step = None, None, None, 0
        while True:
            try:
                if mask is None and _handlers():
                    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
                if step == 0:
                    _hold(mask)
                    step = 1
                    if not self._begin(cell):
                        _release(mask)
                        return
                if step == 1:
                    step = 2
                    _release(mask)
                    try:
                        value = await run_cell(cell, self._names)
                    except BaseException as e:
                        failure = e  # inside, so that a handler that raises here is caught too
                if mask is None and _handlers():
                    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
                _hold(mask)
                break
            except BaseException as e:
                failure = e
        if os.getpid() != self._pid:
            os._exit(0)  # the cell forked and its child came back here
        try:
            self._finish(cell, value, failure)
        except BaseException as e:
            self._finish_anyhow(cell, e)
        finally:
            del failure  # its traceback has this frame
            _release(mask)

    def _finish(self, cell, value, failure):
        cell.ended = monotonic()
        soma_output.deferred.clear()
        status, error = "ok", None
        if failure is not None:
            status, value = self._status_of(cell, failure), None
            error = error_of(failure)
        self._native.mend()
        self.drain()
        for problem in self._api.cell_ended(cell.id):
            cell.capture.add_text(f"\n[{problem}]\n")
        with self._lock:
            cell.move("end")
        self._end(cell, status, value, error)

    def _finish_anyhow(self, cell, problem):
        """Tell the end of a cell that has taken away what this needs (a module of Python, say), or the memory for it."""
        if cell.id not in self.live:
            return
        cell.move("end")
        self._end_plainly(cell.id, "KernelError", f"how this cell ended cannot be told: {problem!r:.1000}",
                          cell.started_at, cell.code)
        out, cell.capture, cell.task, cell.raised = cell.capture, None, None, None
        if not self.live:
            self.on_empty()
        out.close()
        self._calls.cancel(out)

    def _begin(self, cell):
        """Move a queued cell to running; False when it is not to run."""
        if cell.state != QUEUED:
            return False
        cell.started_at = int(time() * 1000)
        cell.began = cell.ended = monotonic()
        if cell.reason is not None:
            cell.move("cancel")
            self._end(cell, STATUS_OF[cell.reason], None, {
                "type": "KeyboardInterrupt", "message": "cancelled before it started", "traceback": ""})
            return False
        self._interrupts.arm()
        self.drain()  # what came before this cell is not its own
        return cell.move("start")

    @staticmethod
    def _status_of(cell, failure):
        if cell.reason is not None and isinstance(failure, (KeyboardInterrupt, CancelledError)):
            return STATUS_OF[cell.reason]
        return "error"

    def _end(self, cell, status, value, error):
        done = {"type": "done", "cell": cell.id, "status": status, "started_at": cell.started_at,
                "duration_ms": int((cell.ended - cell.began) * 1000), "output": cell.capture.result()}
        facts = cell.facts(status=status)
        if value is not None:
            done["value"] = value
            if cell.backgrounded:
                cell.capture.keep(f"\n[result]\n{value}\n")
        if error is not None:
            done["error"] = error
            facts["error"] = f"{error['type']}: {error['message']}".partition("\n")[0][:1024]
        done.update(cell.capture.attachments(), **cell.told(status))
        self._calls.cancel(cell.capture)
        self._send_done(cell.id, done, facts)
        cell.capture = cell.task = cell.raised = None
        if not self.live:
            self.on_empty()

    def _send_done(self, name, done, facts):
        with self._lock:
            body = self._results.put(name, done, facts)
            self.live.pop(name, None)
            self._resting = False
            self._tell_cells((body, ("done", name), False))
