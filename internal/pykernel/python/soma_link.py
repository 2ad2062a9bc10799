"""The link to the daemon: one listening socket, one reader thread, at most one attached connection.

The reader thread accepts, reads, answers pings and acknowledges; it also carries the slow clock (`tick`). Any thread may
send: a frame goes into the outbox and, as far as the socket takes it, out at once; what does not fit is written by the
reader when the socket takes more. So no sender ever waits for the daemon.
"""
import _signal
import os
import select
import threading
from collections import deque
from errno import EMFILE, ENFILE
from os import close, read, write
from _operator import _compare_digest  # hmac's own; hmac itself loads OpenSSL
from time import monotonic, sleep

import soma_wire as wire
from soma_outbox import Outbox

_READ = 256 << 10
_BATCH = 256 << 10
_LONG = 60_000          # ms
_WAITING = 8            # connections that have not attached yet
_ATTACH_SECONDS = 10.0
_BREATH = 0.05          # after an error of the reader
_ACK_SECONDS = 0.005    # a frame may carry the acknowledgement until then


def hold_signals():
    """Leave all signals to the other threads."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())


class _Connection:
    def __init__(self, sock, deadline):
        self.sock = sock
        self.fd = sock.fileno()
        self.decoder = wire.Decoder(wire.ATTACH_UNIT)
        self.deadline = deadline
        self.attached = False
        self.cut = False        # set by any thread; the reader closes it
        self.waiting = b""      # bytes that the socket has not taken yet
        self.sent = 0           # the highest frame written (or waiting)
        self.again = 0          # up to here frames are sent again: no pong comes before them
        self.ack_at = None      # monotonic: when an acknowledgement is due that no frame has carried
        self.pong = None


class Link:
    """events is the kernel behind the link: apply(frame), tick() -> ms until the next one,
    hello_facts() -> dict, attached(), closing() -> bool, unreachable(). All are called on the reader thread."""

    def __init__(self, listener, kernel, token, scale, events):
        self._listener = listener
        self._kernel = kernel
        self._token = token
        self._scale = scale
        self._events = events
        self._lock = threading.RLock()
        self._outbox = Outbox()
        self._later = deque()   # frames that were sent below a send
        self._current = None
        self._epoch = 0
        self._lease = 0
        self._applied = 0
        self._connections = {}
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        self._spare = None      # a descriptor to have one where a cell has used up all others
        self._keep_spare()
        self._thread = threading.Thread(target=self._read_for_ever, name="soma reader", daemon=True)
        self.grace = None       # seconds, from the newest attach
        self.detached_at = monotonic()

    def start(self):
        self._thread.start()

    # --- sending: any thread ---

    def send(self, body, key=None, coalesces=False):
        """Queue the JSON bytes of a frame for the daemon and write what the socket takes."""
        self.send_all(((body, key, coalesces),))

    def send_all(self, frames):
        """send() for several (body, key, coalesces), in one write."""
        if self.entered():  # a signal handler or a finalizer sends in the midst of a send: after it
            self._later.extend(frames)
            self.nudge()
            return
        with self._lock:
            for frame in frames:
                self._outbox.add(*frame)
            self._pump()

    def send_again(self, body, key):
        """send() unless a frame of that key still waits for its acknowledgement."""
        with self._lock:
            if not self._outbox.holds(key):
                self._outbox.add(body, key)
                self._pump()

    def takes_live(self):
        """Whether live output would be written at this moment."""
        with self._lock:
            return self._current is not None and not self._current.waiting

    def show(self, cell, offset, text):
        """Write live output, or drop it when the socket would block or nobody is attached. True when written."""
        with self._lock:
            c = self._current
            if c is None or c.waiting:
                return False
            c.waiting = memoryview(wire.unit(wire.encode({"output": {"cell": cell, "offset": offset, "text": text}})))
            self._pump()
            return True

    def entered(self):
        """Whether this very thread is sending, below a signal handler that runs now."""
        return self._lock._is_owned()

    def attached(self):
        return self._current is not None

    def settled(self):
        """Whether nothing more can be written now: all frames are out, or nobody reads."""
        with self._lock:
            c = self._current
            return c is None or (not c.waiting and c.sent >= self._outbox.last and c.ack_at is None)

    def acknowledged(self):
        with self._lock:
            return self._outbox.acked >= self._outbox.last

    def nudge(self):
        """Make the reader thread look around."""
        try:
            write(self._wake, b"x")
        except BlockingIOError:
            pass

    def descriptors(self):
        spare = [] if self._spare is None else [self._spare]
        return [self._listener.fileno(), self._woken, self._wake, *spare, *list(self._connections)]

    def _pump(self):
        """Write what waits, under the lock. Marks the connection as cut when it is broken."""
        c = self._current
        try:
            self._write_waiting(c)
        except BaseException:  # a cell's own signal handler raised in here: what was written is not known
            c.cut = True
            self.nudge()
            raise

    def _write_waiting(self, c):
        while c is not None and not c.cut:
            if not c.waiting:
                c.waiting = self._next(c)
                if not c.waiting:
                    return
            try:
                n = c.sock.send(c.waiting)
            except BlockingIOError:
                self.nudge()
                return
            except OSError:
                c.cut = True
                self.nudge()
                return
            c.waiting = c.waiting[n:] if n < len(c.waiting) else b""

    def _next(self, c):
        parts, size = [], 0
        if c.pong is not None and c.sent >= c.again:
            parts.append(wire.unit(b'{"pong":%d}' % c.pong))
            c.pong = None
        for number, body in self._outbox.after(c.sent):
            parts.append(wire.unit(b'{"seq":%d,"ack":%d,"frame":%b}' % (number, self._applied, body)))
            c.sent = number
            c.ack_at = None
            size += len(body)
            if size >= _BATCH:
                break
        if c.ack_at is not None:
            parts.append(wire.unit(b'{"ack":%d}' % self._applied))
            c.ack_at = None
        return memoryview(b"".join(parts))

    # --- reading: the reader thread ---

    def _read_for_ever(self):
        """Without this thread nobody reaches the process: it goes on whatever was raised in it (a cell may have used up
        all memory), on a fresh connection."""
        hold_signals()
        while True:
            try:
                self._read()
            except BaseException:
                if not self._listens():
                    self._events.unreachable()
                for c in list(self._connections.values()):
                    self._close(c)
                sleep(_BREATH)

    def _listens(self):
        try:
            self._listener.getsockname()
        except OSError:
            return False
        return True

    def _read(self):
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        listening = self._listener.fileno()
        timeout = self._events.tick()
        while True:
            for c in self._connections.values():
                poll.register(c.fd, select.POLLIN | (select.POLLOUT if c.waiting else 0))
            ready = poll.poll(timeout)
            for fd, what in ready:
                if fd == listening:
                    self._accept()
                elif fd == self._woken:
                    self._empty_pipe()
                elif (c := self._connections.get(fd)) is not None and not c.cut:
                    if what & ~select.POLLOUT:
                        self._receive(c)
                    if what & select.POLLOUT:
                        with self._lock:
                            if c is self._current:
                                self._pump()
            for c in list(self._connections.values()):
                if c.cut or (not c.attached and monotonic() > c.deadline):
                    poll.unregister(c.fd)
                    self._close(c)
            timeout = min(self._acknowledge(), self._events.tick())  # which wakes the loop: last

    def _acknowledge(self):
        """Write the acknowledgement that is due; ms until one is."""
        c = self._current
        if c is None or (at := c.ack_at) is None:
            return _LONG
        left = int((at - monotonic()) * 1000)
        if left > 0:
            return left
        with self._lock:
            self._pump()
        return _LONG

    def _empty_pipe(self):
        try:
            read(self._woken, 4096)
        except BlockingIOError:
            pass
        if self._later:
            frames = []
            while self._later:
                frames.append(self._later.popleft())
            self.send_all(frames)

    def _keep_spare(self):
        if self._spare is None:
            try:
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                pass

    def _accept(self):
        try:
            sock, _ = self._listener.accept()
        except OSError as e:
            if not self._listens():
                raise
            if e.errno in (EMFILE, ENFILE):
                spare, self._spare = self._spare, None
                if spare is None:
                    sleep(_BREATH)
                else:
                    close(spare)
            return
        sock.setblocking(False)
        c = _Connection(sock, monotonic() + _ATTACH_SECONDS / self._scale)
        waiting = [x for x in self._connections.values() if not x.attached and not x.cut]
        if len(waiting) >= _WAITING:
            waiting[0].cut = True
        self._connections[c.fd] = c

    def _close(self, c):
        with self._lock:
            if c is self._current:
                self._current = None
                self.detached_at = monotonic()
        del self._connections[c.fd]
        c.sock.close()
        self._keep_spare()

    def _receive(self, c):
        try:
            data = c.sock.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            c.cut = True
            return
        try:
            for value in c.decoder.feed(data):
                self._take(c, value)
                if c.cut:
                    return
        except wire.BadUnit:
            if not c.attached:
                self._refuse(c, "malformed")
            c.cut = True

    def _take(self, c, value):
        kind = wire.shape("daemon", value)
        if not c.attached:
            self._attach(c, value.get("attach") if kind == "attach" else None)
        elif kind == "frame":
            self._frame(c, value)
        elif kind == "ack":
            self._acked(c, value["ack"])
        elif kind == "ping":
            with self._lock:
                c.pong = value["ping"]
                self._pump()
        else:
            c.cut = True

    def _acked(self, c, number):
        with self._lock:
            if not self._outbox.ack(number):
                c.cut = True

    def _frame(self, c, value):
        self._acked(c, value["ack"])
        if c.cut:
            return
        if value["seq"] > self._applied:
            self._events.apply(value["frame"])
        with self._lock:
            self._applied = max(self._applied, value["seq"])
            c.ack_at = c.ack_at or monotonic() + _ACK_SECONDS

    def _refuse(self, c, reason):
        try:
            c.sock.send(wire.unit(wire.encode({"refused": reason})))
        except OSError:
            pass
        c.cut = True

    def _attach(self, c, a):
        reason = self._reason_against(a)
        if reason is not None:
            self._refuse(c, reason)
            return
        facts = self._events.hello_facts()
        with self._lock:
            old = self._current
            if old is not None:
                old.cut = True
            self._epoch += 1
            self._lease = a["lease"]
            self._outbox.ack(a["ack"])
            hello = {"protocol": wire.PROTOCOL, "epoch": self._epoch, "ack": self._applied,
                     "dropped": self._outbox.dropped, **facts}
            c.waiting = memoryview(wire.unit(wire.encode({"hello": hello})))
            c.sent = a["ack"]
            c.again = self._outbox.last
            c.attached = True
            c.decoder.limit = wire.MAX_UNIT
            self._current = c
            self.grace = a["grace"]
            self._pump()
        self._events.attached()

    def _reason_against(self, a):
        if a is None:
            return "malformed"
        if not _compare_digest(a["token"].encode("utf-8", "replace"), self._token):
            return "token"
        if a["kernel"] != self._kernel:
            return "kernel"
        if a["lease"] < self._lease:
            return "lease"
        if a["ack"] > self._outbox.last:
            return "ack"
        if self._events.closing():
            return "closing"
        return None
