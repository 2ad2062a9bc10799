"""The interrupt ladder, steps 1 to 3, and deadlines."""
import os
import signal

from tests.client import KernelCase

AWAITING = {
    "sleep": "await asyncio.sleep(3600)",
    "gather": "await asyncio.gather(asyncio.sleep(3600), asyncio.sleep(3600))",
    "event": "await asyncio.Event().wait()",
    "thread": "import threading; e = threading.Event()\ntry: await asyncio.to_thread(e.wait)\nfinally: e.set()",
    "group": "async with asyncio.TaskGroup() as g: g.create_task(asyncio.sleep(3600))",
}
COMPUTING = {
    "loop": "while True: pass",
    "sleep": "import time\nwhile True: time.sleep(0.9)",
    "lock": "import threading; l = threading.Lock(); l.acquire(); l.acquire()",
    "pipe": "import os; os.read(os.pipe()[0], 1)",
    "printing": "while True: print('x')",
    "child task": "import asyncio\nasync def spin():\n    while True: pass\nawait asyncio.create_task(spin())",
    "library": "import json\nwhile True: json.dumps(list(range(100)), indent=1)",
    "repr": "class R:\n    def __repr__(self):\n        while True: pass\nR()",
    "join": "import threading; t = threading.Thread(target=threading.Event().wait, daemon=True); t.start(); t.join()",
}
SILENT = {  # other threads cannot run meanwhile: the interrupt frame is not even read
    "regex": "import re; re.match(r'(a+)+$', 'a' * 60 + 'b')",
    "big int": "pow(7, 2_000_000_000)",
}


