"""The Api that a binding's module is given, by a module that uses all of it."""
import os
import subprocess

from tests.client import KernelCase

MODULE = """
import asyncio
from contextvars import ContextVar

class Sample:
    def __init__(self, api):
        self.api = api
        self.ended = []
        self.held = False
        self.stopping = {}

    def facts(self):
        a = self.api
        return a.cell(), a.capture().cell, a.workspace, a.run_dir, a.output_dir, a.loop is asyncio.get_running_loop()

    async def ask(self, method, args=None): return await self.api.call(method, args)
    def start(self, method, args=None): return self.api.start_call(method, args)

    def begin(self, job, **more):
        self.api.send("job_start", {"job": job, "pid": 7, "pgid": 7, "leader": "1", "command": "c" * 5000, "service": False,
                                    "started_at": 1, **more})

    def finish(self, job):
        self.api.send("job", {"job": job, "state": "exited", "exit_code": 0, "timed_out": False, "ended_at": 2, "bytes": 9,
                              "service": False, "command": "c", "wake": True, "tail": "é" * 2000})

    def rows(self):
        return [{"id": "j2", "command": "c", "state": "running", "timed_out": False, "service": False, "started_at": 1, "bytes": 0}]

    def page(self, job, offset, limit):
        if job == "wrong": raise ValueError("no such offset")
        if job != "j2": return None
        return {"offset": offset or 0, "next_offset": 1, "size": 1, "running": True, "text": "x" * min(limit, 4)}

    def stop(self, job):
        if job == "j2": return asyncio.sleep(0)
        if job == "stubborn": return self.refuse()

    async def refuse(self):
        from soma_api import AskError
        raise AskError("busy", "it does not end")

    def save(self):
        from soma_api import PartialSave
        raise PartialSave({"kept": 1}, ["j9"])

    async def clean(self):
        await asyncio.sleep(0.01)
        open("cleaned", "w").close()


def setup(api):
    s = Sample(api)
    s.loaded = []
    api.provide("sample", s)
    api.on_job_view(s.rows, s.page)
    api.on_job_stop(s.stop)
    api.on_cell_jobs(lambda cell: [{"id": "j" + cell, "command": "c", "service": False}])
    api.on_cell_end(s.ended.append)
    api.on_state("book", s.save, s.loaded.append)
    api.on_state("plain", lambda: [1], s.loaded.append)
    api.on_state("broken", lambda: 1 / 0, lambda state: 1 / 0)
    api.holds(lambda: s.held)
    api.on_cleanup(s.clean)
    api.on_cleanup(lambda: 1 / 0)
"""


class ApiCase(KernelCase):
    def sample(self, text=MODULE, **options):
        return self.attached(modules=("soma_sample",), bundle=self.bundle(self.module("soma_sample", text)), **options)

    def run_ok(self, c, cell, code):
        done = c.run(cell, code)
        self.assertEqual(done["status"], "ok", done)
        return done.get("value")


class Facts(ApiCase):
    # P-126
    def test_where_it_runs(self):
        k, c = self.sample()
        self.assertEqual(self.run_ok(c, "c1", "sample.facts()"),
                         repr(("c1", "c1", k.workspace, k.dir, k.root + "/output", True)))
        # also in tasks and threads of the cell
        self.assertEqual(self.run_ok(c, "c2", "async def f(): return sample.api.cell()\n"
                                              "await asyncio.create_task(f()), await asyncio.to_thread(sample.api.cell)"),
                         repr(("c2", "c2")))

    # P-126: a module without setup, one that raises and one that is not there end the start with its name
    def test_start_up_fails(self):
        texts = "", "def setup(api): 1 / 0", "def setup(api): raise SystemExit(0)", None
        bundles = [self.bundle(*[] if text is None else [self.module("soma_bad", text)]) for text in texts]
        for k in [self.kernel(modules=("soma_bad",), bundle=bundle) for bundle in bundles]:
            c = k.listening().attach()
            self.assertIn("while the module soma_bad was set up", c.frame_of("startup_error")["error"])
            self.assertEqual(k.wait(), 1)

    # P-126: what a cell's end sets off comes before its done; what fails there is said in its output
    def test_cell_end(self):
        _, c = self.sample(MODULE + "    api.on_cell_end(lambda cell: api.send('trace', {'cell': cell, 'changes': []}))\n"
                                    "    api.on_cell_end(lambda cell: 1 / 0)\n")
        done = c.run("c1", "sample.ended")
        kinds = [v["frame"]["type"] for v in c.seen if "frame" in v]
        self.assertLess(kinds.index("trace"), kinds.index("done"))
        self.assertEqual((done["status"], done["value"], done["output"]["head"]),
                         ("ok", "[]", "\n[soma_sample: ZeroDivisionError: division by zero]\n"))
        self.assertEqual(self.run_ok(c, "c2", "sample.ended"), "['c1']")

    # P-126, P-043: run_source runs under a cell's rules and gives the value itself
    def test_run_source(self):
        _, c = self.sample()
        self.assertEqual(self.run_ok(c, "c1", "x = await sample.api.run_source('y = [1]\\nawait asyncio.sleep(0)\\ny'); x is y"), "True")
        done = c.run("c2", "await sample.api.run_source('sample = 1')")
        self.assertEqual(done["error"]["type"], "SyntaxError")
        done = c.run("c3", "await sample.api.run_source('1\\n1/0')")
        self.assertEqual((done["error"]["type"], done["error"]["traceback"].count("<cell>")), ("ZeroDivisionError", 2))


