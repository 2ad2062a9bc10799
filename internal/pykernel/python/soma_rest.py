"""Whether the process rests: nothing would be lost with it but names, which can be saved.

Looked at once a second while no cell runs; compared with how it was when start-up was complete. What cannot be looked at
does not rest.
"""
import os
import sys
import threading
from asyncio import all_tasks


class Rest:
    def __init__(self, loop, link, api):
        self._loop = loop
        self._link = link
        self._api = api
        self._files = self._environment = None

    def baseline(self):
        """Start-up is complete: what is open now may be open."""
        self._files = _open_files()
        self._environment = _environment()

    def look(self):
        """Whether nothing runs or is held open. Any thread."""
        try:
            return self._rests()
        except Exception:
            return False

    def _rests(self):
        loop, api = self._loop, self._api
        if self._files is None or api.live_jobs() or api.held():
            return False
        if all_tasks(loop) or any(not t.cancelled() for t in list(loop._scheduled)):
            return False
        threads = sum(not t.name.startswith("soma ") for t in threading.enumerate())
        if threads - self._idle_threads() > 1:
            return False
        return not (_open_files() - self._files - set(self._link.descriptors())) and self._environment == _environment()

    def _idle_threads(self):
        """Threads of asyncio.to_thread's pool, when all of them wait for work."""
        pool = self._loop._default_executor
        if pool is None or "concurrent.futures.thread" not in sys.modules:
            return 0
        idle = pool._work_queue.empty() and pool._idle_semaphore._value == len(pool._threads)
        return len(pool._threads) if idle else 0


def _open_files():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:  # the directory that is just read is among them and gone again
            os.stat(f"/proc/self/fd/{name}")
        except OSError:
            continue
        found.add(int(name))
    return found


def _environment():
    return hash(frozenset(os.environ.items()))