class Interrupt(KernelCase):
    def start(self, c, cell, code):
        """Execute; returns when the code runs."""
        c.execute(cell, f"print('begun {cell}', flush=True)\n" + code)
        c.printed(cell, f"begun {cell}")

    # P-202 (1)
    def test_awaiting(self):
        _, c = self.attached()
        c.run("c", "import asyncio; kept = 1")
        for name, code in AWAITING.items():
            with self.subTest(name):
                self.start(c, name, code)
                c.frame("interrupt", cell=name)
                done = c.done(name)
                self.assertEqual(done["status"], "interrupted")
                self.assertNotIn("soma_", done["error"]["traceback"])
        self.assertEqual(c.run("d", "kept")["value"], "1")

    # P-202 (2)
    def test_computing(self):
        _, c = self.attached()
        c.run("c", "kept = 1")
        for name, code in COMPUTING.items():
            with self.subTest(name):
                self.start(c, name, code)
                c.frame("interrupt", cell=name)
                done = c.done(name)
                self.assertEqual(done["status"], "interrupted", done)
                self.assertIn("KeyboardInterrupt", done["error"]["traceback"])
                self.assertNotIn("soma_", done["error"]["traceback"])
        self.assertEqual(c.run("d", "kept")["value"], "1")

    # P-202 (3): the cell's id in run/interrupt and SIGINT to the pid
    def test_silent(self):
        k, c = self.attached()
        c.run("c", "kept = 1")
        for name, code in SILENT.items():
            with self.subTest(name):
                cell = name.replace(" ", "-")
                self.start(c, cell, code)
                self.name_from_outside(k, cell)
                os.kill(k.process.pid, signal.SIGINT)
                self.assertEqual(c.done(cell)["status"], "interrupted")
                self.assertFalse(os.path.exists(k.dir + "/interrupt"))
        self.assertEqual(c.run("d", "kept")["value"], "1")

    def name_from_outside(self, k, cell):
        with open(k.dir + "/interrupt.new", "w") as f:
            f.write(cell)
        os.rename(k.dir + "/interrupt.new", k.dir + "/interrupt")

    # P-202 (3): a cell that has swallowed an interrupt gets one more only where the file says so
    def test_again(self):
        k, c = self.attached()
        code = ("def spin():\n  import os\n  while not os.path.exists('go'): pass\n"
                "n = 0\nfor _ in range(2):\n  try: spin()\n  except KeyboardInterrupt: n += 1; print('swallowed', n, flush=True)\nspin()\nn")
        self.start(c, "c", code)
        c.frame("interrupt", cell="c")
        c.printed("c", "swallowed 1")
        self.name_from_outside(k, "c")
        os.kill(k.process.pid, signal.SIGINT)
        while os.path.exists(k.dir + "/interrupt"):
            c.ping()
        self.name_from_outside(k, "c again")
        os.kill(k.process.pid, signal.SIGINT)
        c.printed("c", "swallowed 2")
        open(k.workspace + "/go", "w").close()
        self.assertEqual(c.done("c")["value"], "2")

    # P-202 (3): another cell's name is not this cell's
    def test_wrong_name(self):
        k, c = self.attached()
        self.name_from_outside(k, "another")
        self.start(c, "c", f"import os\nwhile os.path.exists({k.dir + '/interrupt'!r}): pass\n'survived'")
        os.kill(k.process.pid, signal.SIGINT)
        self.assertEqual(c.done("c")["value"], "'survived'")

    # P-202: a SIGINT that names nobody is ignored, busy or idle
    def test_stray_signal(self):
        k, c = self.attached()
        os.kill(k.process.pid, signal.SIGINT)
        self.start(c, "c", "import os\nwhile not os.path.exists('go'): pass\n'survived'")
        for _ in range(20):
            os.kill(k.process.pid, signal.SIGINT)
        open(k.workspace + "/go", "w").close()
        self.assertEqual(c.done("c")["value"], "'survived'")

    # P-202 (2): the interrupt of one cell never ends the code of another
    def test_generation(self):
        _, c = self.attached()
        c.run("c", "import asyncio, os; go = asyncio.Event()")
        c.execute("waiting", "await go.wait()")
        self.start(c, "busy", "while not os.path.exists('stop'): pass\n'mine'")
        c.frame("interrupt", cell="waiting")
        c.ping()
        c.execute("next", "1")
        c.ping()
        open(self.workspace_of(c) + "/stop", "w").close()
        self.assertEqual(c.done("waiting")["status"], "interrupted")
        done = [v["frame"] for v in c.seen if v.get("frame", {}).get("cell") == "busy"] or [c.done("busy")]
        self.assertEqual(done[0]["value"], "'mine'")
        self.assertEqual(c.done("next")["value"], "1")

    def workspace_of(self, c):
        return c.kernel.workspace

    # P-024: a queued cell is cancelled when its turn comes; it does not run
    def test_queued(self):
        k, c = self.attached()
        self.start(c, "busy", "import os\nwhile not os.path.exists('go'): pass")
        c.execute("queued", "open('never', 'w')")
        c.frame("interrupt", cell="queued")
        c.acked(k.sent)
        open(k.workspace + "/go", "w").close()
        done = c.done("queued")
        self.assertEqual((done["status"], done["error"]["message"]), ("interrupted", "cancelled before it started"))
        self.assertFalse(os.path.exists(k.workspace + "/never"))

    # P-024: unknown and finished cells: dropped
    def test_unknown(self):
        k, c = self.attached()
        c.run("c", "1")
        c.frame("interrupt", cell="c")
        c.frame("interrupt", cell="never seen")
        c.acked(k.sent)
        self.assertEqual(c.run("d", "1+1")["value"], "2")

    # P-202: a cell that catches the interrupt has the status of its own end, and can be interrupted again
    def test_caught(self):
        _, c = self.attached()
        wait = "import time\ntry:\n    print('begun', flush=True)\n    while True: time.sleep(0.9)\nexcept KeyboardInterrupt: "
        c.execute("c", wait + "r = 'caught'\nr")
        c.printed("c", "begun")
        c.frame("interrupt", cell="c")
        done = c.done("c")
        self.assertEqual((done["status"], done["value"]), ("ok", "'caught'"))
        c.execute("d", wait + "print('once', flush=True)\nwhile True: pass")
        c.printed("d", "begun")
        c.frame("interrupt", cell="d")
        c.printed("d", "once")
        c.frame("interrupt", cell="d")
        self.assertEqual(c.done("d")["status"], "interrupted")

    # P-202: an interrupt that is swallowed where nothing can be raised comes again: in __del__, in C code that frees
    # something, in a callback of the loop, in a task that nobody awaits
    def test_swallowed(self):
        k, c = self.attached()
        with open(k.workspace + "/lib.py", "w") as f:
            f.write("import socket, os\nclass Noisy(socket.socket):\n    def __repr__(self):\n        print('in it', flush=True)\n"
                    "        while not os.path.exists('gone'): pass\n        return ''\n")
        spin = "print('in it', flush=True)\n        while True: pass\n"
        for i, code in enumerate((
                f"class D:\n    def __del__(self):\n        {spin}D()\nwhile True: pass",
                "import warnings, lib; warnings.simplefilter('always')\nlib.Noisy()\nwhile True: pass",
                f"def back():\n    if True:\n        {spin}asyncio.get_running_loop().call_soon(back)\nawait asyncio.sleep(3600)",
                f"async def back():\n    if True:\n        {spin}t = asyncio.create_task(back())\nawait asyncio.sleep(3600)")):
            with self.subTest(code):
                c.execute(f"c{i}", code)
                c.printed(f"c{i}", "in it")
                c.frame("interrupt", cell=f"c{i}")
                done = c.done(f"c{i}")
                self.assertEqual(done["status"], "interrupted", done)
                self.assertLess(done["duration_ms"], 3000)

    # P-202, P-209: the tasks that a cell has left behind are not hit by its interrupt's echo
    def test_background_tasks_are_spared(self):
        _, c = self.attached()
        c.run("c", "import asyncio\ngo = asyncio.Event()\nasync def work():\n    await go.wait()\n    return 'worked'")
        self.start(c, "d", "t = asyncio.create_task(work())\nawait asyncio.sleep(3600)")
        c.frame("interrupt", cell="d")
        c.done("d")
        self.assertEqual(c.run("e", "go.set(); await t")["value"], "'worked'")

    # P-202: interrupts at every moment of short cells: each cell has one outcome and the kernel goes on
    def test_storm(self):
        k, c = self.attached()
        c.run("c", "import asyncio")
        for i in range(150):
            code = ("sum(range(20000)); print('x' * 10)", "await asyncio.sleep(0.001)", "1")[i % 3]
            c.execute(f"c{i}", code)
            c.frame("interrupt", cell=f"c{i}")
            self.assertIn(c.done(f"c{i}")["status"], ("ok", "interrupted"))
        self.assertEqual(c.run("end", "1+1")["value"], "2")