class Calls(ApiCase):
    # P-026: bound to its cell, and without one
    def test_calls(self):
        k, c = self.sample()
        c.execute("c1", "await sample.ask('m', {'a': 1})")
        asked = c.frame_of("call")
        self.assertEqual((asked["cell"], asked["args"]), ("c1", {"a": 1}))
        c.frame("reply", call=asked["id"], ok=True, value=3)
        self.assertEqual(c.done("c1")["value"], "3")
        # one without a cell outlives the cell that began it, and a new connection
        self.assertIsNone(self.run_ok(c, "c2", "f = sample.start('n')"))
        first = [v["frame"] for v in c.seen if v.get("frame", {}).get("method") == "n"][0]
        self.assertNotIn("cell", first)
        c = k.attach(ack=c.last)
        self.assertEqual(c.frame_of("call", method="n"), first)
        c.frame("reply", call=first["id"], ok=False, error={"code": "gone", "message": "not here"})
        self.assertEqual(self.run_ok(c, "c3", "from soma_host import HostError\ntry: await f\nexcept HostError as e: r = e.code, str(e)\nr"),
                         "('gone', 'not here')")

    # P-026, P-209: a background task whose cell has ended asks without a cell
    def test_after_the_cell(self):
        _, c = self.sample()
        self.run_ok(c, "c1", "async def later():\n    await go.wait()\n    return await sample.ask('late')\n"
                             "go = asyncio.Event(); t = asyncio.create_task(later())")
        c.execute("c2", "go.set(); await t")
        asked = c.frame_of("call", method="late")
        self.assertNotIn("cell", asked)
        c.frame("reply", call=asked["id"], ok=True, value=1)
        self.assertEqual(c.done("c2")["value"], "1")


