"""What a cell means: values, errors, order, identity, limits, host calls, lives of tasks."""
from tests.client import Closed, KernelCase


class Values(KernelCase):
    # P-033
    def test_final_expression_only(self):
        _, c = self.attached()
        for i, (code, value) in enumerate((
                ("1+1", "2"), ("x = 3", None), ("x", "3"), ("x; y = 1", None), ("None", None), ("", None), ("# nothing", None),
                ("for i in range(3): i", None), ("'a\\nb'", repr("a\nb")), ("def f(): pass", None), ("x = 5\nx * 2", "10"),
                ("(yield_ := 4)", "4"), ("'\\ud800'", "'\\ud800'"))):
            done = c.run(f"c{i}", code)
            self.assertEqual((done["status"], done.get("value")), ("ok", value), code)

    # P-033: top-level await; the coroutine that runs the cell is no value
    def test_await(self):
        _, c = self.attached()
        c.run("c0", "import asyncio\nasync def f(): await asyncio.sleep(0); return 7")
        for i, (code, value) in enumerate((
                ("await f()", "7"), ("y = await f()", None), ("y", "7"), ("[await f() for _ in range(2)]", "[7, 7]"),
                ("async with asyncio.Lock(): z = 1", None), ("await asyncio.sleep(0)", None),
                ("await asyncio.gather(f(), f())", "[7, 7]"))):
            done = c.run(f"c{i + 1}", code)
            self.assertEqual((done["status"], done.get("value")), ("ok", value), code)

    # P-033: no warning of the compiler among the output, also when the cell has asked for all warnings
    def test_no_syntax_warning(self):
        _, c = self.attached()
        done = c.run("c0", "import warnings; warnings.simplefilter('always')")
        done = c.run("c1", "x = '\\d' is '\\d'\nassert (1, 'always true')")
        self.assertEqual((done["status"], done["output"]["size"]), ("ok", 0), done)

    # P-036: fields, types and bounds of a result
    def test_fields(self):
        _, c = self.attached()
        done = c.run("c", "print('out'); import sys; print('err', file=sys.stderr); 1")
        self.assertEqual(set(done), {"type", "cell", "status", "started_at", "duration_ms", "value", "output"})
        self.assertEqual(done["output"], {"head": "out\nerr\n", "tail": "", "size": 8})
        self.assertGreater(done["started_at"], 1_700_000_000_000)
        done = c.run("d", "'é' * 1_000_000")
        self.assertLessEqual(len(done["value"].encode()), 65536)
        self.assertTrue(done["value"].endswith("… [cut, 2000002 bytes]"), done["value"][-40:])
        done = c.run("e", "raise ValueError('é' * 1_000_000)")
        self.assertLessEqual(len(done["error"]["message"].encode()), 65536)
        self.assertLessEqual(len(done["error"]["traceback"].encode()), 65536)
        self.assertNotIn("value", done)

    # P-033: who forgets an await, or has one too many, is told so, and of nothing else
    def test_await(self):
        _, c = self.attached()
        done = c.run("c1", "asyncio.sleep(0)")
        self.assertTrue(done["value"].endswith("(it has not run: write await before the call)"), done["value"])
        self.assertEqual(done["output"]["size"], 0)
        self.assertIn("has not run", c.run("c2", "later = asyncio.sleep(0, 'slept')\nlater")["value"])
        self.assertEqual(c.run("c3", "await later")["value"], "'slept'")
        self.assertIn("leave the await away", c.run("c4", "await len('x')")["error"]["traceback"])

    # P-201: what cells often do to the streams takes nothing from the next ones
    def test_streams_stay(self):
        _, c = self.attached()
        self.assertEqual(c.run("c1", "exit()")["error"]["type"], "SystemExit")
        self.assertIn("Help on", c.run("c2", "help(len)")["output"]["head"])
        done = c.run("c3", "sys.stdout.reconfigure(encoding='utf-8', line_buffering=True); print('é')")
        self.assertEqual((done["status"], done["output"]["head"]), ("ok", "é\n"))

    # P-205: no value of a cell stays alive
    def test_values_are_not_kept(self):
        _, c = self.attached()
        rss = "int(open('/proc/self/statm').read().split()[1]) * 4096"
        for i in range(3):  # the allocator keeps a piece of this size for itself
            c.run(f"v{i}", "'x' * (30 << 20)")
            c.run(f"w{i}", "def f(x): raise ValueError(len(x))\nf('x' * (30 << 20))")
        before = int(c.run("before", rss)["value"])
        for i in range(20):
            self.assertEqual(c.run(f"c{i}", "'x' * (30 << 20)")["status"], "ok")
            self.assertEqual(c.run(f"e{i}", "def f(x): raise ValueError(len(x))\nf('x' * (30 << 20))")["status"], "error")
        grown = int(c.run("after", rss)["value"]) - before
        self.assertLess(grown, 24 << 20)
        self.assertEqual(c.run("names", "import builtins, sys\n[n for n in ('_', 'Out', '_1', 'last_value') "
                               "if n in globals() or hasattr(builtins, n) or hasattr(sys, n)]")["value"], "[]")

    # P-205: also when it can only be found by the garbage collector
    def test_values_die_at_once(self):
        _, c = self.attached()
        c.run("c0", "import weakref, gc; gc.disable()\nclass V: pass\nseen = []\n"
                    "def make():\n    v = V(); seen.append(weakref.ref(v)); return v")
        c.run("c1", "make()")
        c.run("c2", "raise ValueError(make())")
        c.run("c3", "async def a(): return make()\nawait a()")
        self.assertEqual(c.run("c4", "[r() for r in seen]")["value"], "[None, None, None]")

    # P-119: classes of cells belong to a module that can be found, so that pickle and dataclasses work
    def test_main_module(self):
        _, c = self.attached()
        done = c.run("c", "import pickle, dataclasses, sys\n@dataclasses.dataclass\nclass P:\n    x: 'int'\n"
                          "(pickle.loads(pickle.dumps(P(3))).x, __name__, sys.modules['__main__'].P is P)")
        self.assertEqual(done.get("value"), repr((3, "__main__", True)), done)


