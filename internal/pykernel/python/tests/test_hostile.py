"""What cells do to the process that they run in: the kernel goes on, or ends where nobody could reach it any more."""
from tests.client import Closed, KernelCase


class Taken(KernelCase):
    def goes_on(self, code):
        """A kernel whose cell has run code takes the next ones, tells of errors, is interrupted and attached again."""
        k, c = self.attached()
        c.run("first", code)
        done = c.run("next", "print('shown'); 1+1")
        self.assertEqual((done["value"], done["output"]["head"]), ("2", "shown\n"))
        self.assertEqual(c.run("error", "1/0")["error"]["type"], "ZeroDivisionError")
        c.execute("loop", "print('loop', flush=True)\nwhile True: pass")
        c.printed("loop", "loop")
        c.frame("interrupt", cell="loop")
        self.assertEqual(c.done("loop")["status"], "interrupted")
        c = k.attach(ack=c.last)
        self.assertEqual(c.run("last", "2+2")["value"], "4")
        c.frame("shutdown")
        self.assertEqual(k.wait(), 0)

    # P-201: modules of the standard library whose parts a cell has replaced, as some libraries do
    def test_replaced(self):
        for code in ("import threading; threading.Thread = threading.Lock = None", "import sys; sys.excepthook = sys.unraisablehook = None",
                     "asyncio.get_running_loop().set_task_factory(lambda loop, coro, **more: 1 / 0)",
                     "import select; os.pipe = os.set_blocking = select.poll = None; asyncio.Task = asyncio.wait_for = None",
                     "import builtins; builtins.__import__ = lambda *a, **k: 1 / 0",
                     "import sys; sys.setrecursionlimit(50)", "import gc; gc.disable(); os.umask(0o777)"):
            with self.subTest(code):
                self.goes_on(code)

    # P-201: the end of a cell is told, whatever it has taken away; so is that of the next ones
    def test_nothing_left(self):
        _, c = self.attached()
        self.assertEqual(c.run("c1", "os.fstat = None")["error"]["type"], "KernelError")
        self.assertEqual(c.run("c2", "1")["status"], "error")
        self.assertEqual([v["frame"]["live"] for v in c.seen if v.get("frame", {}).get("type") == "cells"][-1], 0)

    # P-201: one that takes up all descriptors can still be attached
    def test_no_descriptors(self):
        k, c = self.attached()
        done = c.run("c1", "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\nfull = []\n"
                           "try:\n    while True: full.append(open('/dev/null'))\nexcept OSError as e: e.errno")
        self.assertEqual(done["status"], "ok")
        for i in range(3):
            c.close()
            c = k.attach(ack=c.last)
            self.assertEqual(c.run(f"again {i}", "len(full) > 10")["value"], "True")

    # P-201: without its socket, or its loop, it ends and says so
    def test_closed_descriptors(self):
        for code in ("os.closerange(3, 256)", "os.close(asyncio.get_running_loop()._selector.fileno())"):
            with self.subTest(code):
                k, c = self.attached()
                c.execute("c1", code)
                with self.assertRaises(Closed):
                    while True:
                        c.recv()
                self.assertEqual(k.wait(), 1)
                self.assertIn("descriptors of the kernel are closed", k.log())
