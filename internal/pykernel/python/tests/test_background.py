"""Cells in the background: told as such, cancelled by code, read, waked for; and what a model's result says besides."""
from tests.client import KernelCase
from tests.test_api import ApiCase


def frames(c, kind):
    return [v["frame"] for v in c.seen if v.get("frame", {}).get("type") == kind]


class Backgrounded(ApiCase):
    def start(self, c, cell, code, **fields):
        c.frame("execute", cell=cell, code=code, **{"timeout_ms": 60_000, "background_ms": 60, **fields})

    # P-039: told once, with the output so far; the cell goes on to its done
    def test_awaiting(self):
        _, c = self.attached()
        c.run("c0", "go = asyncio.Event()")
        self.start(c, "c1", "print('so far')\nawait go.wait()\nprint('later')\n'end'")
        told = c.frame_of("backgrounded")
        self.assertEqual((told["cell"], told["output"]), ("c1", {"head": "so far\n", "tail": "", "size": 7}))
        self.assertTrue(60 <= told["duration_ms"] < 5000, told)
        c.run("c2", "go.set()")
        done = c.done("c1")
        self.assertEqual((done["background"], done["status"], done["value"], done["output"]["head"]),
                         (True, "ok", "'end'", "so far\nlater\n"))
        self.assertNotIn("wake", done)
        self.assertEqual(len(frames(c, "backgrounded")), 1)

    # P-039, P-040: also while a synchronous cell holds the loop; the deadline stands
    def test_holding_the_loop(self):
        _, c = self.attached()
        self.start(c, "c1", "print('busy')\nwhile True: pass", timeout_ms=600)
        self.assertEqual(c.frame_of("backgrounded")["output"]["head"], "busy\n")
        done = c.done("c1")
        self.assertEqual((done["status"], done["background"]), ("timed_out", True))
        self.assertTrue(600 <= done["duration_ms"] < 5000, done)

    # P-040: the deadline of a backgrounded cell that awaits
    def test_deadline(self):
        _, c = self.attached()
        self.start(c, "c1", "await asyncio.sleep(3600)", timeout_ms=300)
        c.frame_of("backgrounded")
        self.assertEqual(c.done("c1")["status"], "timed_out")

    # P-039: a cell that ends before, and one without background_ms, are never told as backgrounded
    def test_not_told(self):
        _, c = self.attached()
        self.start(c, "c1", "1", background_ms=50)
        c.done("c1")
        c.run("c2", "await asyncio.sleep(0.3)")
        self.start(c, "c3", "await asyncio.sleep(0.2)", background_ms=0)
        done = c.done("c3")
        self.assertNotIn("background", done)
        self.assertEqual(frames(c, "backgrounded"), [])

    # P-039: time in the queue does not count
    def test_queued(self):
        _, c = self.attached()
        c.execute("c1", "t = time.monotonic()\nwhile time.monotonic() - t < 0.4: pass")
        self.start(c, "c2", "1", background_ms=200)
        self.assertNotIn("background", c.done("c2"))

    # P-044: the value is kept with the output, so that it can be read afterwards
    def test_result_is_kept(self):
        _, c = self.sample()
        c.run("c0", "go = asyncio.Event()")
        self.start(c, "c1", "print('out')\nawait go.wait()\n{'a': 1}")
        c.frame_of("backgrounded")
        c.run("c2", "go.set()")
        self.assertEqual(c.done("c1")["output"], {"head": "out\n", "tail": "", "size": 4})
        self.assertEqual(self.run_ok(c, "c3", "sample.api.channels.cell('c1').text()"), repr("out\n\n[result]\n{'a': 1}\n"))
        c.frame("cell_read", id="q", cell="c1", limit=100)
        self.assertEqual(c.frame_of("cell_read")["page"]["text"], "out\n\n[result]\n{'a': 1}\n")
        # and not where the result was told at once
        self.run_ok(c, "c4", "'value'")
        self.assertEqual(self.run_ok(c, "c5", "sample.api.channels.cell('c4').text()"), "''")

    # P-023, P-039: after a new attach the frame comes again as it was
    def test_resent(self):
        k, c = self.attached()
        k.hold_acks = True
        self.start(c, "c1", "await asyncio.sleep(3600)")
        told = c.frame_of("backgrounded")
        self.assertEqual(k.attach(ack=0).frame_of("backgrounded"), told)


