"""`files` in a real kernel: its traces as frames, its errors as a person reads them."""
import glob
import os
import signal

from tests.client import KernelCase

ROOM = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Case(KernelCase):
    def setUp(self):
        self.k, self.c = self.attached(bundle=self.bundle(*glob.glob(ROOM + "/soma_*.py")), modules=("soma_files",))

    def traces(self, cell):
        return [v["frame"]["changes"] for v in self.c.seen if v.get("frame", {}).get("type") == "trace" and v["frame"]["cell"] == cell]

    # P-066: two cells at once; each has the changes that its own code has made
    def test_cells_at_once(self):
        self.c.execute("a", "e = asyncio.Event()\nfiles.write('a', '1\\n')\nawait e.wait()\nfiles.write('a2', '2\\n')")
        self.c.run("b", "files.write('b', '3\\n')")
        self.c.run("c", "e.set()")
        self.c.done("a")
        self.assertEqual([[c["path"] for c in self.traces(x)[0]] for x in "ab"], [["a", "a2"], ["b"]])
        self.assertEqual((len(self.traces("a")), len(self.traces("b")), self.traces("c")), (1, 1, []))

    # P-066: what a thread or a lasting task of a cell writes is the cell's
    def test_threads_and_tasks(self):
        self.c.run("a", "await asyncio.to_thread(files.write, 'thread', 'x\\n')")
        self.assertEqual(self.traces("a")[0][0]["path"], "thread")
        self.c.run("b", "e = asyncio.Event()\nasync def later():\n    await e.wait()\n    files.write('later', 'y\\n')\nt = asyncio.create_task(later())")
        self.assertEqual(self.traces("b"), [])
        self.c.run("c", "e.set()\nawait t")
        self.assertEqual([c["path"] for c in self.traces("b")[-1]], ["later"])
        self.assertEqual(self.traces("c"), [])

    # P-066: a cell that fails or is interrupted has changed what it has changed
    def test_failed_cells(self):
        self.assertEqual(self.c.run("a", "files.write('x', '1\\n')\n1/0")["status"], "error")
        self.assertEqual(self.traces("a")[0][0]["path"], "x")

    # P-202: a long search ends at once when its cell is interrupted, and a file that is written is whole
    def test_interrupts(self):
        self.c.run("a", "files.write('long', 'x' * 2_000_000 + '\\n')\nfiles.write('w', 'old' * 1_000_000)")
        self.c.execute("s", "print('go', flush=True)\nfiles.grep('(x+x+)+y', 'long')")
        self.c.printed("s", "go")
        self.c.frame("interrupt", cell="s")
        with open(self.k.dir + "/interrupt", "w", encoding="utf-8") as f:
            f.write("s")
        os.kill(self.k.process.pid, signal.SIGINT)
        done = self.c.done("s")
        self.assertEqual(done["status"], "interrupted", done)
        self.assertNotIn("soma_", done["error"]["traceback"])
        for n in range(5):
            self.c.execute(f"w{n}", "print('go', flush=True)\nwhile True:\n    files.write('w', 'new' * 1_000_000)")
            self.c.printed(f"w{n}", "go")
            self.c.frame("interrupt", cell=f"w{n}")
            self.assertEqual(self.c.done(f"w{n}")["status"], "interrupted")
            with open(self.k.workspace + "/w", encoding="utf-8") as f:
                self.assertIn(f.read(), ("old" * 1_000_000, "new" * 1_000_000))
        self.assertEqual(sorted(os.listdir(self.k.workspace)), ["long", "w"])

    # P-066: a diff of a file, all of a cell, and the files that are named are bounded; what is left out is said
    def test_a_frame_is_bounded(self):
        done = self.c.run("a", "for i in range(300): files.write(f'f{i}', 'é' * 40_000)")
        self.assertEqual(done["status"], "ok")
        changes = self.traces("a")[0]
        self.assertEqual((len(changes), changes[-1]["path"]), (201, "(100 more files)"))
        self.assertLess(sum(len(c["diff"].encode()) for c in changes), 300_000)

    # P-034: an error of files reads as one of the person's line
    def test_errors(self):
        done = self.c.run("a", "x = 1\nfiles.read('none.txt')")
        self.assertEqual(done["error"]["type"], "FileNotFoundError")
        self.assertIn("there is no such file", done["error"]["message"])
        self.assertIn('File "<cell>", line 2', done["error"]["traceback"])
        self.assertNotIn("soma_", done["error"]["traceback"])

    def test_what_is_shown(self):
        self.c.run("a", "files.write('a.py', 'import os\\n')")
        self.assertEqual(self.c.run("b", "files.edit('a.py', 'os', 're')")["value"], "'edited a.py, line 1'")
        self.assertEqual(self.c.run("c", "files.grep('import')")["value"], "a.py\n1: import re")
        self.assertEqual(self.c.run("d", "files.find('*.py')")["value"], "a.py")
        self.assertEqual(self.c.run("e", "files.find('*.py')[0], list(files.grep('import'))")["value"], "('a.py', [('a.py', 1, 'import re')])")
