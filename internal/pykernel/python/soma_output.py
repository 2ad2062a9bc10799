"""What cells write: routed to the cell in whose context it was written, counted, kept as head and tail.

Python text arrives through the streams; what native code and child processes write to descriptors 1 and 2 lands in an
append-only file, which is read by offset: a pipe read in this process would hang as soon as native code fills it while
it holds the interpreter lock.
"""
import codecs
import io
import os
import sys
import threading
from contextvars import ContextVar
from time import monotonic

from soma_wire import HEAD, NATIVE_FILE, OUTPUT_TEXT, TAIL

CURRENT = ContextVar("soma_output", default=None)  # the Capture of the cell whose code runs here

deferred = []  # interrupts that found our own code on the main thread; raise_deferred() takes them


def raise_deferred():
    """Raise a deferred interrupt where a person's code called ours; set by soma_interrupt."""


_DRAIN_AT = OUTPUT_TEXT
_LIVE_KEPT = 4 * OUTPUT_TEXT
_FLUSH_SECONDS = 0.02
_BOUNDARY = 3  # bytes of a character that can precede its last one


def head_of(data, limit):
    """The first bytes of valid UTF-8, at most limit, cut on a character border."""
    if len(data) <= limit:
        return data
    while limit and data[limit] & 0xC0 == 0x80:
        limit -= 1
    return data[:limit]


def tail_of(data, limit):
    """The last bytes of valid UTF-8, at most limit, cut on a character border."""
    start = max(len(data) - limit, 0)
    while start < len(data) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


class Capture:
    """All output of one cell: size, the first 1 MiB, the last 64 KiB, and what is still to be shown live."""

    def __init__(self, cell):
        self.cell = cell
        self.chunks = []      # text not yet encoded; appended to by any thread without the lock
        self.held = 0         # roughly its length
        self.ended = False    # done is made: only live output is left
        self.size = 0
        self._lock = threading.RLock()
        self._head = bytearray()
        self._tail = bytearray()
        self._live = bytearray()
        self._shown_at = 0.0
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def drain(self):
        """Encode the waiting text, unless this thread is at it: a signal handler may print in the midst of it."""
        if not self.entered():
            with self._lock:
                self._drain()

    def entered(self):
        """Whether this very thread is at work here, below a signal handler that runs now."""
        return self._lock._is_owned()

    def add_bytes(self, data, last=False):
        """Take bytes of unknown encoding after the text that waits."""
        with self._lock:
            self._drain()
            self._add(self._bytes.decode(data, last).encode())

    def skip(self, count):
        """Count bytes that were written but not read; only once the head is full."""
        with self._lock:
            self.size += count
            self._live.clear()
            self._tail.clear()

    def take_live(self):
        """(offset, text) of at most 64 KiB that was not shown yet, or None."""
        with self._lock:
            self._drain()
            if not self._live:
                return None
            data = bytes(head_of(self._live, OUTPUT_TEXT))
            offset = self.size - len(self._live)
            del self._live[:len(data)]
            self._shown_at = monotonic()
            return offset, data.decode()

    def due(self):
        """Whether a flush may show output at once: the last piece is old enough."""
        return monotonic() - self._shown_at >= _FLUSH_SECONDS

    def pending(self):
        """Whether live output waits."""
        return bool(self.chunks or self._live)

    def result(self):
        """The output object of the cell's done; afterwards only live output is kept."""
        self.add_bytes(b"", True)
        with self._lock:
            head = head_of(self._head, HEAD)
            tail = b""
            if self.size > HEAD:
                tail = tail_of(self._tail, min(TAIL, self.size - len(head)))
            out = {"head": head.decode(), "tail": tail.decode(), "size": self.size}
            self._head = bytearray()
            self._tail = bytearray()
            self.ended = True
            return out

    def _drain(self):
        n = len(self.chunks)
        if n:
            text = "".join(self.chunks[:n])  # others append meanwhile: only these n go
            del self.chunks[:n]
            self.held = 0
            self._add(text.encode("utf-8", "backslashreplace"))

    def _add(self, data):
        if not data:
            return
        self.size += len(data)
        if not self.ended:
            room = HEAD + _BOUNDARY - len(self._head)
            if room > 0:
                self._head += data[:room]
            self._tail += data[-(TAIL + _BOUNDARY):]
            if len(self._tail) > 2 * TAIL:
                del self._tail[:len(self._tail) - TAIL - _BOUNDARY]
        if len(data) > _LIVE_KEPT:
            self._live.clear()
        self._live += tail_of(data, _LIVE_KEPT)
        if len(self._live) > _LIVE_KEPT:
            self._live = tail_of(self._live, _LIVE_KEPT)


