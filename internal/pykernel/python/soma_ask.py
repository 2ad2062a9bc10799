"""Questions of the daemon: each is answered exactly once, by a frame of its type and id.

A handler runs on the reader thread (`anywhere`), or on the loop. Where a cell holds the loop, a `view` (it only looks)
runs on the reader thread after a moment, and what is no view is answered as busy in the end.
"""
import threading
from asyncio import Task, iscoroutine
from time import monotonic

from soma_wire import ANSWERS

_VIEW_SECONDS = 0.25
_BUSY_SECONDS = 8.0
_TRIES = 5  # of a view beside the loop, which may change what it walks through


class AskError(Exception):
    """A question that is answered with an error: `code` is one of the protocol, the text is for people."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class _Ask:
    __slots__ = ("frame", "handler", "begun", "since")

    def __init__(self, frame, handler):
        self.frame = frame
        self.handler = handler
        self.begun = False
        self.since = monotonic()


class Asks:
    """post(callback, argument) runs on the loop, perhaps twice."""

    def __init__(self, loop, post, scale=1.0):
        self._loop = loop
        self._busy_after = _BUSY_SECONDS / scale
        self._post = post
        self._send = None     # of the Api
        self._lock = threading.Lock()
        self._handlers = {}   # kind -> (handler, anywhere, view)
        self._waiting = {}    # id -> _Ask, of those that the loop has not begun
        self._tasks = set()

    def bind(self, send):
        """Tell how a frame is sent: send(kind, fields), any thread. Once."""
        self._send = send

    def on(self, kind, handler, anywhere=False, view=False):
        if kind not in ANSWERS:
            raise ValueError(f"{kind!r} is no question")
        self._handlers[kind] = (handler, anywhere, view)

    def take(self, frame):
        """A question has come. The reader thread."""
        handler, anywhere, view = self._handlers.get(frame["type"], (_nobody, True, False))
        if anywhere:
            self._answer(frame, handler)
            return
        ask = _Ask(frame, handler)
        with self._lock:
            self._waiting[frame["id"]] = ask
        self._post(self._on_loop, ask)

    def tick(self):
        """Answer what the loop does not come to; seconds until the next look, or None. The reader thread."""
        if not self._waiting:
            return None
        now = monotonic()
        for ask in list(self._waiting.values()):
            view = self._handlers[ask.frame["type"]][2]
            if now - ask.since < (_VIEW_SECONDS if view else self._busy_after) or not self._begin(ask):
                continue
            self._answer(ask.frame, _retried(ask.handler) if view else _busy)
        return _VIEW_SECONDS

    def _begin(self, ask):
        with self._lock:
            if ask.begun:
                return False
            ask.begun = True
            self._waiting.pop(ask.frame["id"], None)
            return True

    def _on_loop(self, ask):
        if not self._begin(ask):
            return
        reply = self._answer(ask.frame, ask.handler)
        if reply is not None:
            task = Task(self._later(ask.frame, reply), loop=self._loop)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _later(self, frame, reply):
        try:
            fields = await reply
        except BaseException as e:
            self._refuse(frame, e)
        else:
            self._accept(frame, fields)

    def _answer(self, frame, handler):
        """Answer now; what is to be awaited instead, or None."""
        try:
            fields = handler(frame)
        except Exception as e:
            self._refuse(frame, e)
            return None
        if iscoroutine(fields) or hasattr(fields, "__await__"):
            return fields
        self._accept(frame, fields)
        return None

    def _accept(self, frame, fields):
        try:
            self._send(frame["type"], {"id": frame["id"], "ok": True, **(fields or {})})
        except (TypeError, ValueError, RecursionError) as e:
            self._refuse(frame, e)

    def _refuse(self, frame, failure):
        code = getattr(failure, "code", None)
        text = str(failure) if isinstance(code, str) or isinstance(failure, ValueError) else repr(failure)
        self._send(frame["type"], {"id": frame["id"], "ok": False, "code": code if isinstance(code, str) else "invalid",
                                   "error": text[:4096]})


def _nobody(frame):
    if frame["type"] == "job_list":
        return {"jobs": []}
    if "job" in frame:
        raise AskError("job_not_found", f"no job {frame['job']} is known here")
    raise AskError("invalid", "nobody answers this")


def _busy(_frame):
    raise AskError("busy", "a cell holds the loop")


def _retried(handler):
    def call(frame):
        for _ in range(_TRIES):
            try:
                fields = handler(frame)
            except RuntimeError:  # a dict changed while it was walked through
                continue
            if hasattr(fields, "__await__"):
                if hasattr(fields, "close"):
                    fields.close()
                break
            return fields
        return _busy(frame)
    return call
