"""Frames to the daemon that it has not acknowledged yet: numbered, bounded, sent again after each hello.

Knows no socket and takes no lock; its owner (soma_link) calls it under its own.
"""
from soma_wire import OUTBOX_BYTES, OUTBOX_FRAMES


class Outbox:
    def __init__(self, max_frames=OUTBOX_FRAMES, max_bytes=OUTBOX_BYTES):
        self.last = 0       # the highest number given out
        self.acked = 0      # the daemon has everything up to here
        self.dropped = 0    # frames lost to the bound
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self._bytes = 0
        self._frames = {}   # number -> (body, key, coalesces), in rising order
        self._by_key = {}   # key -> number

    def add(self, body, key=None, coalesces=False):
        """Keep the JSON bytes of a frame. key names it for holds(); with coalesces it replaces the one of that key."""
        if coalesces and key in self._by_key:
            self._remove(self._by_key[key])
        self.last += 1
        self._frames[self.last] = (body, key, coalesces)
        self._bytes += len(body)
        if key is not None:
            self._by_key[key] = self.last
        while len(self._frames) > self._max_frames or self._bytes > self._max_bytes:
            victim = next((n for n, f in self._frames.items() if f[2]), None)
            self._remove(next(iter(self._frames)) if victim is None else victim)
            self.dropped += 1

    def holds(self, key):
        """Whether the newest frame of that key still waits for its acknowledgement."""
        return key in self._by_key

    def ack(self, number):
        """Forget everything up to number. False when that was never given out."""
        if number > self.last:
            return False
        if number > self.acked:
            self.acked = number
            while self._frames and (first := next(iter(self._frames))) <= number:
                self._remove(first)
        return True

    def after(self, number):
        """The (number, body) of each kept frame above number, in order."""
        if number >= self.last or not self._frames:
            return
        for n in range(max(number + 1, next(iter(self._frames))), self.last + 1):
            frame = self._frames.get(n)
            if frame is not None:
                yield n, frame[0]

    def _remove(self, number):
        body, key, _ = self._frames.pop(number)
        self._bytes -= len(body)
        if key is not None and self._by_key.get(key) == number:
            del self._by_key[key]