class Stream(io.TextIOBase):
    """sys.stdout and sys.stderr of the kernel."""

    encoding = "utf-8"
    errors = "backslashreplace"
    mode = "w"

    def __init__(self, name, show, late):
        self.name = name
        self._show = show  # called to show some output now
        self._late = late  # called when a capture whose cell has ended gets text
        self.buffer = _Bytes(self)

    def write(self, text):
        out = CURRENT.get()
        if out is None or type(text) is not str:
            return self._write_otherwise(text, out)
        out.chunks.append(text)
        out.held = held = out.held + len(text)
        if held >= _DRAIN_AT:
            out.drain()
        if out.ended:
            self._late(out)
        if deferred:
            raise_deferred()
        return len(text)

    def _write_otherwise(self, text, out):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if out is not None:
            return self.write(str(text))
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(1, data):]
        return len(text)

    def flush(self):
        out = CURRENT.get()
        if out is not None and out.due():
            self._show(out)
        if deferred:
            raise_deferred()

    def fileno(self):
        return 1 if self.name == "<stdout>" else 2

    def writable(self):
        return True

    def close(self):
        """Stays open: it is the kernel's."""


class _Bytes(io.BufferedIOBase):
    """The `buffer` of a stream: bytes among the text."""

    def __init__(self, stream):
        self.raw = self
        self._stream = stream

    def write(self, data):
        out = CURRENT.get()
        data = bytes(data)
        if out is None:
            os.write(1, data)
        elif out.entered():
            out.chunks.append(data.decode("utf-8", "replace"))
        else:
            out.add_bytes(data)
            if out.ended:
                self._stream._late(out)
        if deferred:
            raise_deferred()
        return len(data)

    def fileno(self):
        return self._stream.fileno()

    def writable(self):
        return True

    def close(self):
        """Stays open: it is the kernel's."""


def _punch_hole(fd, start, end):
    """Free a range of a file and keep its offsets, so that nothing written meanwhile is lost; False where it cannot."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return False
    keep_size_and_punch = 3
    return call(fd, keep_size_and_punch, ctypes.c_longlong(start), ctypes.c_longlong(end - start)) == 0


class Native:
    """The file behind descriptors 1 and 2: it holds at most about 16 MiB, whatever its length says."""

    def __init__(self, path):
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o600)
        self._at = 0       # read up to here
        self._cut_at = 0   # freed up to here
        self._lock = threading.Lock()

    def take_over(self):
        """Make the file descriptors 1 and 2."""
        os.dup2(self._fd, 1)
        os.dup2(self._fd, 2)

    def drain(self, out):
        """Give what was written since the last time to a capture."""
        with self._lock:
            size = os.fstat(self._fd).st_size
            if size == self._at:
                return
            if size < self._at:  # someone truncated it
                self._at = self._cut_at = 0
            most = HEAD + _BOUNDARY
            if size - self._at > most + 2 * TAIL:
                out.add_bytes(os.pread(self._fd, most, self._at))
                out.skip(size - 2 * TAIL - self._at - most)
                self._at = size - 2 * TAIL
            while self._at < size and (data := os.pread(self._fd, size - self._at, self._at)):
                out.add_bytes(data)
                self._at += len(data)
            self._cut()

    def trim(self):
        """Keep the file small while no cell reads it."""
        with self._lock:
            size = os.fstat(self._fd).st_size
            if size - self._cut_at > NATIVE_FILE:
                self._at = size
                self._cut()

    def _cut(self):
        if self._at - self._cut_at < NATIVE_FILE // 2:
            return
        if _punch_hole(self._fd, self._cut_at, self._at):
            self._cut_at = self._at
        else:
            os.ftruncate(self._fd, 0)
            self._at = self._cut_at = 0


def install(native, show, late):
    """Take over descriptors 1 and 2 and the streams; show(capture) is called by a flush, late(capture) for text after
    a cell's end, both on the writing thread."""
    native.take_over()
    sys.stdout = sys.__stdout__ = Stream("<stdout>", show, late)
    sys.stderr = sys.__stderr__ = Stream("<stderr>", show, late)
    _follow_threads()


def give_back():
    """In a forked child: no capture is read there, so write to the descriptors."""
    Stream.write = lambda self, text: self._write_otherwise(text, None)
    Stream.flush = lambda self: None
    CURRENT.set(None)


def _follow_threads():
    """Let threads and executors write to the cell that started them (a new thread starts with an empty context).

    Only the output follows, not the person's own context variables. `soma_inherit = False` on the thread or executor
    opts out. Executors are wrapped when the first thread of one starts: importing them at start costs more than that.
    """
    Thread = threading.Thread
    start = Thread.start
    Thread.soma_inherit = True

    def start_with_output(self):
        if "concurrent.futures.thread" in sys.modules:
            _follow_executors()
        out = CURRENT.get()
        if out is not None and self.soma_inherit:
            run = self.run

            def run_with_output():
                CURRENT.set(out)
                del self.run
                run()

            self.run = run_with_output
        start(self)

    start_with_output.__wrapped__ = start
    Thread.start = start_with_output


def _follow_executors():
    Executor = sys.modules["concurrent.futures.thread"].ThreadPoolExecutor
    if hasattr(Executor, "soma_inherit"):
        return
    submit = Executor.submit
    Executor.soma_inherit = True

    def submit_with_output(self, fn, /, *args, **kwargs):
        out = CURRENT.get()
        if not self.soma_inherit:
            out = None

        def call():
            before = CURRENT.set(out)
            try:
                return fn(*args, **kwargs)
            finally:
                CURRENT.reset(before)

        return submit(self, call)

    submit_with_output.__wrapped__ = submit
    Executor.submit = submit_with_output
