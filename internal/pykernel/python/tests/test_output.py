"""Where output goes, and how much of it is kept."""
import os
import unittest

import soma_capture
from tests.client import KernelCase


def assembled(seen, cell):
    """The live pieces of a cell as {offset: text}."""
    return {v["output"]["offset"]: v["output"]["text"] for v in seen if v.get("output", {}).get("cell") == cell}


class Routing(KernelCase):
    # P-203: a signal handler that prints and flushes in the midst of the streams' own work does not wait for itself
    def test_handler_prints(self):
        _, c = self.attached()
        for lock in ("soma_output.CURRENT.get()._lock", "soma_host._calls._link._lock"):
            done = c.run(lock, f"""import signal, os, sys, soma_output, soma_host
def handler(*_):
    print('x' * 100_000, flush=True)
    sys.stdout.buffer.write(b'z')
signal.signal(signal.SIGUSR1, handler)
with {lock}:
    os.kill(os.getpid(), signal.SIGUSR1)
    print('y')
""", 5000)
            self.assertEqual((done["status"], done["output"]["size"]), ("ok", 100_004))

    # P-203: thread, executor, to_thread, task and callback write to the cell that started them, even after another began
    def test_context(self):
        _, c = self.attached()
        c.run("c", "import asyncio, threading, concurrent.futures\ngo = asyncio.Event(); loop = asyncio.get_running_loop()")
        code = """
async def body():
    def say(how): print('{0}', how)
    async def task(): say('task')
    pool = concurrent.futures.ThreadPoolExecutor(1)
    await go.wait() if '{0}' == 'first' else go.set()
    t = threading.Thread(target=say, args=('thread',)); t.start(); t.join()
    await loop.run_in_executor(None, say, 'default executor')
    await loop.run_in_executor(pool, say, 'executor')
    await asyncio.to_thread(say, 'to_thread')
    pool.submit(say, 'submit').result()
    await asyncio.create_task(task())
    done = loop.create_future(); loop.call_soon(lambda: (say('callback'), done.set_result(0))); await done
    timer = threading.Timer(0, say, ('timer',)); timer.start(); timer.join()
await body()
"""
        c.execute("first", code.format("first"))
        c.execute("second", code.format("second"))
        ends = {}
        while len(ends) < 2:
            frame = c.until(lambda v: v.get("frame", {}).get("type") == "done")["frame"]
            ends[frame["cell"]] = frame
        hows = ["thread", "default executor", "executor", "to_thread", "submit", "task", "callback", "timer"]
        for cell, done in ends.items():
            self.assertEqual(done["output"]["head"], "".join(f"{cell} {how}\n" for how in hows), done)

    # P-203: one pool used by two cells in turn
    def test_shared_pool(self):
        _, c = self.attached()
        c.run("c", "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)")
        for cell in ("a", "b"):
            done = c.run(cell, "pool.submit(print, 'x').result()\npool.submit(print, 'y').result()")
            self.assertEqual(done["output"]["head"], "x\ny\n")

    # P-203: the way out, and the person's own context variables are not copied
    def test_opt_out(self):
        _, c = self.attached()
        done = c.run("c", """
import threading, contextvars, concurrent.futures
v = contextvars.ContextVar('v', default='unset'); v.set('set'); seen = []
from soma_output import CURRENT
def look(): seen.append((CURRENT.get() is not None, v.get()))
t = threading.Thread(target=look); t.start(); t.join()
t = threading.Thread(target=look); t.soma_inherit = False; t.start(); t.join()
pool = concurrent.futures.ThreadPoolExecutor(1); pool.submit(look).result(); pool.submit(look).result()
pool.soma_inherit = False; pool.submit(look).result()
seen""")
        self.assertEqual(done["value"], repr([(True, "unset"), (False, "unset"), (True, "unset"), (True, "unset"),
                                              (False, "unset")]))

    # P-203: what streams are asked for
    def test_streams(self):
        _, c = self.attached()
        done = c.run("c", "import sys\nsys.stdout.buffer.write(b'bytes\\n'); sys.stdout.write('text\\n'); "
                          "sys.stderr.buffer.write(b'\\xff\\n')\n"
                          "(sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.fileno(), sys.stderr.fileno(), sys.stdout.writable())")
        self.assertEqual(done["value"], repr((False, "utf-8", 1, 2, True)))
        self.assertEqual(done["output"]["head"], "bytes\ntext\n\ufffd\n")
        self.assertEqual(c.run("d", "sys.stdout.write(3)")["error"]["type"], "TypeError")
        self.assertEqual(c.run("e", "print('\\ud800')")["output"], {"head": "\\ud800\n", "tail": "", "size": 7})