class Errors(KernelCase):
    # P-034
    def test_traceback(self):
        _, c = self.attached()
        c.run("c0", "def outer():\n    return inner()\ndef inner():\n    raise KeyError('k')")
        error = c.run("c1", "import json\njson.JSONDecoder(object_hook=lambda d: outer()).decode('{}')")["error"]
        self.assertEqual((error["type"], error["message"]), ("KeyError", "'k'"))
        self.assertIn('File "<cell>", line 2, in <module>', error["traceback"])
        self.assertIn("raise KeyError('k')", error["traceback"])
        self.assertIn("json/decoder.py", error["traceback"])
        self.assertNotIn("soma_", error["traceback"])
        self.assertNotIn("<cell c", error["traceback"])

    # P-034
    def test_syntax_error(self):
        _, c = self.attached()
        error = c.run("c", "x = 1\nfor")["error"]
        self.assertEqual(error["type"], "SyntaxError")
        self.assertIn('File "<cell>", line 2', error["traceback"])
        self.assertNotIn("soma_", error["traceback"])
        self.assertEqual(c.run("d", "'a\0b'")["status"], "error")

    # P-034: chains and groups are cut too
    def test_chain(self):
        _, c = self.attached()
        error = c.run("c", "import asyncio\nasync def bad(): raise OSError('inner')\ntry:\n"
                           "    async with asyncio.TaskGroup() as g: g.create_task(bad())\n"
                           "except ExceptionGroup as e: raise ValueError('outer') from e")["error"]
        self.assertIn("OSError: inner", error["traceback"])
        self.assertIn("ValueError: outer", error["traceback"])
        self.assertNotIn("soma_", error["traceback"])
        self.assertNotIn("<cell c", error["traceback"])

    # P-034: exceptions that cannot be shown are still told
    def test_hostile_exceptions(self):
        _, c = self.attached()
        done = c.run("c0", "class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E")
        self.assertEqual((done["status"], done["error"]["type"]), ("error", "E"))
        done = c.run("c1", "class R:\n    def __repr__(self): raise KeyError('no repr')\nR()")
        self.assertEqual((done["status"], done["error"]["type"]), ("error", "KeyError"))
        done = c.run("c2", "raise BaseException('b')")
        self.assertEqual(done["error"]["type"], "BaseException")
        done = c.run("c3", "raise ValueError('\\ud800')")
        self.assertEqual(done["error"]["message"], "\\ud800")

    # P-201: nothing that a cell raises ends the kernel
    def test_loop_survives(self):
        k, c = self.attached()
        for i, (code, kind) in enumerate((
                ("import sys; sys.exit(3)", "SystemExit"), ("exit()", "SystemExit"), ("raise KeyboardInterrupt", "KeyboardInterrupt"),
                ("def f(): return f()\nf()", "RecursionError"), ("raise GeneratorExit", "GeneratorExit"),
                ("import asyncio; raise asyncio.CancelledError", "asyncio.exceptions.CancelledError"),
                ("asyncio.current_task().cancel(); await asyncio.sleep(1)", "asyncio.exceptions.CancelledError"),
                ("raise MemoryError", "MemoryError"))):
            done = c.run(f"c{i}", code)
            self.assertEqual((done["status"], done["error"]["type"]), ("error", kind), code)
        for i, code in enumerate((
                "import asyncio; asyncio.get_running_loop().stop()", "asyncio.get_running_loop().call_soon(exit)",
                "async def die(): raise SystemExit\nt = asyncio.create_task(die()); await asyncio.sleep(0)",
                "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
                "import sys; sys.stdout.close(); sys.stderr.close(); sys.stdin.close()")):
            c.run(f"d{i}", code)
        self.assertEqual(c.run("e", "print('alive'); 1+1")["value"], "2")
        self.assertIsNone(k.process.poll())