class Jobs(ApiCase):
    # P-012, P-126: the frames go out with their bounds, and the hello repeats what lives
    def test_frames_and_hello(self):
        k, c = self.sample()
        self.run_ok(c, "c1", "sample.begin('j1', cell='c1'); sample.begin('j2')")
        start = [v["frame"] for v in c.seen if v.get("frame", {}).get("type") == "job_start"]
        self.assertEqual([(s["job"], len(s["command"]), s.get("cell")) for s in start], [("j1", 4096, "c1"), ("j2", 4096, None)])
        self.run_ok(c, "c2", "sample.finish('j1')")
        end = [v["frame"] for v in c.seen if v.get("frame", {}).get("type") == "job"][0]
        self.assertEqual((end["job"], end["tail"]), ("j1", "é" * 1024))
        hello = k.attach(ack=c.last).hello
        self.assertEqual(hello["jobs"], [start[1]])
        self.assertEqual((hello["external"], hello["awaited_external"], hello["external_jobs"]), (0, 0, []))

    # P-047: jobs of plugins elsewhere: all of them in each frame, repeated by the hello; the frames coalesce
    def test_elsewhere(self):
        k, c = self.sample()
        k.hold_acks = True
        item = {"id": "r1", "command": "make", "service": False, "started": 5}
        self.run_ok(c, "c1", f"sample.api.report_jobs('a', [{item}])")
        self.run_ok(c, "c2", f"sample.api.report_jobs('b', [{({**item, 'id': 'r2', 'service': True})}])")
        c = k.attach(ack=0)
        self.assertEqual((c.hello["external"], c.hello["awaited_external"]), (2, 1))
        self.assertEqual([i["id"] for i in c.hello["external_jobs"]], ["r1", "r2"])
        frame = c.frame_of("jobs")
        self.assertEqual((frame["live"], frame["awaited"], len(frame["items"])), (2, 1, 2))
        c.done("c2")
        self.assertEqual(sum(v.get("frame", {}).get("type") == "jobs" for v in c.seen), 1)
        self.run_ok(c, "c3", "sample.api.report_jobs('a', []); sample.api.report_jobs('b', [])")
        self.assertEqual(k.attach(ack=c.last).hello["external"], 0)

    # P-108, P-126: a live job holds the process beyond its grace
    def test_job_holds(self):
        k, c = self.sample(scale=20)
        self.run_ok(c, "c1", "sample.begin('j1')")
        c = k.attach(ack=c.last, grace=0.2)
        c.close()
        with self.assertRaises(subprocess.TimeoutExpired):
            k.process.wait(0.5)
        c = k.attach(ack=0, grace=0.2)
        self.run_ok(c, "c2", "sample.finish('j1')")
        c.close()
        self.assertEqual(k.wait(), 0)

    # P-043: the running jobs of a cell, of all plugins
    def test_of_a_cell(self):
        _, c = self.sample()
        self.assertEqual(self.run_ok(c, "c1", "[j['id'] for j in sample.api.cell_jobs('c9')]"), "['jc9']")


class Trace(ApiCase):
    # P-015, P-066: of one cell only the newest waits; over 1 MiB the longest diffs go, marked
    def test_trace(self):
        k, c = self.sample()
        k.hold_acks = True
        self.run_ok(c, "c1", "def tell(n, size=1): sample.api.send('trace', {'cell': 'c1', 'changes': [\n"
                             "    {'path': f'f{i}', 'kind': 'changed', 'diff': 'd' * size, 'truncated': False} for i in range(n)]})\n"
                             "tell(1); tell(2)")
        c = k.attach(ack=0)
        c.done("c1")
        traces = [v["frame"] for v in c.seen if v.get("frame", {}).get("type") == "trace"]
        self.assertEqual([len(t["changes"]) for t in traces], [2])
        self.run_ok(c, "c2", "tell(6, 300_000)")
        changes = [v["frame"] for v in c.seen if v.get("frame", {}).get("type") == "trace"][-1]["changes"]
        self.assertEqual([c["path"] for c in changes], [f"f{i}" for i in range(6)])
        self.assertEqual(sorted((len(c["diff"]), c["truncated"]) for c in changes),
                         [(0, True)] * 3 + [(300_000, False)] * 3)


class State(ApiCase):
    # P-126: what was saved, in part or not at all, is named
    def test_states(self):
        _, c = self.sample()
        self.assertEqual(self.run_ok(c, "c1", "states, lost = sample.api.save_states(); states, lost"),
                         repr(({"book": {"kept": 1}, "plain": [1]}, ["book: j9", "broken: ZeroDivisionError: division by zero"])))
        self.assertEqual(self.run_ok(c, "c2", "sample.api.load_states({**states, 'broken': 1, 'other': 2}), sample.loaded"),
                         repr((["broken: ZeroDivisionError: division by zero", "other: KeyError: 'other'"], [{"kept": 1}, [1]])))


class Ends(ApiCase):
    # P-126: cleanup runs before the process ends, and tells what failed
    def test_cleanup(self):
        k, c = self.sample()
        c.frame("shutdown")
        self.assertEqual(c.frame_of("cleanup")["errors"], ["soma_sample: ZeroDivisionError: division by zero"])
        self.assertEqual(k.wait(), 0)
        self.assertTrue(os.path.exists(k.workspace + "/cleaned"))

    # P-126: one that never ends does not hold the process
    def test_endless_cleanup(self):
        k, c = self.sample("import asyncio\ndef setup(api): api.on_cleanup(lambda: asyncio.sleep(3600))")
        c.frame("shutdown")
        self.assertEqual(c.frame_of("cleanup")["errors"], ["soma_sample: TimeoutError: "])
        self.assertEqual(k.wait(), 0)
