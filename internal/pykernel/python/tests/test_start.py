"""What a start costs: modules imported, and time."""
import os
import re
import statistics
import subprocess
import sys
import time

from tests.client import BUNDLE, KernelCase

LATER = {"soma_complete"}  # loaded where they are needed first
GOLDEN = os.path.join(os.path.dirname(__file__), "imports.txt")
LINE = re.compile(rb"^import time:\s+\d+ \|\s+\d+ \| +(\S+)$", re.M)


class Imports(KernelCase):
    def imported(self):
        """Names of all modules that a kernel imports up to its first result."""
        k, c = self.attached(options=("-X", "importtime"))
        c.run("c", "1+1")
        names = set()
        for path in (k.stderr.name, k.dir + "/kernel.log", k.dir + "/native"):
            with open(path, "rb") as f:
                names |= {n.decode() for n in LINE.findall(f.read())}
        return names

    # P-119, P-201, P-212: start-up imports stay lazy; imports.txt lists what is allowed, each line costs every start
    def test_golden(self):
        with open(GOLDEN, encoding="utf-8") as f:
            allowed = set(f.read().split())
        names = self.imported()
        site = subprocess.run([sys.executable, "-I", "-X", "importtime", "-c", "pass"], capture_output=True, check=True)
        allowed |= {n.decode() for n in LINE.findall(site.stderr)}  # what this machine's .pth files load
        own = {n[:-3] for n in os.listdir(BUNDLE) if n.endswith(".py")} - {"soma_kernel", "soma_executor"} - LATER
        self.assertLessEqual(own, names)  # the list is really read
        self.assertFalse(LATER & names)
        if sys.version_info[:2] == (3, 11):
            self.assertEqual(sorted(names - own - allowed), [])
        for heavy in ("ctypes", "_hashlib", "hashlib", "tempfile", "multiprocessing", "random", "uuid", "email",
                      "importlib.metadata", "unittest", "argparse", "pathlib", "dataclasses", "shutil", "ast"):
            if heavy not in allowed:
                self.assertNotIn(heavy, names)


class Speed(KernelCase):
    # P-212's goal is 60 ms on a quiet machine; this bound only catches a start that has become another thing
    def test_cold_start(self):
        times = []
        for _ in range(7):
            at = time.perf_counter()
            k = self.kernel().listening()
            self.assertEqual(k.attach().run("c", "1+1")["value"], "2")
            times.append(time.perf_counter() - at)
            k.end()
        self.assertLess(min(times), 0.5, times)

    # P-212: a cell costs little more than its frames
    def test_round_trip(self):
        _, c = self.attached()
        times = []
        for i in range(300):
            at = time.perf_counter()
            c.run(f"c{i}", "1+1")
            times.append(time.perf_counter() - at)
        self.assertLess(statistics.median(times), 0.02)