class Signals(KernelCase):
    # P-201: a cell's own signal handler that raises anywhere loses no result and no frame
    def test_raising_handler(self):
        k, c = self.attached()
        c.run("c", "import signal, time\nclass Late(Exception): pass\ndef late(*_): raise Late\n"
                   "signal.signal(signal.SIGALRM, late)\nfrom soma_host import call")
        for i in range(60):
            code = (f"signal.setitimer(signal.ITIMER_REAL, {1 + i * 37} * 1e-6)\n",
                    "t = time.perf_counter()\nwhile time.perf_counter() - t < 0.0015: print('x', flush=True)\n",
                    "try: {}['k']\nfinally: 1")
            c, done = self.run_anyway(k, c, f"c{i}", "".join(code))
            self.assertEqual(done["status"], "error")
        c, _ = self.run_anyway(k, c, "calm", "signal.setitimer(signal.ITIMER_REAL, 0)")  # on a slow machine the last is yet to come
        self.assertEqual(c.run("end", "1+1")["value"], "2")

    def run_anyway(self, k, c, cell, code):
        """(connection, done): the kernel may cut a connection whose write was disturbed."""
        try:
            return c, c.run(cell, code)
        except (Closed, BrokenPipeError):
            c = k.attach(ack=c.last)
            if c.hello["ack"] < k.sent:
                k.sent -= 1
                c.execute(cell, code)
            return c, c.done(cell)


