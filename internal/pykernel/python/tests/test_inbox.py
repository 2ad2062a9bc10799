"""What other threads and signal handlers hand to the loop and to the link, in the midst of their work."""
import asyncio
import socket
import threading
import unittest
from contextvars import ContextVar, copy_context

from soma_executor import Executor
from soma_link import Link

WHO = ContextVar("who", default="nobody")


class Inbox(unittest.TestCase):
    def setUp(self):
        self.loop = asyncio.new_event_loop()
        self.addCleanup(self.loop.close)
        self.told = []
        self.loop.set_exception_handler(lambda _, context: self.told.append(context["exception"]))
        self.executor = Executor(None, "0f", self.loop, None, 1.0)

    def until(self, count, seen):
        """Run the loop until so many are seen."""
        async def wait():
            while len(seen) < count:
                await asyncio.sleep(0)
        self.loop.run_until_complete(asyncio.wait_for(wait(), 10))

    # P-201: a callback that is disturbed runs again; one that always fails is told of and keeps nothing behind it waiting
    def test_failing(self):
        seen = []

        def once(_):
            seen.append("tried")
            if len(seen) == 1:
                raise ValueError("a signal handler")

        def always(_):
            seen.append("broken")
            raise ZeroDivisionError

        for callback in (once, always, seen.append):
            self.executor.post(callback, "last")
        self.until(6, seen)
        self.assertEqual(seen, ["tried", "tried", "broken", "broken", "broken", "last"])
        self.assertEqual([type(e) for e in self.told], [ZeroDivisionError])

    # P-041, P-042: what is posted does not run in the context of who posted it, nor does what stands behind it
    def test_context(self):
        seen = []
        context = copy_context()
        context.run(WHO.set, "a cell")
        context.run(self.executor.post, lambda _: seen.append(WHO.get()), None)
        thread = threading.Thread(target=self.executor.post, args=(lambda _: seen.append(WHO.get()), None))
        thread.start()
        self.until(2, seen)
        thread.join()
        self.assertEqual(seen, ["nobody", "nobody"])


class Below(unittest.TestCase):
    # P-014: a frame that a signal handler or a finalizer sends in the midst of a send gets its number after that one's
    def test_send_in_a_send(self):
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        link = Link(listener, "k", b"t", 1.0, None)
        add, sent = link._outbox.add, []

        def disturbed(body, key=None, coalesces=False):
            if body == b"outer":
                link.send(b"inner")
            add(body, key, coalesces)
            sent.append((link._outbox.last, body))

        link._outbox.add = disturbed
        link.send(b"outer")
        self.assertEqual(sent, [(1, b"outer")])
        link._empty_pipe()  # the reader has been told
        self.assertEqual(sent, [(1, b"outer"), (2, b"inner")])
        self.assertEqual(list(link._outbox.after(0)), [(1, b"outer"), (2, b"inner")])
