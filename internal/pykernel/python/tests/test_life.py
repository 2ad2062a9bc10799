"""When a kernel ends by itself, and that it costs nothing until then."""
import os
import shutil
import signal
import subprocess
import time

from tests.client import Closed, KernelCase


class Ends(KernelCase):
    # P-108: 60 s without a first attach
    def test_never_attached(self):
        k = self.kernel(scale=200).listening()
        self.assertEqual(k.wait(), 0)
        self.assertTrue(k.lock_is_free())

    # P-108: the grace of the newest attach, counted from the loss of the link
    def test_grace(self):
        k, c = self.attached(scale=100)
        c.close()
        c = k.attach(grace=60)
        at = time.monotonic()
        c.close()
        self.assertEqual(k.wait(), 0)
        self.assertGreaterEqual(time.monotonic() - at, 0.6)

    # P-108: a live cell holds it; a background task does not
    def test_live_cell_holds(self):
        k, c = self.attached(scale=100)
        c.close()
        c = k.attach(grace=20)
        c.execute("c", "import asyncio\nt = asyncio.create_task(asyncio.sleep(3600))\nawait asyncio.sleep(1)\nopen('ended', 'w')")
        c.acked(k.sent)
        c.close()
        self.assertEqual(k.wait(), 0)
        self.assertTrue(os.path.exists(k.workspace + "/ended"))

    # P-108: attached, it stays, whatever the grace
    def test_attached_stays(self):
        k, c = self.attached(scale=1000)
        k.attach(grace=1)
        with self.assertRaises(subprocess.TimeoutExpired):
            k.process.wait(1.5)

    # P-108: within a second of the loss of its directory, attached or not, busy or idle
    def test_directory_gone(self):
        idle, (busy, c) = self.attached()[0], self.attached()
        c.execute("c", "while True: pass")
        c.acked(busy.sent)
        at = time.monotonic()
        for k in (idle, busy):
            shutil.rmtree(k.dir)
        for k in (idle, busy):
            self.assertEqual(k.wait(), 0)
        self.assertLess(time.monotonic() - at, 2.5)

    # P-108: renamed away and replaced is gone too
    def test_directory_replaced(self):
        k, _ = self.attached()
        os.rename(k.dir, k.dir + ".old")
        os.mkdir(k.dir)
        self.assertEqual(k.wait(), 0)

    # P-108
    def test_atexit_runs(self):
        k, c = self.attached()
        c.run("c", "import atexit; atexit.register(lambda: open('left', 'w').close())")
        c.frame("shutdown")
        self.assertEqual(k.wait(), 0)
        self.assertTrue(os.path.exists(k.workspace + "/left"))


class Shutdown(KernelCase):
    # P-011: acknowledged, live cells told as interrupted, exit 0
    def test_shutdown(self):
        k, c = self.attached()
        c.run("c", "import asyncio")
        c.execute("waiting", "await asyncio.sleep(3600)")
        c.execute("busy", "print('busy', flush=True)\nwhile True: pass")
        c.printed("busy", "busy")
        c.execute("queued", "open('never', 'w')")
        c.frame("shutdown")
        ends = {}
        acked = 0
        try:
            while True:
                value = c.recv()
                acked = max(acked, value.get("ack", 0))
                if value.get("frame", {}).get("type") == "done":
                    ends[value["frame"]["cell"]] = value["frame"]["status"]
        except Closed:
            pass
        self.assertEqual(ends, {"waiting": "interrupted", "busy": "interrupted", "queued": "interrupted"})
        self.assertEqual(acked, k.sent)
        self.assertEqual(k.wait(), 0)
        self.assertFalse(os.path.exists(k.workspace + "/never"))

    # P-011: in any case within two seconds
    def test_stubborn(self):
        (busy, c), (waits, d) = self.attached(), self.attached()
        c.execute("c", "print('busy', flush=True)\nwhile True:\n    try: time.sleep(0.9)\n    except BaseException: pass")
        c.printed("c", "busy")
        d.run("d", "import atexit, threading; atexit.register(threading.Event().wait)")
        at = time.monotonic()
        c.frame("shutdown")
        d.frame("shutdown")
        for k in (busy, waits):
            self.assertEqual(k.wait(), 0)
        self.assertLess(time.monotonic() - at, 4)

    # P-012: it refuses to be attached while it ends
    def test_closing(self):
        k, c = self.attached()
        c.execute("c", "print('busy', flush=True)\nimport time\nwhile True:\n    try: time.sleep(0.9)\n    except BaseException: pass")
        c.printed("c", "busy")
        c.frame("shutdown")
        c.acked(k.sent)
        self.assertEqual(k.connect().attach(), {"refused": "closing"})


class Idle(KernelCase):
    def used(self, k):
        """(how often its threads have begun to wait, their time on a processor in ms)."""
        waits = time_used = 0
        for thread in os.listdir(f"/proc/{k.process.pid}/task"):
            with open(f"/proc/{k.process.pid}/task/{thread}/status") as f:
                waits += int(f.read().partition("\nvoluntary_ctxt_switches:")[2].split()[0])
            with open(f"/proc/{k.process.pid}/task/{thread}/schedstat") as f:
                time_used += int(f.read().split()[0]) / 1e6
        return waits, time_used

    # P-201: an attached idle kernel looks around once a second, which takes no measurable time
    def test_attached_and_idle(self):
        k, c = self.attached()
        c.run("c", "print(1); 1+1")
        c.frame_of("cells", eligible=True)  # what the cell left to do is not idleness
        before = self.used(k)
        with self.assertRaises(subprocess.TimeoutExpired):
            k.process.wait(1.5)
        waits, time_used = (now - then for now, then in zip(self.used(k), before))
        self.assertLessEqual(waits, 6)
        self.assertLess(time_used, 10)

    # P-201: two threads when idle; the watch thread lives only while a cell runs
    def test_threads(self):
        k, c = self.attached()
        c.run("short", "1")
        while len(os.listdir(f"/proc/{k.process.pid}/task")) > 2:
            c.ping()
        done = c.run("long", "while len(os.listdir('/proc/self/task')) < 3: pass\nimport threading; [t.name for t in threading.enumerate()]")
        self.assertEqual(eval(done["value"]), ["MainThread", "soma reader"])  # nobody asks the watch thread for its name
        while len(os.listdir(f"/proc/{k.process.pid}/task")) > 2:
            c.ping()

    # P-001: signals of a terminal do not concern it
    def test_group_signal_of_the_starter(self):
        k, c = self.attached()
        self.assertNotEqual(os.getpgid(k.process.pid), os.getpgid(0))
        os.kill(k.process.pid, signal.SIGINT)
        self.assertEqual(c.run("c", "1+1")["value"], "2")