class NativeFile(KernelCase):
    # P-204: children and raw descriptors
    def test_descriptors(self):
        _, c = self.attached()
        done = c.run("c", "import os, soma_guard, subprocess\nwith soma_guard.spawning():\n    os.system('echo one')\n"
                          "    subprocess.run(['sh', '-c', 'echo two >&2'])\nos.write(1, b'three\\n'); print('four')")
        self.assertEqual(sorted(done["output"]["head"].split()), ["four", "one", "three", "two"])
        self.assertEqual(c.run("d", "1")["output"]["size"], 0)

    # P-204: native code that writes more than a pipe holds, with the interpreter lock held
    def test_lock_held(self):
        _, c = self.attached()
        done = c.run("c", "import ctypes\nb = b'y' * 5_000_000\nctypes.PyDLL(None).write(1, b, len(b))")
        self.assertEqual((done["value"], done["output"]["size"]), ("5000000", 5_000_000))
        self.assertEqual(done["output"]["head"], "y" * (1 << 20))
        self.assertEqual(done["output"]["tail"], "y" * (64 << 10))

    # P-204: bytes that are cut inside a character between two reads, and bytes that are no UTF-8
    def test_encoding(self):
        _, c = self.attached()
        done = c.run("c", "import os\nos.write(1, b'\\xe2\\x82'); print('', end='', flush=True)\n"
                          "import soma_output; soma_output.CURRENT.get().drain()\nos.write(1, b'\\xac\\xff')")
        self.assertEqual(done["output"], {"head": "€\ufffd", "tail": "", "size": 6})

    # P-204: the file is cut at 16 MiB
    def test_file_is_cut(self):
        k, c = self.attached()
        done = c.run("c", "import os\nb = b'z' * (1 << 20)\nfor i in range(40): os.write(1, b)")
        self.assertEqual(done["output"]["size"], 40 << 20)
        self.assertLess(os.stat(k.dir + "/native").st_blocks * 512, 16 << 20)
        self.assertEqual(c.run("d", "os.write(1, b'after\\n')")["output"]["head"], "after\n")

    # P-041, P-204: with two cells running nobody knows whose it is: it goes to the channel "native"
    def test_several_cells(self):
        _, c = self.attached()
        c.run("c", "import asyncio, os; go = asyncio.Event()")
        c.execute("first", "await go.wait()")
        done = c.run("second", "os.write(1, b'second\\n'); go.set()")
        self.assertEqual((done["output"]["size"], c.done("first")["output"]["size"]), (0, 0))
        self.assertEqual(c.run("x", "os.write(1, b'mine\\n')")["output"]["head"], "mine\n")