class Cancelled(ApiCase):
    def start(self, c, cell, code):
        c.frame("execute", cell=cell, code=f"print('begun', flush=True)\n{code}", timeout_ms=60_000)
        c.printed(cell, "begun")

    # P-043: cancelled by code: interrupted, and nobody is waked
    def test_cancel(self):
        _, c = self.sample()
        self.start(c, "c1", "await asyncio.sleep(3600)")
        self.assertEqual(self.run_ok(c, "c2", "sample.api.cancel_cell('c1'), sample.api.cancel_cell('never')"), "(True, False)")
        done = c.done("c1")
        self.assertEqual((done["status"], done["wake"]), ("interrupted", False))
        self.assertEqual(self.run_ok(c, "c3", "sample.api.cancel_cell('c1')"), "False")

    # P-043, P-024: one that is still queued does not run
    def test_queued(self):
        _, c = self.sample()
        c.execute("c1", "while not os.path.exists('go'): pass\nsample.api.cancel_cell('c2')")
        c.execute("c2", "open('ran', 'w')")
        c.execute("c3", "os.path.exists('ran')")
        c.acked(c.kernel.sent)
        open(c.kernel.workspace + "/go", "w").close()
        done = c.done("c2")
        self.assertEqual((done["status"], done["wake"]), ("interrupted", False))
        self.assertEqual(c.done("c3")["value"], "False")

    # P-042: interrupts that come while the cell cleans up do not hit its cleanup
    def test_cleanup_is_spared(self):
        _, c = self.sample()
        self.start(c, "c1", "try: await asyncio.sleep(3600)\nfinally:\n    print('cleans', flush=True)\n    for i in range(5):\n        await asyncio.sleep(0.01)\n"
                            "        t = time.monotonic()\n        while time.monotonic() - t < 0.02: pass\n    print('clean', i)")
        c.frame("interrupt", cell="c1")
        c.printed("c1", "cleans")
        for _ in range(20):
            c.frame("interrupt", cell="c1")
        done = c.done("c1")
        self.assertEqual((done["status"], done["output"]["head"]), ("interrupted", "begun\ncleans\nclean 4\n"))

    # P-042: a binding's own task, in the cell's context, is not hit by the cell's signal; the cell is
    def test_supervising_tasks(self):
        _, c = self.sample()
        c.run("c0", "async def watch():\n    n = 0\n    while not stop.is_set():\n        n += 1\n        if n == 3: print('at work', flush=True)\n        t = time.monotonic()\n"
                    "        while time.monotonic() - t < 0.01: pass\n        await asyncio.sleep(0)\n    return n\nstop = asyncio.Event()")
        self.start(c, "c1", "with sample.api.supervising(): job = asyncio.create_task(watch())\nawait asyncio.sleep(3600)")
        c.printed("c1", "at work")
        c.frame("interrupt", cell="c1")
        self.assertEqual(c.done("c1")["status"], "interrupted")
        self.assertEqual(self.run_ok(c, "c2", "stop.set(); (await job) > 0"), "True")

    # P-042: a signal that is late does not turn the result of code that has returned
    def test_returned(self):
        _, c = self.attached()
        for i in range(40):
            c.execute(f"c{i}", f"for _ in range({i * 500}): pass\n'end'")
            c.frame("interrupt", cell=f"c{i}")
            done = c.done(f"c{i}")
            self.assertIn((done["status"], done.get("value")), [("ok", "'end'"), ("interrupted", None)])
        self.assertEqual(c.run("end", "1+1")["value"], "2")


