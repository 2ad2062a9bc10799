"""What cells can do with cells, in a real kernel whose daemon is this test."""
import glob
import os
import re

from tests.client import KernelCase

ROOMS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODULES = ("soma_files", "soma_run", "soma_recall")
FAILING = "\n".join(["total = 0", *[f"total += {i}" for i in range(8)], "nothing = missing_name", "total"])


class Case(KernelCase):
    def setUp(self):
        files = [path for room in ("files", "run", "cells") for path in glob.glob(f"{ROOMS}/{room}/soma_*.py")]
        self.k, self.c = self.attached(bundle=self.bundle(*files), modules=MODULES)

    def ok(self, cell, code, **more):
        self.start(cell, code, **more)
        done = self.c.done(cell)
        self.assertEqual(done["status"], "ok", done)
        return done

    def start(self, cell, code, **more):
        self.c.frame("execute", cell=cell, code=code, timeout_ms=60_000, **more)

    def background(self, cell, code):
        """Start a cell and wait until it is in the background."""
        self.start(cell, code, background_ms=1, origin="model")
        return self.c.frame_of("backgrounded", cell=cell)

    def answer(self, method, value):
        """Await a host call and answer it; its arguments."""
        call = self.c.frame_of("call", method=method)
        self.c.frame("reply", call=call["id"], ok=True, value=value)
        return call["args"]

    def frames(self, kind, **fields):
        return [v["frame"] for v in self.c.seen if v.get("frame", {}).get("type") == kind
                and all(v["frame"].get(k) == x for k, x in fields.items())]


class Run(Case):
    # P-035: a failed cell is run again with edits, in the same namespace, without its code being sent
    def test_edits(self):
        self.start("f1", FAILING, origin="model")
        done = self.c.done("f1")
        self.assertIn("cells.run('f1'", done["repair"])
        done = self.ok("r1", "await cells.run('f1', ('missing_name', 'total + 1'))")
        self.assertEqual(done["value"], "28")
        self.assertEqual(self.ok("r2", "total, nothing")["value"], "(28, 29)")

    # P-035: code that fails again can be edited further, by the cell that ran it
    def test_edits_of_edits(self):
        self.start("f1", FAILING)
        self.c.done("f1")
        self.start("r1", "await cells.run('f1', ('missing_name', 'other_name'))")
        done = self.c.done("r1")
        self.assertEqual(done["error"]["type"], "NameError")
        self.assertIn("other_name", done["error"]["message"])
        self.assertIn("cells.run('r1', ...) edits it further", done["error"]["traceback"])
        self.assertNotIn("soma_recall", done["error"]["traceback"])
        self.assertEqual(self.ok("r2", "await cells.run('r1', ('other_name', '5'), ('+= 7', '+= 70'))")["value"], "91")

    def test_refusals(self):
        self.ok("a", "x = 1\ny = 1\n")
        for args, text in (("('x = 2', 'x = 3')", "old text of edit 1 is not in the code, it must be there once; nearest to it is line 1: x = 1"),
                           ("('= 1', '= 2')", "edit 1 is 2 times in the code"), ("('x', 'z'), ('', 'y')", "edit 2 is empty"),
                           ("'x'", "edit 1 is no pair (old, new) of texts")):
            self.start("r" + text, f"await cells.run('a', {args})")
            self.assertIn(text, self.c.done("r" + text)["error"]["message"])
        self.start("self", "await cells.run('self')")
        self.assertIn("cannot run itself", self.c.done("self")["error"]["message"])
        self.start("lock", "await cells.run('a', ('x = 1', 'files = 1'))")
        self.assertEqual(self.c.done("lock")["error"]["type"], "SyntaxError")

    # P-035: the code of an older cell comes from its committed row
    def test_older_cells(self):
        self.start("r", "await cells.run('long-ago', ('1', '41'))")
        self.assertEqual(self.answer("cells.info", {"id": "long-ago", "state": "finished", "source": "1 + 1"[:1] + " + 0"}), {"cell": "long-ago"})
        self.assertEqual(self.c.done("r")["value"], "41")


