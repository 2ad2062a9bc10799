"""Host calls: what bindings ask of the daemon.

A call is sent again after each hello until it is answered. One made by a running cell is cancelled when that cell ends;
one made without a cell lives until it is answered. Loop thread only, except resend().
"""
import os
from asyncio import get_running_loop

from soma_output import CURRENT
from soma_wire import MAX_UNIT, encode

_MARGIN = 4096  # the envelope around a frame


class HostError(Exception):
    """The daemon answered a call with an error; `code` is for programs."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Calls:
    def __init__(self, link):
        self._link = link
        self._prefix = os.urandom(8).hex()
        self._count = 0
        self._open = {}  # call id -> (capture of its cell or None, future, body)

    async def call(self, method, args):
        """Ask, bound to the cell whose code runs here if it still runs; the reply's value or HostError."""
        out = CURRENT.get()
        name, future = self._ask(method, args, None if out is None or out.ended else out)
        try:
            return await future
        finally:
            self._open.pop(name, None)

    def start(self, method, args):
        """Ask, bound to no cell; the future of the reply."""
        name, future = self._ask(method, args, None)
        future.add_done_callback(lambda _: self._open.pop(name, None))
        return future

    def _ask(self, method, args, out):
        if type(method) is not str:
            raise TypeError("the method of a host call is a string")
        self._count += 1
        name = f"{self._prefix}-{self._count}"
        cell = {} if out is None else {"cell": out.cell}
        body = encode({"type": "call", "id": name, **cell, "method": method, "args": args})
        if len(body) > MAX_UNIT - _MARGIN:
            raise ValueError("the arguments of a host call are too large")
        future = get_running_loop().create_future()
        self._open[name] = (out, future, body)
        self._link.send(body, ("call", name))
        return name, future

    def answer(self, frame):
        """Give a reply to its call; one that nobody waits for is dropped."""
        _, future, _ = self._open.get(frame["call"], (None, None, None))
        if future is None or future.done():
            return
        if frame["ok"]:
            future.set_result(frame.get("value"))
        else:
            future.set_exception(HostError(frame["error"]["code"], frame["error"]["message"]))

    def cancel(self, out):
        """Cancel what a cell that ends still waits for."""
        for name, (owner, future, _) in list(self._open.items()):
            if owner is out:
                self._open.pop(name, None)
                future.cancel()

    def resend(self):
        """Send every open call that is not waiting in the outbox already. Any thread."""
        for name, (_, _, body) in list(self._open.items()):
            self._link.send_again(body, ("call", name))


_calls = None


def install(link):
    global _calls
    _calls = Calls(link)
    return _calls


async def call(method, args=None):
    """Ask the daemon: method names a route, args is JSON. Returns the reply's value; HostError when it says no."""
    return await _calls.call(method, args)