class Identity(KernelCase):
    # P-023: a kept finished cell sends its done again; it does not run again
    def test_execute_again(self):
        _, c = self.attached()
        c.run("c0", "n = 0")
        first = c.run("c1", "n += 1; print(n); n")
        self.assertEqual(c.run("c1", "n += 1; print(n); n"), first)
        self.assertEqual(c.run("c2", "n")["value"], "1")

    # P-023: the same while the first done still waits for its acknowledgement: it comes once per connection
    def test_execute_again_unacknowledged(self):
        k, c = self.attached()
        k.hold_acks = True
        c.run("c1", "1")
        c.execute("c1", "1")
        c.run("c2", "2")
        self.assertEqual(len([v for v in c.seen if v.get("frame", {}).get("cell") == "c1"]), 1)

    # P-023: a queued or running cell is not started twice
    def test_execute_while_running(self):
        _, c = self.attached()
        c.run("c0", "import asyncio; n = 0; go = asyncio.Event()")
        for _ in range(3):
            c.execute("c1", "n += 1; await go.wait(); n")
        c.execute("c2", "go.set()")
        self.assertEqual(c.done("c1")["value"], "1")
        self.assertEqual(c.run("c3", "n")["value"], "1")

    # P-023: the newest 16 results are kept
    def test_sixteen_results(self):
        k, c = self.attached()
        c.run("c0", "runs = []")
        for i in range(1, 18):
            c.run(f"c{i}", f"runs.append({i})")
        self.assertEqual(k.attach(ack=c.last).hello["finished"], [f"c{i}" for i in range(2, 18)])

    # P-038, P-127: sixteen at once, the seventeenth is refused and the others go on
    def test_seventeenth(self):
        k, c = self.attached()
        c.run("c", "import asyncio; go = asyncio.Event()")
        for i in range(16):
            c.execute(f"c{i}", f"await go.wait(); {i}")
        refused = c.run("c16", "1")
        self.assertEqual((refused["status"], refused["error"]["type"], refused["error"]["message"]),
                         ("error", "CellRefused", "too many cells running"))
        # P-024: a place is free as soon as one has ended
        c.frame("interrupt", cell="c0")
        self.assertEqual(c.done("c0")["status"], "interrupted")
        c.execute("c17", "go.set()")
        for i in range(1, 16):
            self.assertEqual(c.done(f"c{i}")["value"], str(i))

    # P-127: an invalid timeout is refused, the bounds are valid
    def test_invalid_timeout(self):
        _, c = self.attached()
        for i, timeout in enumerate((0, -1, 3_600_001)):
            done = c.run(f"c{i}", "1", timeout)
            self.assertEqual((done["status"], done["error"]["message"]), ("error", "invalid timeout"))
        self.assertEqual(c.run("d", "1", 3_600_000)["status"], "ok")

    # P-038: a synchronous cell keeps the others waiting until it yields
    def test_holds_the_loop(self):
        k, c = self.attached()
        c.run("c", "import asyncio, os; order = []")
        c.execute("c1", "while not os.path.exists('go'): pass\norder.append('held')\nwhile 'other' not in order: await asyncio.sleep(0)\norder.append('yielded')")
        c.execute("c2", "order.append('other')")
        c.acked(k.sent)  # it is queued
        open(k.workspace + "/go", "w").close()
        c.done("c2")
        c.done("c1")
        self.assertEqual(c.run("d", "order")["value"], "['held', 'other', 'yielded']")

    # P-213: cells run in frame order, synchronous ones one after another
    def test_order(self):
        _, c = self.attached()
        c.run("c", "order = []")
        for i in range(10):
            c.execute(f"c{i}", f"order.append({i})")
        for i in range(10):
            c.done(f"c{i}")
        self.assertEqual(c.run("d", "order")["value"], str(list(range(10))))

    # P-128's frame, P-011: live is told before each result, without that cell
    def test_cells_frame(self):
        _, c = self.attached()
        c.run("c0", "import asyncio; go = asyncio.Event()")
        c.execute("c1", "await go.wait()")
        c.run("c2", "1")
        frames = [v["frame"] for v in c.seen if "frame" in v][-2:]
        self.assertEqual([(f["type"], f.get("live")) for f in frames], [("cells", 1), ("done", None)])