class Look(Case):
    def test_info_and_list(self):
        self.ok("a", "print('x')")
        self.start("b", "1/0")
        self.c.done("b")
        done = self.ok("i", "facts = await cells.info('b')\nprint(facts)\nfacts['state'], facts['status'], facts['source']")
        self.assertEqual(done["value"], "('finished', 'error', '1/0')")
        self.assertRegex(done["output"]["head"], r"^cell b: error, ran \d\.\ds, ZeroDivisionError: division by zero\n1/0\n$")
        self.start("l", "print(await cells.list())")
        self.answer("cells.list", [{"id": "b", "state": "finished", "source": "1/0"}, {"id": "old", "state": "finished", "status": "ok",
                                                                                       "started_at": 1, "duration_ms": 1500, "source": "6 * 7"}])
        lines = self.c.done("l")["output"]["head"].splitlines()
        self.assertEqual([line.partition(",")[0] for line in lines],
                         ["cell l: running", "cell i: ok", "cell b: error", "cell a: ok", "cell old: ok"])
        self.assertEqual(lines[-1], "cell old: ok, ran 1.5s | 6 * 7")

    def test_output(self):
        self.ok("a", "print('é' * 40000)\nprint('end')")
        self.start("whole", "await cells.read('a')")
        self.assertIn("cells.read('a', 0)", self.c.done("whole")["error"]["message"])
        done = self.ok("p", "p = await cells.read('a', 0)\nq = await cells.read('a', p.next_offset)\nlen(p + q), q.next_offset, q.size, q[-4:], q.running")
        self.assertEqual(done["value"], "(40005, None, 80005, 'end\\n', False)")
        self.assertEqual(self.ok("all", "parts, at = [], 0\nwhile at is not None:\n    p = await cells.read('a', at, 1000)\n    parts.append(p); at = p.next_offset\n"
                                        "''.join(parts) == 'é' * 40000 + '\\nend\\n'")["value"], "True")
        self.assertEqual(self.ok("e", "str(await cells.read('a', -4))")["value"], "'end\\n'")
        self.assertEqual(self.ok("f", "len(await cells.read('a', -70001, 4)), (await cells.read('p', -70000)).offset")["value"], "(2, 0)")
        self.assertEqual(self.ok("n", "(await cells.read('e')), type(await cells.read('e')).__name__")["value"], "('', 'Page')")

    def test_output_of_older_cells(self):
        self.start("o", "t = await cells.read('old')\nt, t.next_offset")
        self.answer("cells.info", {"id": "old", "state": "finished", "size": 3})
        args = self.answer("cells.read", {"offset": 0, "next_offset": 3, "size": 3, "running": False, "text": "abc"})
        self.assertEqual(args, {"cell": "old", "offset": 0, "limit": 65536})
        self.assertEqual(self.c.done("o")["value"], "('abc', None)")
        self.start("o2", "await cells.read('old', 1, 4)")
        args = self.answer("cells.read", {"offset": 1, "next_offset": 3, "size": 3, "running": False, "text": "bc"})
        self.assertEqual(args, {"cell": "old", "offset": 1, "limit": 4})
        self.assertEqual(self.c.done("o2")["value"], "'bc'")

    # P-066: what a cell has changed, in the trace frame and for other cells
    def test_trace(self):
        self.ok("w", "files.write('a.txt', 'one\\n')")
        trace = self.frames("trace", cell="w")
        self.assertEqual([c["path"] for c in trace[0]["changes"]], ["a.txt"])
        self.assertLess(*[next(i for i, v in enumerate(self.c.seen) if v.get("frame", {}).get("type") == kind
                               and v["frame"]["cell"] == "w") for kind in ("trace", "done")])
        done = self.ok("t", "print(await cells.trace('w'))")
        self.assertEqual(done["output"]["head"], "created a.txt\n--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+one\n")
        self.start("t2", "await cells.trace('w2')")
        self.assertEqual(self.answer("cells.trace", [{"path": "b", "kind": "changed", "diff": "", "truncated": True}]), {"cell": "w2"})
        self.assertEqual(self.c.done("t2")["value"], "changed b (diff cut)")

    # P-039: what a background cell changes is told when it ends
    def test_trace_of_a_background_cell(self):
        self.background("b", "event = asyncio.Event()\nfiles.write('b.txt', 'x\\n')\nawait event.wait()\nfiles.write('c.txt', 'y\\n')")
        self.assertEqual(self.frames("trace"), [])
        self.assertEqual(self.ok("t", "[c['path'] for c in await cells.trace('b')]")["value"], "['b.txt']")
        self.assertEqual(self.frames("trace"), [])
        self.ok("go", "event.set()")
        self.c.done("b")
        self.assertEqual([c["path"] for c in self.frames("trace", cell="b")[-1]["changes"]], ["b.txt", "c.txt"])


