"""Host calls: what bindings await from the daemon.

`await call(method, args)` sends a call frame and waits for its reply. A call is sent again after each hello until it is
answered; it is cancelled when its cell ends. Loop thread only, except resend().
"""
import os
from asyncio import get_running_loop

import soma_output
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
        self._open = {}  # call id -> (capture, future, body)

    async def call(self, method, args):
        if type(method) is not str:
            raise TypeError("the method of a host call is a string")
        out = soma_output.CURRENT.get()
        if out is None or out.ended:
            raise HostError("no_cell", "a host call needs a running cell")
        self._count += 1
        name = f"{self._prefix}-{self._count}"
        body = encode({"type": "call", "id": name, "cell": out.cell, "method": method, "args": args})
        if len(body) > MAX_UNIT - _MARGIN:
            raise ValueError("the arguments of a host call are too large")
        future = get_running_loop().create_future()
        self._open[name] = (out, future, body)
        self._link.send(body, ("call", name))
        try:
            return await future
        finally:
            self._open.pop(name, None)

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
