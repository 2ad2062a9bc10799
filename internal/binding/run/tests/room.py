"""A kernel with this room's bindings, for its tests."""
import ast
import glob
import os
import textwrap

from tests.client import KernelCase

ROOM = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROBE = """
def setup(api):
    api.provide("api", api)
"""
# What the cells of these tests use: the state letter of a process ("" when it is gone), waiting for a condition.
PRELUDE = """
import asyncio, os, signal, time
def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""
async def until(condition):
    for _ in range(1000):
        if condition():
            return True
        await asyncio.sleep(0.01)
    return False
"""


class RoomCase(KernelCase):
    def setUp(self):
        folder = self.bundle(*glob.glob(ROOM + "/soma_*.py"))
        with open(folder + "/soma_probe.py", "w", encoding="utf-8") as f:
            f.write(PROBE)
        self.k, self.c = self.attached(bundle=folder, modules=("soma_run", "soma_probe"), env={"SOMA_KERNEL": "k7"})
        self.addCleanup(self.end_jobs)
        self.count = 0
        self.ok(PRELUDE)

    def end_jobs(self):
        """Let the kernel end what a test has left running; a kernel that is killed would leave it."""
        if self.k.process.poll() is None:
            self.k.attach().frame("shutdown")
            self.k.wait()

    def cell(self, code, timeout_ms=60_000):
        """Run a cell, without the indentation of its lines; its done frame."""
        self.count += 1
        return self.c.run(f"c{self.count}", textwrap.dedent(code), timeout_ms)

    def ok(self, code):
        """Run a cell that has to succeed; its value, as an object where it is a literal."""
        done = self.cell(code)
        self.assertEqual(done["status"], "ok", done.get("error", {}).get("traceback"))
        try:
            return ast.literal_eval(done.get("value", "None"))
        except (ValueError, SyntaxError):
            return done["value"]

    def fails(self, code, kind, *words):
        """Run a cell that has to raise that, with those words in its message."""
        done = self.cell(code)
        self.assertEqual(done["status"], "error", done)
        self.assertEqual(done["error"]["type"], kind, done["error"])
        for word in words:
            self.assertIn(word, done["error"]["message"])

    def frames(self, kind):
        """All frames of a type that have come so far."""
        return [v["frame"] for v in self.c.seen if v.get("frame", {}).get("type") == kind]

    def end_of(self, job):
        """The frame that tells a job's end, which has come or is on its way."""
        for frame in self.frames("job"):
            if frame["job"] == job:
                return frame
        return self.c.frame_of("job", job=job)

    def ask(self, kind, **fields):
        """Send a question; its answer."""
        self.count += 1
        name = f"q{self.count}"
        self.c.frame(kind, id=name, **fields)
        return self.c.frame_of(kind, id=name)
