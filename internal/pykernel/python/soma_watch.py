"""The watch thread: deadlines, repeated interrupts and live output, off the loop, so that a cell that holds the loop
is watched too. It exists only while a cell runs for longer than a moment or live output waits.
"""
import threading
from _thread import start_new_thread
from time import sleep

from soma_link import hold_signals

_TICK = 0.05
_PIECES = 4  # of live output in one tick


class Watch:
    def __init__(self, cells, link, kick, beside):
        self._cells = cells
        self._beside = beside  # what bindings do beside the loop
        self._kick = kick  # makes the loop look at what it may have missed
        self._link = link
        self._lock = threading.RLock()  # a finalizer may print while it is held
        self.runs = False
        self._late = set()  # captures of ended cells with live output

    def ensure(self):
        """Run the thread if there is something to watch. Any thread."""
        with self._lock:
            if self.runs or not (self._cells.live or self._late):
                return
            self.runs = True
            try:
                start_new_thread(self._run, ())  # no Thread: a cell may have put something else in its place
            except BaseException:
                self.runs = False
                raise

    def late(self, capture):
        """A cell that has ended printed something: show it."""
        with self._lock:
            self._late.add(capture)
        self.ensure()

    def _run(self):
        hold_signals()
        while True:
            for part in (self._cells.watch, self._kick, self._beside, self._show_all):
                try:
                    part()
                except BaseException:  # a cell may have used up all memory: without this thread no cell had a deadline
                    continue
            with self._lock:
                if not (self._cells.live or self._late):
                    self.runs = False
                    return
            sleep(_TICK)

    def _show_all(self):
        captures = self._cells.drain()
        with self._lock:
            captures += self._late
            self._late.clear()
        for capture in captures:
            self._show_some(capture)

    def flush(self, capture):
        """show(), but for a signal handler that flushes in the midst of just that: its piece is shown later."""
        if not (capture.entered() or self._link.entered()):
            self.show(capture)

    def show(self, capture):
        """Show one piece of a cell's live output now; False when there is none, or the line takes none at this moment: then
        it is kept for later. Any thread."""
        if not self._link.takes_live():
            return False
        piece = capture.take_live()
        if piece is None:
            return False
        self._link.show(capture.cell, *piece)
        return True

    def _show_some(self, capture):
        for _ in range(_PIECES):
            if not self.show(capture):
                break
        if capture.ended and capture.pending() and self._link.attached():
            with self._lock:
                self._late.add(capture)