class Kept(KernelCase):
    # P-036: head, tail and true size around the bounds
    def test_bounds(self):
        _, c = self.attached()
        head, tail = 1 << 20, 64 << 10
        for i, size in enumerate((head - 1, head, head + 1, head + tail, head + tail + 1, 5_000_000)):
            out = c.run(f"c{i}", f"print('ab' * {size // 2} + 'c' * {size % 2}, end='')")["output"]
            text = "ab" * (size // 2) + "c" * (size % 2)
            self.assertEqual(out["size"], size)
            self.assertEqual(out["head"], text[:head])
            self.assertEqual(out["tail"], text[head:][-tail:] if size > head else "")

    # P-036: cut on character borders
    def test_characters(self):
        _, c = self.attached()
        for i, n in enumerate((349_525, 349_526, 400_000)):
            out = c.run(f"c{i}", f"for i in range({n}): print('€', end='')")["output"]
            self.assertEqual(out["size"], 3 * n)
            self.assertEqual(set(out["head"]) | set(out["tail"]), {"€"})
            self.assertLessEqual(len(out["head"].encode()), 1 << 20)
            self.assertGreater(len(out["head"].encode()), (1 << 20) - 4)
            self.assertLessEqual(len(out["tail"].encode()), 64 << 10)
            self.assertEqual(len(out["head"]) + len(out["tail"]), min(n, (1 << 20) // 3 + (64 << 10) // 3))

    # P-036: nothing is lost when threads print at once
    def test_threads(self):
        _, c = self.attached()
        done = c.run("c", "import threading\ndef work(n):\n    for i in range(2000): print(f'{n}.{i};', end='')\n"
                          "ts = [threading.Thread(target=work, args=(n,)) for n in range(8)]\n"
                          "for t in ts: t.start()\nfor t in ts: t.join()")
        self.assertEqual(sorted(done["output"]["head"].split(";")[:-1]), sorted(f"{n}.{i}" for n in range(8) for i in range(2000)))


class Live(KernelCase):
    # P-011: live pieces carry their true offsets, while a synchronous cell holds the loop
    def test_offsets(self):
        _, c = self.attached()
        c.execute("c", "import os\nprint('é' * 10, flush=True)\nwhile not os.path.exists('go'): pass\nprint('end')")
        c.printed("c", "é\n")
        open(c.kernel.workspace + "/go", "w").close()
        whole = c.done("c")["output"]["head"].encode()
        for offset, text in assembled(c.seen, "c").items():
            self.assertEqual(whole[offset:offset + len(text.encode())], text.encode())

    # P-011: a flood is bounded; what is shown is true
    def test_flood(self):
        _, c = self.attached()
        done = c.run("c", "import time\nt = time.monotonic()\ni = 0\nwhile time.monotonic() - t < 0.5:\n"
                          "    print(f'{i:099d}'); i += 1\nprint(i, end='')")
        lines = int(done["output"]["tail"].rpartition("\n")[2])
        self.assertEqual(done["output"]["size"], lines * 100 + len(str(lines)))
        pieces = assembled(c.seen, "c")
        self.assertLess(sum(map(len, pieces.values())), 16 << 20)
        for offset, text in pieces.items():
            self.assertLessEqual(len(text.encode()), 64 << 10)
            if offset % 100 == 0 and offset < lines * 100:
                self.assertEqual(text[:99], f"{offset // 100:099d}")

    # P-015: a daemon that does not read loses live output only
    def test_dropped_when_full(self):
        k, c = self.attached()
        c.execute("c", "import time\nfor i in range(30):\n    print('x' * 200_000)\n    time.sleep(0.02)\n'end'")
        other_end = c.frame_of("done", cell="c")  # reads only what was there: pieces may be missing, the result is not
        self.assertEqual((other_end["value"], other_end["output"]["size"]), ("'end'", 30 * 200_001))


class Pieces(unittest.TestCase):
    # P-036: the cuts by themselves
    def test_borders(self):
        text = "a€b😀".encode()
        for n in range(len(text) + 2):
            self.assertEqual(soma_capture.head_of(text, n), text[:n].decode("utf-8", "ignore").encode())
            tail = soma_capture.tail_of(text, n)
            tail.decode()
            self.assertTrue(text.endswith(tail) and len(tail) <= n and n - len(tail) < 4 or n > len(text))

    # P-011: what is not shown in time is a gap, never a wrong offset
    def test_gap(self):
        capture = soma_capture.CellCapture("c")
        text = "".join(f"{i:09d}\n" for i in range(100_000))
        capture.chunks.append(text)
        shown = []
        while (piece := capture.take_live()) is not None:
            shown.append(piece)
        self.assertEqual(shown[0][0], len(text) - 4 * (64 << 10))
        for offset, part in shown:
            self.assertEqual(text[offset:offset + len(part)], part)
        out = capture.result()
        self.assertEqual((out["head"], out["tail"], out["size"]), (text, "", 1_000_000))
