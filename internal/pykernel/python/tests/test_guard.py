"""What a cell may not do because it would hold up the others."""
import os

from tests.client import KernelCase

PROGRAMS = {
    "Popen": "import subprocess; subprocess.Popen(['touch', 'made'])",
    "run": "import subprocess as s; s.run(['touch', 'made'])",
    "check_output": "from subprocess import check_output; check_output('touch made', shell=True)",
    "system": "os.system('touch made')",
    "popen": "os.popen('touch made')",
    "spawnlp": "os.spawnlp(os.P_WAIT, 'touch', 'touch', 'made')",
    "posix_spawn": "os.posix_spawn('/usr/bin/touch', ['touch', 'made'], os.environ)",
    "posix_spawnp": "os.posix_spawnp('touch', ['touch', 'made'], os.environ)",
    "pty": "import pty; pty.spawn(['touch', 'made'])",
    "execv": "os.execvp('touch', ['touch', 'made'])",
    "async": "await asyncio.create_subprocess_exec('touch', 'made')",
    "async shell": "await asyncio.create_subprocess_shell('touch made')",
    "string": "exec('import subprocess; subprocess.run([\"touch\", \"made\"])')",
    "function": "def f():\n    import subprocess\n    return subprocess.call(['touch', 'made'])\nf()",
    "task": "async def f(): os.system('touch made')\nawait asyncio.create_task(f())",
}


class Programs(KernelCase):
    # P-031: each way to start a program past run(), with the text that says what to do
    def test_refused(self):
        k, c = self.attached()
        for name, code in PROGRAMS.items():
            with self.subTest(name):
                done = c.run(name.replace(" ", "-"), code)
                self.assertEqual((done["status"], done["error"]["type"]), ("error", "soma_guard.Refused"), code)
                self.assertFalse(os.path.exists(k.workspace + "/made"))
        text = done["error"]["message"]
        places = [text.index(part) for part in ("start it with run()", "other useful work", "report to the user",
                                                "`await asyncio.sleep(n)`")]
        self.assertEqual(places, sorted(places))
        self.assertNotIn("soma_guard.py", done["error"]["traceback"])
        self.assertEqual(c.run("still", "1+1")["value"], "2")

    # P-031: libraries and bindings start programs as they must, also under a cell
    def test_libraries(self):
        k, c = self.attached()
        with open(k.workspace + "/library.py", "w") as f:
            f.write("import subprocess\ndef go(): return subprocess.check_output(['echo', 'on'], text=True)\n")
        self.assertEqual(c.run("a", "import library; library.go()")["value"], repr("on\n"))
        self.assertEqual(c.run("b", "import soma_guard, subprocess\nwith soma_guard.spawning():\n"
                                    "    done = subprocess.run(['true'])\ndone.returncode")["value"], "0")
        self.assertEqual(c.run("c", "subprocess.run(['true'])")["error"]["type"], "soma_guard.Refused")

    # P-031: multiprocessing works, by all its ways to start a process
    def test_multiprocessing(self):
        k, c = self.attached()
        for way in ("fork", "spawn", "forkserver"):
            with self.subTest(way):
                done = c.run(way, f"import multiprocessing\nwith multiprocessing.get_context({way!r}).Pool(2) as pool:\n"
                                  "    r = pool.map(abs, [-1, -2])\nr", 60_000)
                self.assertEqual(done.get("value"), "[1, 2]", done)
        done = c.run("pool", "from concurrent.futures import ProcessPoolExecutor\ndef twice(x): return 2 * x\n"
                             "with ProcessPoolExecutor(2, multiprocessing.get_context('fork')) as p: r = list(p.map(twice, [1, 2]))\nr")
        self.assertEqual(done.get("value"), "[2, 4]", done)

    # P-031: a forked child is no kernel: it may do what it likes
    def test_fork(self):
        k, c = self.attached()
        done = c.run("a", "pid = os.fork()\nif pid == 0:\n    try: os.execvp('touch', ['touch', 'made'])\n    finally: os._exit(9)\n"
                          "os.waitpid(pid, 0)[1]")
        self.assertEqual(done["value"], "0")
        self.assertTrue(os.path.exists(k.workspace + "/made"))


class Sleep(KernelCase):
    # P-031: a second or more on the loop's thread is refused at once, less is slept
    def test_sleep(self):
        _, c = self.attached()
        for i, code in enumerate(("time.sleep(1)", "time.sleep(3600)", "from time import sleep; sleep(1.5)",
                                  "import time as t; t.sleep(2)", "def f(): time.sleep(5)\nf()")):
            done = c.run(f"a{i}", code)
            self.assertEqual((done["status"], done["error"]["type"]), ("error", "soma_guard.Refused"), code)
            self.assertLess(done["duration_ms"], 900)
        self.assertIn("`await asyncio.sleep(n)`", done["error"]["message"])
        done = c.run("b", "t = time.monotonic(); time.sleep(0.05); time.monotonic() - t >= 0.05")
        self.assertEqual(done["value"], "True")

    # P-031: threads hold up nobody; time.sleep is itself as far as anyone can see
    def test_elsewhere(self):
        _, c = self.attached()
        self.assertEqual(c.run("a", "await asyncio.to_thread(time.sleep, 1.0)")["status"], "ok")
        self.assertEqual(c.run("b", "time.sleep.__name__, time.sleep.__module__")["value"], "('sleep', 'time')")
        for code, kind in (("time.sleep('x')", "TypeError"), ("time.sleep(-1)", "ValueError"), ("time.sleep()", "TypeError")):
            self.assertEqual(c.run("c" + code, code)["error"]["type"], kind)
