"""One job: an OS process that a cell has started, its output, its end.

Everything happens on the loop's thread, in callbacks and not in tasks, so that a cell's interrupt has nothing to hit; but for
what must not wait where a cell holds the loop: taking output, so that the process goes on, and the signals of a stop.
"""
import os
import signal
import threading
from time import monotonic, time

import soma_spawn as spawn
from soma_capture import OutputLost
from soma_feed import Feed
from soma_page import Page
from soma_wire import HEAD, JOB_TAIL, PAGE_MAX

DRAIN_SECONDS = 1.0      # for those who still hold the pipe when the process has ended
GRACE_SECONDS = 2.0      # from SIGTERM to SIGKILL
GRACE_MOST = 60.0
TIMEOUT_MOST = 86_400.0
_LOOK_SECONDS = 0.05
_BEHIND = 256 << 10      # bytes that may wait for a pipe before reading pauses
_BESIDE_BYTES = 1 << 20  # that are taken beside the loop at a time
_SHOWN_BYTES = 4 << 10   # of output in the repr of an ended job

# What code that knows other libraries asks a handle for -> what is here.
_OTHER_NAMES = {
    "stdout": "job.read() once it has ended", "stderr": "job.read(): it has both streams", "output": "job.read() once it has ended",
    "text": "job.read() once it has ended", "returncode": "job.exit_code", "status": "job.exit_code", "communicate": "await job",
    "result": "await job", "done": "job.poll() is not None", "kill": "job.stop(0)", "terminate": "job.stop()", "cancel": "job.stop()",
    "check_returncode": "job.exit_code"}

# An ended process may leave others that hold the pipe: its job drains until they let go or the time is over.
RUNNING, DRAINING, EXITED = "running", "draining", "exited"
MOVES = {
    RUNNING: {"exit": DRAINING},
    DRAINING: {"drained": EXITED},
    EXITED: {},
}


