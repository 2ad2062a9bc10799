"""What cells do to the process they run in, and frames that nobody should send: each has one right answer."""
import os
import shutil
import signal

from tests.client import Closed, KernelCase


class Ends(KernelCase):
    # P-021: os._exit ends the process at once: no done, the status is the cell's; the lock is free
    def test_exit_at_once(self):
        k, c = self.attached()
        c.execute("c1", "os._exit(7)")
        self.assertTrue(c.closed())
        self.assertEqual(k.wait(), 7)
        self.assertFalse([v for v in c.seen if v.get("frame", {}).get("type") == "done"])
        self.assertTrue(k.lock_is_free())

    # P-201: sys.exit, exit(), quit() and SystemExit in a task are errors of their cell, no more
    def test_sys_exit(self):
        k, c = self.attached()
        for i, code in enumerate(("sys.exit()", "sys.exit(3)", "exit('x')", "quit()", "raise SystemExit",
                                  "async def f(): sys.exit(1)\nawait asyncio.create_task(f())")):
            done = c.run(f"c{i}", code)
            self.assertEqual((done["status"], done["error"]["type"]), ("error", "SystemExit"), code)
        self.assertEqual(c.run("d", "1+1")["value"], "2")
        self.assertIsNone(k.process.poll())

    # P-034, P-201: endless recursion, of Python and inside repr, is an error with a bounded traceback
    def test_recursion(self):
        _, c = self.attached()
        for i, code in enumerate(("def f(): f()\nf()", "class R:\n    def __repr__(self): return repr(self)\nR()",
                                  "x = []\nfor _ in range(100_000): x = [x]\nrepr(x)", "json.dumps((x := [], x.append(x))[0])")):
            done = c.run(f"c{i}", code)
            self.assertEqual((done["status"], done["error"]["type"]),
                             ("error", "ValueError" if "json" in code else "RecursionError"), code)
            self.assertLessEqual(len(done["error"]["traceback"]), 65_536)
        self.assertEqual(c.run("d", "1+1")["value"], "2")

    # P-202: a cell that swallows KeyboardInterrupt and CancelledError ends only by itself, with its own status
    def test_swallowed(self):
        k, c = self.attached()
        c.execute("c1", "n = 0\nprint('begun', flush=True)\ndef spin():\n    while not os.path.exists('go'): pass\n"
                        "while not os.path.exists('go'):\n    try: spin()\n"
                        "    except KeyboardInterrupt: n += 1; print('hit', n, flush=True)\nn >= 2")
        c.printed("c1", "begun")
        for i in (1, 2):
            c.frame("interrupt", cell="c1")
            c.printed("c1", f"hit {i}")
        open(k.workspace + "/go", "w").close()
        done = c.done("c1")
        self.assertEqual((done["status"], done["value"]), ("ok", "True"))

    # P-201: a fork in a cell: the child is no kernel, and ends where it would become one; the parent's result is told once
    def test_fork(self):
        _, c = self.attached()
        done = c.run("c1", "pid = os.fork()\nif pid: r = os.waitpid(pid, 0)[1]\nelse: r = 'child'\nr")
        self.assertEqual((done["status"], done["value"]), ("ok", "0"))
        done = c.run("c2", "pid = os.fork()\nif not pid: raise SystemExit(5)\nos.waitpid(pid, 0)[1]")
        self.assertEqual(done["value"], "0")
        c.run("c3", "r, w = os.pipe()\npid = os.fork()\nif not pid:\n    os.write(w, b'x')\n    while True: time.sleep(0.5)\n"
                    "os.read(r, 1)")  # a signal that comes while the child is being made is lost in python
        self.assertEqual(c.run("c4", "os.kill(pid, 15); os.waitpid(pid, 0)[1]")["value"], "15")
        self.assertEqual(len([v for v in c.seen if v.get("frame", {}).get("type") == "done"]), 4)