class Wakes(Case):
    # P-044: reading output, source, status or changes of what has ended retires its wake, once
    def test_reading_what_has_ended(self):
        for n, call in enumerate(("info", "read", "trace")):
            cell = f"b{n}"
            self.background(cell, "await asyncio.sleep(0.1)\n'done'")
            self.c.done(cell)
            self.start(f"r{n}", f"await cells.{call}('{cell}')\nawait cells.{call}('{cell}')")
            if call == "trace":
                self.answer("cells.trace", [])
                self.answer("cells.trace", [])
            self.assertEqual(self.c.done(f"r{n}")["status"], "ok")
            self.assertEqual([f["cells"] for f in self.frames("seen")][n:], [[cell]])

    # P-044: what was waited for needs no retiring, nor does what a row says to run still
    def test_reading_what_was_waited_for(self):
        self.ok("a", "print(1)")
        self.ok("r", "await cells.info('a'), await cells.read('a')")
        self.start("o", "await cells.info('old')")
        self.answer("cells.info", {"id": "old", "state": "running", "source": "", "duration_ms": 5})
        self.c.done("o")
        self.ok("last", "1")
        self.assertEqual(self.frames("seen"), [])

    # P-044: the value of a background cell is at the end of its output
    def test_value_of_a_background_cell(self):
        self.background("b", "print('out')\nawait asyncio.sleep(0.1)\n6 * 7")
        self.c.done("b")
        self.assertEqual(self.ok("r", "await cells.read('b')")["value"], repr("out\n\n[result]\n42\n"))

    # P-044: a look at a part, while the cell runs, leaves its wake
    def test_reading_what_runs(self):
        self.background("b", "event = asyncio.Event()\nprint('part', flush=True)\nawait event.wait()")
        self.assertEqual(self.ok("r", "t = await cells.read('b')\nt, t.running")["value"], "('part\\n', True)")
        self.ok("i", "await cells.info('b'), await cells.trace('b')")
        self.ok("go", "event.set()")
        self.assertNotIn("wake", self.c.done("b"))
        self.assertEqual(self.frames("seen"), [])

    # P-043: cancelling ends a cell, suppresses its wake and names the jobs that it leaves running, not its services
    def test_cancel(self):
        self.background("b", "job = run('sleep 600')\nserver = run('sleep 601', service=True)\nawait asyncio.sleep(600)")
        self.start("c", "await cells.cancel('b')")
        done = self.c.done("b")
        self.assertEqual((done["status"], done["wake"], done["background"]), ("interrupted", False, True))
        out = self.c.done("c")["output"]["head"]
        self.assertRegex(out, r"^cell b is cancelled\njobs of it that run on: j\d+ \(sleep 600\)\n$")
        done = self.ok("again", "await cells.cancel('b')")
        self.assertEqual(done["output"]["head"], "cell b has ended before: interrupted\n")
        self.ok("end", "await job.stop()\nawait server.stop()")

    def test_cancel_of_what_resists(self):
        self.background("b", "stop = asyncio.Event()\nwhile not stop.is_set():\n    try:\n        await asyncio.sleep(600)\n"
                             "    except asyncio.CancelledError:\n        await stop.wait()")
        self.ok("short", "import sys\nsys.modules['soma_recall']._CANCEL_SECONDS = 0.2")
        done = self.ok("c", "await cells.cancel('b')")
        self.assertIn("cell b was told to end and goes on", done["output"]["head"])
        self.ok("go", "stop.set()")
        self.c.done("b")

    def test_cancel_refusals(self):
        self.start("me", "await cells.cancel('me')")
        self.assertIn("cannot cancel itself", self.c.done("me")["error"]["message"])
        self.start("c", "await cells.cancel('old')")
        self.answer("cells.info", {"id": "old", "state": "finished", "status": "ok", "source": ""})
        self.assertEqual(self.c.done("c")["output"]["head"], "cell old has ended before: ok\n")
        self.start("n", "await cells.cancel(3)")
        self.assertIn("id of a cell is text", self.c.done("n")["error"]["message"])


class Start(KernelCase):
    # P-201: the modules of the bindings load nothing but themselves at the start
    def test_imports_are_lazy(self):
        def imported(modules):
            k, c = self.attached(bundle=self.bundle(*glob.glob(ROOMS + "/*/soma_*.py")), modules=modules, options=("-X", "importtime"))
            c.run("c", "1+1")
            names = set()
            for path in (k.stderr.name, k.dir + "/kernel.log", k.dir + "/native"):
                with open(path, "rb") as f:
                    names |= set(re.findall(rb"^import time:\s+\d+ \|\s+\d+ \| +(\S+)$", f.read(), re.M))
            return {n.decode() for n in names}

        modules = []
        for path in glob.glob(ROOMS + "/*/soma_*.py"):
            with open(path, encoding="utf-8") as f:
                if "\ndef setup(" in f.read():
                    modules.append(os.path.basename(path)[:-3])
        self.assertLess(set(MODULES), set(modules))
        more = imported(modules) - imported(())
        self.assertLessEqual(set(modules), more)
        self.assertEqual([n for n in more if not n.startswith("soma_")], [])


class Names(Case):
    # P-124: the names of cells, `import soma` and `from soma import …` are the same objects
    def test_same_objects(self):
        self.assertEqual(self.ok("a", "import soma\nsoma.files is files, soma.cells is cells, soma.run is run, soma.jobs is jobs")["value"],
                         "(True, True, True, True)")
        self.assertEqual(self.ok("b", "from soma import files, cells, run as start\nfiles is soma.files, cells is soma.cells, start is soma.run")["value"],
                         "(True, True, True)")
        self.assertEqual(self.ok("c", "def f():\n    from soma import files\n    return files\nf() is files")["value"], "True")