class Job:
    """A command that runs as an OS process. `await job` waits for its end and gives this handle back.

    id, command, pid, cell, service, started_at and ended_at (ms), timed_out, size (bytes of output), duration (seconds)."""

    def __init__(self, book, name, process, shown, service, listed, cell):
        self.id = name
        self.command = shown
        self.pid = process.pid
        self.cell = cell
        self.service = service
        self.timed_out = False
        self.started_at = int(time() * 1000)
        self.ended_at = None
        self.listed = listed      # False: a plugin's own, of which nobody is told but the owner of the group
        self.leader = process.leader
        self.state = RUNNING
        self.read_by_code = False
        self._book = book
        self._capture = book.open_output(name, listed)
        self._size = None
        self._began = monotonic()
        self._ended = None
        self._code = None
        self._handle = process.handle
        self._out = process.output
        self._reading = False
        self._feeds = []
        self._stdin = None if process.stdin is None else Feed(book.quiet, book.loop, process.stdin)
        self._waiters = []
        self._lock = threading.RLock()  # of the pipe, and of whether the process is still ours to signal
        self._stop_at = None      # monotonic: its timeout
        self._kill_at = None      # monotonic: where it is to end and has not
        self._stopping = False
        self._stopped_by_code = False
        self._left = False        # its group has outlived it
        self._drain_until = None
        self._reported = None     # once it is: whether somebody was to be woken
        self._timers = []

    # --- what cells use ---

    def __await__(self):
        yield from self.over().__await__()
        self._mark_read()
        return self

    async def wait(self, timeout=None):
        """Wait at most timeout seconds (None: until it ends); the exit code, or None while it runs. It is not stopped."""
        import asyncio

        try:
            await asyncio.wait_for(self, timeout)
        except TimeoutError:
            if self.state != EXITED:
                return None
        return self.exit_code

    def poll(self):
        """The exit code, or None while it runs; never waits."""
        with self._book.whole():
            if self._reading and self._book.on_thread():
                self._read()  # for code that polls instead of letting the loop run
            self._look()
        return self.exit_code

    @property
    def exit_code(self):
        """None while it runs (and where it is not known); -N: ended by signal N."""
        if self.state != EXITED:
            return None
        self._mark_read()
        return self._code

    @property
    def size(self):
        return self._capture.size if self._size is None else self._size

    @property
    def duration(self):
        return (monotonic() if self._ended is None else self._ended) - self._began

    def head(self, n=4000, lines=None):
        """The first n characters (or lines=) of the output so far."""
        self._mark_read()
        return self._output().head(n, lines)

    def tail(self, n=4000, lines=None):
        """The last n characters (or lines=) of the output so far."""
        self._mark_read()
        return self._output().tail(n, lines)

    def read(self, offset=None, limit=None):
        """All output of an ended job (at most 1 MiB); or, also while it runs, a page: the text of limit bytes (4 to 65,536)
        at a byte offset. Go on at page.next_offset until it is None."""
        self._mark_read()
        if offset is None and limit is None:
            return self._output().text()
        return Page.of(self._output().page(offset or 0, PAGE_MAX if limit is None else limit))

    def save(self, path):
        """Write the exact output of an ended job to a file; the file's absolute path."""
        self._mark_read()
        return self._output().save(os.path.expanduser(path))

    def pipe(self, *command, **options):
        """Give all output, from its first byte on, to another command as its stdin; the handle of that one.
        One argument is a command as run() takes it, several are a program with its arguments."""
        if len(command) == 1:
            command = command[0]
        if "stdin" in options:
            raise TypeError("the stdin of a piped command is this job's output")
        self._mark_read()
        with self._book.whole(), self._lock:  # what comes meanwhile is not lost between the two
            return self._pipe(command, options)

    def _pipe(self, command, options):
        output = self._output()
        so_far = output.bytes_from_start(HEAD)
        if so_far is None:
            note = output.spill_note()
            if self.state != EXITED or note is None or not note["whole"]:
                raise OutputLost(f"the start of the output of {self.id} can not be piped any more: pipe before more than "
                                 f"{HEAD} bytes are written", output.kept())
            from pathlib import Path

            return self._book.start(command, stdin=Path(note["path"]), **options)
        if self._out is None:
            return self._book.start(command, stdin=so_far, **options)
        job = self._book.start(command, stdin=True, **options)
        feed = job._stdin
        feed.add(so_far)
        feed.on_room = self._resume
        self._feeds.append(feed)
        self._pause_if_behind()
        return job

    def stop(self, grace=GRACE_SECONDS):
        """End it with all processes of its group: SIGTERM, after grace seconds SIGKILL. `await job.stop()` waits for the
        end. One that has ended loses what it left running."""
        if type(grace) not in (int, float) or not 0 <= grace <= GRACE_MOST:
            raise ValueError(f"grace is 0 to {GRACE_MOST:.0f} seconds")
        self._book.check_thread("stop()")
        with self._book.whole():
            self._stopped_by_code = True
            self.begin_stop(grace)
        return self

    def __getattr__(self, name):
        there = _OTHER_NAMES.get(name)
        raise AttributeError(f"a job has no {name!r}" + (f": take {there}" if there else ""), name=name, obj=self)

    def __repr__(self):
        if self.state != EXITED:
            return f"<job {self.id} running for {self.duration:.1f} s, {self.size} bytes of output so far: {_line(self.command)}>"
        if self._book.in_cell():
            self._mark_read()
        first = f"<job {self.id} {self.ending()}, ran {self.duration:.1f} s, {self.size} bytes of output: {_line(self.command)}>"
        if self._left:
            first += "\n(processes that it started still run: job.stop() ends them)"
        if not self.size or not self.listed:
            return first
        try:
            page = self._output().page(None, _SHOWN_BYTES)
        except OutputLost as e:
            return f"{first}\n({e})"
        text = page["text"].rstrip("\n")
        if page["offset"]:
            text = (f"({page['offset']} bytes before this: job.read(offset=0, limit={PAGE_MAX}), job.head(lines=20), "
                    f"job.save(path))\n{text}")
        return f"{first}\n{text}"

    def ending(self):
        """How it ended, as the words of its lines."""
        code = "exit_code unknown" if self._code is None else f"exit_code={self._code}"
        if self._code is not None and self._code < 0:
            try:
                code += f" ({signal.Signals(-self._code).name})"
            except ValueError:
                pass
        return code + (", timed out" if self.timed_out else "")

    # --- what the book uses ---

    async def over(self):
        """Wait for its end, which is not to have read its result."""
        self._look()
        if self.state != EXITED:
            waiter = self._book.loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)

    def begin(self, timeout):
        """Follow the process from now on."""
        book = self._book
        if self._handle is not None:
            book.quiet(book.loop.add_reader, self._handle, self._look)
        else:
            self._later(_LOOK_SECONDS, self._look_again)
        self._read_more()
        if timeout is not None:
            self._stop_at = self._began + timeout
            self._later(timeout, self._time_out)

    def feed(self, data):
        """Give the whole stdin."""
        self._stdin.add(data)
        self._stdin.end()

    def begin_stop(self, grace):
        if self.state == EXITED:
            self._stop_what_is_left(grace)
        elif not self._stopping:
            self._stopping = True
            self._kill_at = monotonic() + grace
            spawn.signal_group(self.pid, signal.SIGTERM)
            spawn.signal_group(self.pid, signal.SIGCONT)
            self._later(grace, self._kill)
            self._look()

    def row(self):
        """The job as the job book lists it."""
        row = {"id": self.id, "command": self.command, "state": "exited" if self.state == EXITED else "running",
               "timed_out": self.timed_out, "service": self.service, "started_at": self.started_at, "bytes": self.size}
        if self.cell is not None:
            row["cell"] = self.cell
        if self.state == EXITED:
            row["ended_at"] = self.ended_at
            if self._code is not None:
                row["exit_code"] = self._code
        return row

    def page(self, offset, limit):
        """A page for a viewer: nobody has read the result thereby."""
        return self._output().page(offset, limit)

    def outlived(self):
        return self._left

    def beside(self):
        """Do what must not wait while a cell holds the loop. The watch thread."""
        now = monotonic()
        with self._lock:
            if self._reading and not self._feeds:
                self._take_beside()
            if self.state != RUNNING:
                return
            if self._kill_at is not None:
                if now >= self._kill_at:
                    spawn.signal_group(self.pid, signal.SIGKILL)
            elif self._stop_at is not None and now >= self._stop_at:
                self.timed_out = True
                self._kill_at = now + GRACE_SECONDS
                spawn.signal_group(self.pid, signal.SIGTERM)
                spawn.signal_group(self.pid, signal.SIGCONT)

    def _take_beside(self):
        left = _BESIDE_BYTES
        while left > 0:
            try:
                data = os.read(self._out, spawn.PIPE_BYTES)
            except OSError:
                return
            if not data:  # the loop will see the end, too
                return
            left -= len(data)
            self._take(data)

    def is_stopping(self):
        return self._stopping

    # --- the loop's callbacks ---

    def _move(self, event):
        state = MOVES[self.state].get(event)
        if state is None:
            return False
        self.state = state
        return True

    def _look(self):
        """See whether the process has ended and its output with it."""
        if self.state == EXITED or not self._book.on_thread():
            return
        with self._lock:
            if self.state == RUNNING:
                how = spawn.ended(self.pid)
                if how is spawn.RUNNING:
                    return
                self._exit(None if how is spawn.UNKNOWN else how)
            if self._drained():
                self._finish()

    def _look_again(self):
        self._look()
        if self.state != EXITED:
            self._later(_LOOK_SECONDS, self._look_again)

    def _exit(self, code):
        if not self._move("exit"):
            return
        self._code = code
        self._ended = monotonic()
        self.ended_at = int(time() * 1000)
        self._drain_until = self._ended + DRAIN_SECONDS
        handle, self._handle = self._handle, None
        if handle is not None:
            self._book.loop.remove_reader(handle)
            os.close(handle)
        if self._stdin is not None:
            self._stdin.close()
        self._read_rest()
        if not self._drained():
            self._later(_LOOK_SECONDS, self._look_again)

    def _drained(self):
        if monotonic() >= self._drain_until:
            return True
        return self._out is None and not (self._stopping and spawn.group_lives(self.pid))

    def _finish(self):
        if not self._move("drained"):
            return
        self._left = spawn.group_lives(self.pid)
        if self._left and self._stopping:
            spawn.signal_group(self.pid, signal.SIGKILL)
            self._left = False
        self._close_output()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._size = self._capture.size
        self._capture.close()
        self._book.has_ended(self)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._book.soon(self._report)  # those who wait have read it by then

    def _report(self):
        if self._reported is not None:
            return
        wake = self.listed and not (self.service or self.read_by_code or self._stopped_by_code)
        self._reported = wake
        self._book.report_end(self, wake, self._capture.page(None, JOB_TAIL)["text"])
        if self.listed and self._book.ended.get(self.id) is not self:
            self._capture = None

    def _mark_read(self):
        if self.state != EXITED or self.read_by_code:
            return
        with self._book.whole():
            self.read_by_code = True
            if self._reported is None:
                self._report()  # before the done of the cell that has read it
            elif self._reported:
                self._book.seen(self)

    def _read_more(self):
        if self._out is not None and not self._reading:
            self._reading = True
            self._book.quiet(self._book.loop.add_reader, self._out, self._read)

    def _read(self):
        """Take one bounded piece, so that the loop comes to everything else between two of them."""
        with self._lock:
            if self._out is None:
                return
            try:
                data = os.read(self._out, self._book.share())
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                self._take(data)
            else:
                self._close_output()
                self._look()

    def _read_rest(self):
        """Take what is in the pipe, once the process has ended: all that it wrote itself."""
        if self._out is None:
            return
        left = spawn.pipe_size(self._out)
        while left >= 0:
            try:
                data = os.read(self._out, spawn.PIPE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._close_output()
                return
            left -= len(data)
            self._take(data)

    def _take(self, data):
        self._capture.add_bytes(data)
        if self._feeds:
            for feed in self._feeds:
                feed.add(data)
            self._pause_if_behind()

    def _pause_if_behind(self):
        if self._reading and any(f.waiting > _BEHIND for f in self._feeds):
            self._reading = False
            self._book.loop.remove_reader(self._out)

    def _resume(self):
        if not self._reading and not any(f.waiting > _BEHIND for f in self._feeds):
            self._read_more()

    def _close_output(self):
        out, self._out = self._out, None
        if out is not None:
            if self._reading:
                self._reading = False
                self._book.loop.remove_reader(out)
            os.close(out)
        feeds, self._feeds = self._feeds, []
        for feed in feeds:
            feed.on_room = None
            feed.end()

    def _time_out(self):
        if self.state == RUNNING:
            self.timed_out = True
            self.begin_stop(GRACE_SECONDS)

    def _kill(self):
        if self.state != EXITED:
            spawn.signal_group(self.pid, signal.SIGKILL)

    def _stop_what_is_left(self, grace):
        if not self._left:
            return
        self._left = False
        if spawn.group_is_ours(self.pid):
            spawn.signal_group(self.pid, signal.SIGTERM)
            spawn.signal_group(self.pid, signal.SIGCONT)
            self._later(grace, self._kill_what_is_left)

    def _kill_what_is_left(self):
        if spawn.group_is_ours(self.pid):
            spawn.signal_group(self.pid, signal.SIGKILL)

    def _later(self, seconds, callback):
        if len(self._timers) > 8:
            now = self._book.loop.time()
            self._timers = [t for t in self._timers if not t.cancelled() and t.when() > now]
        self._timers.append(self._book.quiet(self._book.loop.call_later, seconds, callback))

    def _output(self):
        capture = self._capture
        if capture is None:
            raise OutputLost(f"the output of {self.id} is not kept any more: only that of the newest ended jobs is", 0)
        return capture

    def forget_output(self):
        """The book lets go of it."""
        if self._reported is not None:
            self._capture = None


def _line(command):
    first, _, rest = command.partition("\n")
    return first[:200] + (" …" if rest or len(first) > 200 else "")
