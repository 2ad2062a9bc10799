"""What cells write: routed to the channel (soma_capture) of the cell in whose context it was written.

Python text arrives through the streams; what native code and child processes write to descriptors 1 and 2 lands in an
append-only file, which is read by offset: a pipe read in this process would hang as soon as native code fills it while
it holds the interpreter lock.
"""
import io
import os
import sys
import threading
from contextvars import ContextVar

from soma_wire import NATIVE_FILE, OUTPUT_TEXT, TAIL

CURRENT = ContextVar("soma_output", default=None)  # the Capture of the cell whose code runs here

deferred = []  # interrupts that found our own code on the main thread; raise_deferred() takes them


def raise_deferred():
    """Raise a deferred interrupt where a person's code called ours; set by soma_interrupt."""


_PIECE = 1 << 20


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
        if held >= OUTPUT_TEXT:
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

    def reconfigure(self, **_):
        """Scripts ask for UTF-8 or for lines at once; both is so already, and all else stays as it is."""

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

    def mend(self):
        """Take over descriptors 1 and 2 again where a cell has closed them."""
        for fd in (1, 2):
            try:
                os.fstat(fd)
            except OSError:
                try:
                    os.dup2(self._fd, fd)
                except OSError:
                    pass  # it is closed too

    def drain(self, out):
        """Give what was written since the last time to a capture."""
        with self._lock:
            size = self._size()
            if size == self._at:
                return
            if size < self._at:  # someone truncated it
                self._at = self._cut_at = 0
            while self._at < size:
                skipped = 0
                if size - self._at > _PIECE and not out.room():
                    skipped = size - self._at - 2 * TAIL
                data = os.pread(self._fd, min(size - self._at - skipped, _PIECE), self._at + skipped)
                if not data:
                    break
                if skipped:
                    out.skip(skipped, data)
                else:
                    out.add_bytes(data)
                self._at += skipped + len(data)
            self._cut()

    def large(self):
        """Whether it is time for a drain() though no cell asks for one. Any thread."""
        return self._size() - self._cut_at > NATIVE_FILE

    def _size(self):
        try:
            return os.fstat(self._fd).st_size
        except OSError:  # a cell has closed it
            return self._at

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
    sys.stdin.close = lambda: None  # exit() closes it, and help() needs it
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