class Deadline(KernelCase):
    # P-127: both kinds of cell, from the kernel's own clock
    def test_timed_out(self):
        _, c = self.attached()
        for name, code in (("awaiting", "import asyncio; await asyncio.sleep(3600)"), ("computing", "while True: pass")):
            done = c.run(name, code, 200)
            self.assertEqual(done["status"], "timed_out")
            self.assertGreaterEqual(done["duration_ms"], 200)
            self.assertLess(done["duration_ms"], 5000)

    # P-127: also without a daemon
    def test_while_detached(self):
        k, c = self.attached()
        c.execute("c", "while True: pass", 300)
        c.acked(k.sent)
        c.close()
        self.assertEqual(k.attach().done("c")["status"], "timed_out")

    # P-127: time in the queue does not count
    def test_counts_from_the_start(self):
        _, c = self.attached()
        c.execute("a", "import time; time.sleep(0.4)")
        c.execute("b", "time.sleep(0.01); 'ran'", 300)
        self.assertEqual(c.done("b")["value"], "'ran'")

    # P-127: once; a cell that catches it goes on
    def test_caught(self):
        _, c = self.attached()
        done = c.run("c", "import time\nhits = 0\ntry:\n    while True: time.sleep(0.9)\nexcept KeyboardInterrupt: hits += 1\n"
                          "time.sleep(0.5)\nhits", 100)
        self.assertEqual((done["status"], done["value"]), ("ok", "1"))