class Surroundings(KernelCase):
    # P-204: closed descriptors: what is printed arrives, and native output works again in the next cell
    def test_closed_descriptors(self):
        _, c = self.attached()
        done = c.run("c1", "os.close(1); os.close(2); print('printed')")
        self.assertEqual((done["status"], done["output"]["head"]), ("ok", "printed\n"))
        self.assertEqual(c.run("c2", "os.write(1, b'native\\n'); print('and python')")["output"]["size"], 18)
        self.assertEqual(c.run("c3", "open('/dev/null').fileno() > 2")["value"], "True")

    # P-002: the run directory is found by its own path, wherever a cell goes
    def test_chdir(self):
        k, c = self.attached()
        c.run("c1", "os.mkdir('deep'); os.chdir('deep'); os.rmdir(os.getcwd())")
        c.execute("c2", "print('begun', flush=True)\nwhile True: pass")
        c.printed("c2", "begun")
        with open(k.dir + "/interrupt.new", "w") as f:
            f.write("c2")
        os.rename(k.dir + "/interrupt.new", k.dir + "/interrupt")
        os.kill(k.process.pid, signal.SIGINT)
        self.assertEqual(c.done("c2")["status"], "interrupted")
        self.assertEqual(k.attach(ack=c.last).run("c3", "1+1")["value"], "2")

    # P-108: the run directory deleted by a cell: the process ends within a second, with status 0
    def test_run_directory(self):
        k, c = self.attached()
        c.execute("c1", f"shutil.rmtree({k.dir!r})")
        self.assertTrue(c.closed())
        self.assertEqual(k.wait(), 0)
        shutil.rmtree(k.dir, ignore_errors=True)

    # P-201: what a cell does to the interpreter's own pieces does not reach the kernel
    def test_sabotage(self):
        _, c = self.attached()
        for i, code in enumerate(("import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})",
                                  "sys.stdout = sys.stderr = None", "sys.path.clear(); sys.modules.pop('json')",
                                 
                                  "__builtins__.repr = None", "globals().clear()", "sys.setrecursionlimit(90)")):
            c.run(f"c{i}", code)
        done = c.run("d", "1+1")
        self.assertEqual(done.get("value"), "2", done)
        self.assertEqual(c.run("e", "math.floor(2.5), __name__")["value"], "(2, '__main__')")


class Frames(KernelCase):
    # P-127, P-038: seventeen frames at once: sixteen run, one is refused, each has one done
    def test_seventeen(self):
        _, c = self.attached()
        c.run("c", "go = asyncio.Event()")
        for i in range(17):
            c.execute(f"c{i}", "await go.wait()")
        self.assertEqual(c.done("c16")["error"]["type"], "CellRefused")
        c.frame("interrupt", cell="c0")
        c.done("c0")
        c.execute("last", "go.set()")
        for i in range(1, 16):
            self.assertEqual(c.done(f"c{i}")["status"], "ok")
        self.assertEqual(len([v for v in c.seen if v.get("frame", {}).get("type") == "done"]), 19)

    # P-023: an id used twice with another code answers the first result and runs nothing
    def test_id_twice(self):
        _, c = self.attached()
        first = c.run("c1", "'first'")
        self.assertEqual(c.run("c1", "open('second', 'w')"), first)
        self.assertFalse(os.path.exists(c.kernel.workspace + "/second"))

    # P-118: text that is no text: in code, in what is raised, printed, returned; in a path of a trace
    def test_surrogates(self):
        _, c = self.attached()
        done = c.run("c1", "'\ud800'")
        self.assertEqual((done["status"], done["error"]["type"]), ("error", "UnicodeEncodeError"))
        done = c.run("c2", "print('\\ud800'); raise ValueError('\\udfff')")
        self.assertEqual((done["error"]["message"], done["output"]["head"]), ("\\udfff", "\\ud800\n"))
        self.assertEqual(c.run("c3", "class A:\n    def __repr__(self): return '\\ud800'\nA()")["value"], "\\ud800")
        self.assertEqual(c.run("c4", "a\0b")["status"], "error")

    # P-118: bytes that are no UTF-8 in a unit cut the connection; the kernel goes on
    def test_not_utf8(self):
        k, c = self.attached()
        c.send_raw(b"\0\0\0\x0c" + b'{"ping": \xff\xfe}'[:12])
        self.assertTrue(c.closed())
        self.assertEqual(k.attach(ack=c.last).run("c1", "1+1")["value"], "2")

    # P-011: questions and executes with wrong fields are malformed: cut, nothing is run
    def test_malformed(self):
        k, c = self.attached()
        for fields in ({"type": "job_read", "id": "q", "job": "j"}, {"type": "complete", "id": "q", "text": 1, "cursor": 0},
                       {"type": "execute", "cell": "c1", "code": "open('ran', 'w')", "timeout_ms": 1, "background_ms": "1"},
                       {"type": "execute", "cell": "c\n", "code": "open('ran', 'w')", "timeout_ms": 1}):
            c = k.attach(ack=c.last)
            c.send({"seq": k.sent + 1, "ack": 0, "frame": fields})
            try:
                c.closed()
            except Closed:
                pass
        c = k.attach(ack=c.last)
        self.assertEqual(c.run("d", "os.path.exists('ran')")["value"], "False")
