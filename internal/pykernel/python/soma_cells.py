"""Cells: admitted in frame order, run on the loop, ended once, their newest results kept.

A cell is queued, then running, then finished. Admission and interrupts come from the reader thread, so that they work
while the loop is held by a cell; the rest happens on the loop.
"""
import _signal
import os
import threading
from asyncio import CancelledError
from contextvars import copy_context
from time import monotonic, time

import soma_output
from soma_code import error_of, run_cell
from soma_interrupt import Interrupts
from soma_wire import CELLS_FINISHED, CELLS_LIVE, TIMEOUT_MS, encode

# Signals whose handlers a cell is likely to set; ours (SIGINT, SIGTERM, SIGHUP) never raise outside a cell's code.
_HELD = (_signal.SIGALRM, _signal.SIGVTALRM, _signal.SIGPROF, _signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGCHLD)

QUEUED, RUNNING, FINISHED = "queued", "running", "finished"
# state -> event -> next state; what is not here is dropped.
MOVES = {
    QUEUED: {"start": RUNNING, "cancel": FINISHED},
    RUNNING: {"end": FINISHED},
    FINISHED: {},
}
# Why a cell was interrupted -> the status it ends with.
STATUS_OF = {"interrupt": "interrupted", "shutdown": "interrupted", "deadline": "timed_out"}


class Cell:
    def __init__(self, frame):
        self.id = frame["cell"]
        self.code = frame["code"]
        self.timeout = frame["timeout_ms"] / 1000
        self.state = QUEUED
        self.capture = soma_output.Capture(self.id)
        self.task = None
        self.reason = None       # why it is interrupted
        self.restarting = False  # its task seems lost, another is on its way
        self.timed_out = False   # the deadline's interrupt was sent
        self.delivered = False   # the interrupt has reached its code
        self.began = None        # monotonic
        self.ended = None
        self.started_at = None   # wall clock, ms

    def move(self, event):
        """Take the event; False when it means nothing in this state."""
        state = MOVES[self.state].get(event)
        if state is None:
            return False
        self.state = state
        return True


class Cells:
    """post(callback, argument) runs a callback on the loop, once or (after a disturbance) twice. Any thread."""

    def __init__(self, loop, post, link, calls, native, place, namespace):
        self.live = {}           # id -> Cell, in frame order
        self._finished = {}      # id -> JSON bytes of its done, oldest first
        self._lock = threading.Lock()
        self._loop = loop
        self._post = post
        self._link = link
        self._calls = calls
        self._native = native
        self._namespace = namespace
        self._pid = os.getpid()
        self._interrupts = Interrupts(place, self.live)
        self.on_empty = lambda: None  # called on the loop when the last live cell has ended

    # --- the reader thread ---

    def execute(self, frame):
        name = frame["cell"]
        with self._lock:
            if name in self.live:
                return
            done = self._finished.get(name)
            if done is None:
                refusal = self._refusal(frame)
                if refusal is None:
                    cell = self.live[name] = Cell(frame)
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
        self._send_done(name, {
            "type": "done", "cell": name, "status": "error", "started_at": int(time() * 1000), "duration_ms": 0,
            "error": {"type": "CellRefused", "message": message, "traceback": ""},
            "output": {"head": "", "tail": "", "size": 0},
        })

    def interrupt(self, name, reason="interrupt"):
        """Steps 1 and 2 of SPEC.md, section 6. Any thread but the loop's."""
        cell = self.live.get(name)
        if cell is None:
            return
        cell.reason = reason
        cell.delivered = False
        self._post(self._cancel, cell)
        self._interrupts.knock()

    def interrupt_all(self, reason):
        for name in list(self.live):
            self.interrupt(name, reason)

    def names(self):
        """(ids queued or running, ids of the kept results)."""
        with self._lock:
            return list(self.live), list(self._finished)

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
            if not cell.timed_out and now - cell.began >= cell.timeout:
                cell.timed_out = True
                self.interrupt(cell.id, "deadline")
            elif cell.reason is not None and not cell.delivered:
                self._interrupts.knock()

    def drain(self):
        """Collect native output (for the newest running cell); the captures of all running cells."""
        running = self._running()
        if running:
            self._native.drain(running[-1].capture)
        return [c.capture for c in running]

    def _running(self):
        return [c for c in list(self.live.values()) if c.state == RUNNING]

    # --- the loop ---

    def _start(self, cell):
        cell.restarting = False
        if cell.state != QUEUED:
            return
        context = copy_context()
        context.run(soma_output.CURRENT.set, cell.capture)
        cell.task = self._loop.create_task(self._run(cell), name=f"cell {cell.id}", context=context)

    def _cancel(self, cell):
        if cell.state == RUNNING and not cell.delivered:
            cell.delivered = True
            cell.task.cancel()

    async def _run(self, cell):
        """Run a cell to its done. A signal handler of a cell may raise between any two of these lines: what it raises
        counts as raised by the code, and outside the code such signals are held back."""
        value, failure, mask, step = None, None, None, 0
        while True:
            try:
                if mask is None:
                    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
                if step == 0:
                    _signal.pthread_sigmask(_signal.SIG_BLOCK, _HELD)
                    step = 1
                    if not self._begin(cell):
                        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
                        return
                if step == 1:
                    step = 2
                    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
                    try:
                        value = await run_cell(cell.id, cell.code, self._namespace)
                    except BaseException as e:
                        failure = e  # inside, so that a handler that raises here is caught too
                _signal.pthread_sigmask(_signal.SIG_BLOCK, _HELD)
                break
            except BaseException as e:
                failure = e
        if os.getpid() != self._pid:
            os._exit(0)  # the cell forked and its child came back here
        try:
            cell.ended = monotonic()
            soma_output.deferred.clear()
            status, error = "ok", None
            if failure is not None:
                status, value = self._status_of(cell, failure), None
                error = error_of(failure)
                del failure
            self.drain()
            cell.move("end")
            self._end(cell, status, value, error)
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)

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
        if value is not None:
            done["value"] = value
        if error is not None:
            done["error"] = error
        self._calls.cancel(cell.capture)
        with self._lock:
            del self.live[cell.id]
        self._send_done(cell.id, done)
        if not self.live:
            self.on_empty()

    def _send_done(self, name, done):
        body = encode(done)
        with self._lock:
            self._finished[name] = body
            while len(self._finished) > CELLS_FINISHED:
                del self._finished[next(iter(self._finished))]
        self._link.send_all((
            (b'{"type":"cells","live":%d,"bloated":false,"eligible":false}' % len(self.live), "cells", True),
            (body, ("done", name), False),
        ))
