"""Bytes that are on their way into a process."""
import os
from collections import deque


class Feed:
    """Bytes on their way into the stdin of a process, as fast as it takes them. on_room is called when less waits."""

    def __init__(self, quiet, loop, fd):
        self.waiting = 0
        self.on_room = None
        self._quiet = quiet
        self._loop = loop
        self._fd = fd
        self._pieces = deque()
        self._ending = False

    def add(self, data):
        if self._fd is None or self._ending or not data:
            return
        if not self._pieces:
            self._quiet(self._loop.add_writer, self._fd, self._write)
        self._pieces.append(memoryview(data))
        self.waiting += len(data)

    def end(self):
        """Nothing follows: close when all is written."""
        self._ending = True
        if not self._pieces:
            self.close()

    def close(self):
        """Close now; what waits is dropped."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        self._loop.remove_writer(fd)
        os.close(fd)
        self._pieces.clear()
        self.waiting = 0
        if self.on_room is not None:
            self.on_room()

    def _write(self):
        if not self._pieces:
            return
        piece = self._pieces[0]
        try:
            n = os.write(self._fd, piece)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        self.waiting -= n
        if n < len(piece):
            self._pieces[0] = piece[n:]
        else:
            self._pieces.popleft()
            if not self._pieces:
                self._loop.remove_writer(self._fd)
                if self._ending:
                    self.close()
                    return
        if self.on_room is not None:
            self.on_room()