class Read(ApiCase):
    # P-043: what code may ask of a cell
    def test_facts(self):
        _, c = self.sample()
        c.run("c1", "1/0\n")
        c.execute("c2", "await asyncio.sleep(3600)")
        facts = "lambda n: {k: v for k, v in sample.api.cell_facts(n).items() if k not in ('duration_ms', 'started_at')}"
        self.assertEqual(self.run_ok(c, "c3", f"f = {facts}\nsample.api.cells()"), "['c2', 'c3', 'c1']")
        self.assertEqual(self.run_ok(c, "c4", "f('c1')"), repr({
            "id": "c1", "state": "finished", "source": "1/0\n", "background": False, "status": "error",
            "error": "ZeroDivisionError: division by zero", "seen": False}))
        self.assertEqual(self.run_ok(c, "c5", "f('c2')"), repr({
            "id": "c2", "state": "running", "source": "await asyncio.sleep(3600)", "background": False, "seen": False}))
        self.assertEqual(self.run_ok(c, "c6", "sample.api.cell_facts('none'), type(sample.api.cell_facts('c1')['started_at'])"),
                         "(None, <class 'int'>)")

    # P-044: reading a finished result tells so, once; a live one has no result to be read
    def test_seen(self):
        _, c = self.sample()
        c.run("c1", "1")
        c.execute("c2", "await asyncio.sleep(3600)")
        self.run_ok(c, "c3", "sample.begin('j1'); sample.api.seen(job='j1'); sample.api.seen(cell='c2'); sample.api.seen(cell='c1')\n"
                             "sample.api.seen(cell='c1'); sample.finish('j1'); sample.api.seen(job='j1')")
        self.assertEqual([(f["cells"], f["jobs"]) for f in frames(c, "seen")], [(["c1"], []), ([], ["j1"])])
        self.assertEqual(self.run_ok(c, "c4", "[sample.api.cell_facts(n)['seen'] for n in ('c1', 'c2')]"), "[True, False]")


LONG = "\n".join(f"x{i} = {i}" for i in range(9))


class Model(ApiCase):
    def run_model(self, c, cell, code, origin="model"):
        c.frame("execute", cell=cell, code=code, timeout_ms=60_000, origin=origin)
        return c.done(cell)

    # P-037: from the syntax tree, dotted, sorted, each once, at most 64; of bindings only; of a model's cells only
    def test_calls(self):
        _, c = self.sample()
        done = self.run_model(c, "c1", "if 0:\n    sample.run(1); sample.api.files.find(x=sample.zero())\n"
                                       "def f(): return [sample.run(i) for i in ()]\nlen([]); sample; sample[0](1) if 0 else sample.last\n"
                                       "print(*map(lambda x: sample.deep.er(x), []))")
        self.assertEqual(done["calls"], ["sample.api.files.find", "sample.deep.er", "sample.run", "sample.zero"])
        self.assertEqual(self.run_model(c, "c2", "1")["calls"], [])
        self.assertEqual(self.run_model(c, "c3", "1 +")["calls"], [])
        many = "\n".join(f"if 0: sample.n{i:03}()" for i in range(100))
        self.assertEqual(self.run_model(c, "c4", many)["calls"], [f"sample.n{i:03}" for i in range(64)])
        self.assertNotIn("calls", self.run_model(c, "c5", "sample.facts()", "person"))
        self.assertNotIn("calls", c.run("c6", "sample.facts()"))

    # P-035: one line where the failed cell has ten or more
    def test_repair(self):
        _, c = self.sample()
        note = self.run_model(c, "c1", LONG + "\n1/0")["repair"]
        self.assertIn("cells.run('c1', (old, new), ...)", note)
        self.assertNotIn("\n", note)
        self.assertIn("repair", self.run_model(c, "c2", LONG + "\n1 +"))
        self.assertNotIn("repair", self.run_model(c, "c3", "\n" * 3 + "1/0\n" + "\n" * 9))
        self.assertNotIn("repair", self.run_model(c, "c4", LONG.replace("x0 = 0\n", "") + "\n1/0\n"))
        self.assertNotIn("repair", self.run_model(c, "c5", LONG + "\n1"))
        self.assertNotIn("repair", self.run_model(c, "c6", LONG + "\n1/0", "person"))


class Images(ApiCase):
    # P-065: what a done carries of images is kept for the newest 8 MiB
    def test_images(self):
        _, c = self.sample()
        code = "sample.api.capture().add_image('image/png', os.urandom(3_500_000), 'a.png')"
        first = c.run("c1", code)
        self.assertEqual((len(first["images"]), first["images"][0]["media"], first["images"][0]["name"]), (1, "image/png", "a.png"))
        self.assertEqual(c.run("c1", code)["images"], first["images"])
        c.run("c2", code)
        again = c.run("c1", code)
        self.assertNotIn("images", again)
        self.assertEqual(len(again["image_errors"]), 1)