class HostCalls(KernelCase):
    ASK = "from soma_host import call, HostError\n"

    # P-026
    def test_call_and_reply(self):
        _, c = self.attached()
        c.execute("c", self.ASK + "await call('files.read', {'path': 'é'})")
        asked = c.frame_of("call")
        self.assertEqual((asked["cell"], asked["method"], asked["args"]), ("c", "files.read", {"path": "é"}))
        c.frame("reply", call=asked["id"], ok=True, value={"text": [1, None]})
        self.assertEqual(c.done("c")["value"], repr({"text": [1, None]}))

    # P-026
    def test_error_reply(self):
        _, c = self.attached()
        c.execute("c", self.ASK + "try: await call('m')\nexcept HostError as e: r = (e.code, str(e))\nr")
        c.frame("reply", call=c.frame_of("call")["id"], ok=False, error={"code": "unknown", "message": "not known"})
        self.assertEqual(c.done("c")["value"], repr(("unknown", "not known")))
        c.execute("d", "await call('m')")
        c.frame("reply", call=c.frame_of("call", cell="d")["id"], ok=False, error={"code": "x", "message": "said"})
        error = c.done("d")["error"]
        self.assertEqual((error["type"], error["message"]), ("soma_host.HostError", "said"))

    # P-024: a reply that comes twice, or for nobody, changes nothing
    def test_reply_is_idempotent(self):
        _, c = self.attached()
        c.execute("c", self.ASK + "a = await call('m'); b = await call('m'); (a, b)")
        first = c.frame_of("call")
        for value in (1, 2):
            c.frame("reply", call=first["id"], ok=True, value=value)
        second = c.until(lambda v: v.get("frame", {}).get("type") == "call" and v["frame"]["id"] != first["id"])["frame"]
        c.frame("reply", call="nobody", ok=True, value=3)
        c.frame("reply", call=second["id"], ok=True, value=4)
        self.assertEqual(c.done("c")["value"], "(1, 4)")

    # P-020: sent again after each hello until it is answered, acknowledged or not, under the same id
    def test_resent_until_answered(self):
        k, c = self.attached()
        c.execute("c", self.ASK + "await call('m', [1])")
        asked = c.frame_of("call")
        c.ping()
        for hold in (False, True, True):
            k.hold_acks = hold
            c = k.attach(ack=c.last)
            self.assertEqual(c.frame_of("call"), asked)
            c.ping()
            self.assertEqual(len([v for v in c.seen if v.get("frame", {}).get("type") == "call"]), 1)
        c.frame("reply", call=asked["id"], ok=True, value=5)
        self.assertEqual(c.done("c")["value"], "5")
        k.hold_acks = False
        c = k.attach(ack=c.last)
        c.ping()
        self.assertFalse([v for v in c.seen if v.get("frame", {}).get("type") == "call"])

    # P-024: the calls of a cell that ends are cancelled, those of its background task too
    def test_cancelled_with_the_cell(self):
        k, c = self.attached()
        c.execute("c", self.ASK + "import asyncio\nt = asyncio.create_task(call('m'))\nawait asyncio.sleep(0)")
        asked = c.frame_of("call")
        c.done("c")
        self.assertEqual(c.run("d", "await asyncio.wait([t]); t.cancelled()")["value"], "True")
        c.frame("reply", call=asked["id"], ok=True, value=1)
        c = k.attach(ack=c.last)
        self.assertEqual(c.run("e", "1+1")["value"], "2")
        self.assertFalse([v for v in c.seen if v.get("frame", {}).get("type") == "call"])

    # P-026: what cannot travel is refused where it is called
    def test_bad_arguments(self):
        _, c = self.attached()
        for i, (code, kind) in enumerate((("await call(3)", "TypeError"), ("await call('m', object())", "TypeError"),
                                          ("await call('m', float('nan'))", "ValueError"))):
            self.assertEqual(c.run(f"c{i}", self.ASK + code)["error"]["type"], kind)


class Tasks(KernelCase):
    # P-209
    def test_background_task(self):
        _, c = self.attached()
        c.run("c0", "import asyncio\nsteps = []\ngo = asyncio.Event()\nasync def work():\n    steps.append(1)\n"
                    "    await go.wait()\n    steps.append(2)\n    raise ValueError('from the background')\n"
                    "t = asyncio.create_task(work())")
        self.assertEqual(c.run("c1", "go.set()\nawait asyncio.wait([t])\n(steps, str(t.exception()))")["value"],
                         repr(([1, 2], "from the background")))

    # P-209: it goes on between the cells, without any of them
    def test_runs_between_cells(self):
        _, c = self.attached()
        c.run("c0", "import asyncio\nasync def work():\n    print('from between', flush=True)\n"
                    "async def later():\n    await asyncio.sleep(0.05)\n    await work()\nt = asyncio.create_task(later())")
        c.printed("c0", "from between")  # P-011: its print arrives after the done of its cell
        self.assertEqual(c.run("c1", "t.done()")["value"], "True")

    # P-001: daemon gone, cells go on, the result waits
    def test_daemon_death(self):
        k, c = self.attached()
        c.execute("c", "import asyncio\nfor i in range(5): await asyncio.sleep(0.01)\nopen('ran', 'a').write('x')\nx = 5; x")
        c.acked(k.sent)
        c.close()
        c = k.attach()
        self.assertEqual(c.done("c")["value"], "5")
        with open(k.workspace + "/ran") as f:
            self.assertEqual(f.read(), "x")
