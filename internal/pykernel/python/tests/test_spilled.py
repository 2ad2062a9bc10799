"""Output of a real kernel beyond its preview: files, pages, bad descriptors, floods, images."""
import base64
import os
import statistics
import struct
import sys
import time
import zlib

from tests.client import BUNDLE, PATIENCE, KernelCase

BINDINGS = os.path.abspath(os.path.join(BUNDLE, "../../binding"))
MIB = 1 << 20


class Case(KernelCase):
    def bound(self):
        """(kernel, connection) of a kernel with `output` and `show_image`."""
        bundle = self.bundle(BINDINGS + "/output/soma_out.py", BINDINGS + "/images/soma_image.py")
        return self.attached(bundle=bundle, modules=("soma_out", "soma_image"))

    def ask(self, c, kind, **fields):
        """The answer to a question."""
        self.asked = getattr(self, "asked", 0) + 1
        c.frame(kind, id=f"q{self.asked}", **fields)
        return c.frame_of(kind, id=f"q{self.asked}")

    def whole(self, c, cell, size):
        """The text of all pages of a cell."""
        text, at = [], 0
        while at < size:
            page = self.ask(c, "cell_read", cell=cell, offset=at, limit=64 << 10)["page"]
            text.append(page["text"])
            self.assertGreater(page["next_offset"], at)
            at = page["next_offset"]
        return "".join(text)


class Native(Case):
    # P-041: with several cells running, and with none, nobody knows whose native output is
    def test_several_cells(self):
        _, c = self.bound()
        c.run("c", "import asyncio, os; go = asyncio.Event()")
        c.execute("first", "os.write(1, b'alone '); print('printed')\nawait go.wait()\nprint('printed later')")
        second = c.run("second", "os.write(1, b'of two '); print('printed too'); go.set()")
        first = c.done("first")
        self.assertEqual(second["output"]["head"], "printed too\n")
        self.assertEqual(sorted(first["output"]["head"].split("\n")), sorted(["printed", "alone printed later", ""]))
        self.assertEqual(c.run("n", "output.read('native')")["value"], "'of two '")

    # P-041: what is written between two cells is not the next one's
    def test_between_cells(self):
        _, c = self.bound()
        c.run("c", "import os, threading\ngo, gone = threading.Event(), threading.Event()\n"
                   "def body():\n    go.wait(); os.write(1, b'between'); gone.set()\n"
                   "t = threading.Thread(target=body); t.start()\nasyncio.get_running_loop().call_soon(go.set)")
        c.run("d", "gone.wait()")
        c.run("e", "os.write(1, b'own')")
        self.assertIn(c.run("n", "output.read('native')")["value"], ("'between'", "''"))
        self.assertEqual(c.run("f", "output.read('e')")["value"], "'own'")

    # P-204: a cell that closes descriptors 1 and 2 prints on; its file does not take their place; the next cell has them again
    def test_closed(self):
        k, c = self.bound()
        done = c.run("c", "import os\nos.close(1); os.close(2)\nfor i in range(50_000): print(f'{i:09d}')")
        self.assertEqual((done["status"], done["output"]["size"]), ("ok", 500_000))
        self.assertEqual((done["output"]["spill"]["size"], done["output"]["spill"]["whole"]), (500_000, True))
        self.assertEqual(c.run("d", "os.write(1, b'one'); os.write(2, b'two')")["output"]["head"], "onetwo")
        with open(k.dir + "/native", "rb") as f:
            self.assertEqual(f.read(), b"onetwo")

    # P-204: what comes while no cell runs is counted and cut too; the file never stays large
    def test_idle_flood(self):
        k, c = self.bound()
        c.run("c", "import os, threading\ngo = threading.Event()\ndef body():\n    go.wait()\n    for i in range(40): os.write(1, b'z' * (1 << 20))\n"
                   "threading.Thread(target=body).start()\nasyncio.get_running_loop().call_later(0.05, go.set)")
        until, found = time.monotonic() + PATIENCE, None
        while time.monotonic() < until and (found is None or found.st_size < 40 * MIB or found.st_blocks * 512 > 17 * MIB):
            c.ping()
            found = os.stat(k.dir + "/native")
        self.assertEqual(found.st_size, 40 * MIB)
        self.assertLess(found.st_blocks * 512, 17 * MIB)
        sizes = c.run("n", "[output.read(x, None, 64).size for x in ('c', 'native')]")["value"]
        self.assertEqual(sizes, str([0, 40 * MIB]))

    # P-204, P-062: megabytes of native code that holds the interpreter lock: to the last byte in the file
    def test_lock_held(self):
        _, c = self.bound()
        done = c.run("c", "import ctypes\nb = b''.join(b'%09d\\n' % i for i in range(900_000))\n"
                          "at = 0\nwhile at < len(b): at += ctypes.PyDLL(None).write(1, b[at:], len(b) - at)")
        self.assertEqual(done["output"]["size"], 9_000_000)
        self.assertEqual(self.whole(c, "c", 9_000_000), "".join(f"{i:09d}\n" for i in range(900_000)))
        out = c.run("d", "b += b\nat = 0\nwhile at < len(b): at += ctypes.PyDLL(None).write(1, b[at:], len(b) - at)")["output"]
        self.assertEqual((out["size"], out["spill"]["size"], out["spill"]["whole"]), (18_000_000, 16 * MIB, False))
        self.assertEqual(out["tail"], "".join(f"{i:09d}\n" for i in range(890_000, 900_000))[-65536:])


class Files(Case):
    # P-062: the result names the file past the preview of 32 KiB, not before
    def test_note(self):
        k, c = self.attached()
        self.assertNotIn("spill", c.run("a", "print('x' * 32767)")["output"])
        out = c.run("b", "print('x' * 32768)")["output"]
        path = out["spill"]["path"]
        self.assertEqual(out["spill"], {"path": path, "size": 32_769, "whole": True})
        self.assertEqual(os.path.dirname(path), k.root + "/output")
        with open(path, encoding="utf-8") as f:
            self.assertEqual(f.read(), "x" * 32_768 + "\n")
        out = c.run("c", "for i in range(20): print('y' * (1 << 20), end='')")["output"]
        self.assertEqual((out["size"], out["spill"]["size"], out["spill"]["whole"]), (20 * MIB, 16 * MIB, False))
        self.assertEqual(os.stat(out["spill"]["path"]).st_size, 16 * MIB)

    # P-062, P-131: a page of what runs, while its cell holds the loop, and of what has ended
    def test_pages(self):
        _, c = self.attached()
        c.execute("c", "import os\nfor i in range(100_000): print(f'{i:09d}')\nopen('there', 'w').close()\n"
                       "while not os.path.exists('go'): pass\nprint('end')")
        c.printed("c", "000099999\n")
        page = self.ask(c, "cell_read", cell="c", offset=777_770, limit=20)["page"]
        self.assertEqual((page["text"], page["next_offset"], page["running"]), ("000077777\n000077778\n", 777_790, True))
        open(c.kernel.workspace + "/go", "w").close()
        c.done("c")
        page = self.ask(c, "cell_read", cell="c", limit=4)["page"]
        self.assertEqual((page["text"], page["size"], page["running"]), ("end\n", 1_000_004, False))
        for fields, code in (({"cell": "x"}, "cell_not_found"), ({"cell": "c", "offset": 1_000_005}, "invalid"),
                             ({"cell": "c", "offset": -1}, "invalid")):
            self.assertEqual(self.ask(c, "cell_read", limit=4, **fields)["code"], code)
        c.run("d", "for i in range(20): print('y' * (1 << 20), end='')")
        lost = self.ask(c, "cell_read", cell="d", offset=17 * MIB, limit=64)
        self.assertEqual(lost["code"], "output_lost")
        self.assertIn(f"the first {16 * MIB} bytes are: output.read('d', offset=0, limit=65536)", lost["error"])

    # P-131: a cell reads an older one's output by the same pages; a 5 MB line has no line ends to cut at
    def test_long_line(self):
        _, c = self.bound()
        c.run("c", "print('€' * 1_700_000, end='')")
        done = c.run("d", "text, at = '', 0\nwhile at is not None:\n    page = output.read('c', at, 65536); text += page; at = page.next_offset\n"
                          "text == '€' * 1_700_000")
        self.assertEqual(done["value"], "True")
        self.assertEqual(done["status"], "ok")

    # P-055: of the cells that have ended the 16 newest are kept
    def test_newest(self):
        _, c = self.bound()
        for i in range(17):
            c.run(f"c{i}", f"print({i})")
        self.assertEqual(self.ask(c, "cell_read", cell="c0", limit=64)["code"], "cell_not_found")
        self.assertEqual(self.ask(c, "cell_read", cell="c1", limit=64)["page"]["text"], "1\n")
        self.assertEqual(c.run("e", "output.read('c0')")["error"]["type"], "LookupError")

    # P-063: a disk that takes no more ends the file and nothing else
    def test_file_too_large(self):
        _, c = self.attached()
        done = c.run("c", "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))\n"
                          "for i in range(200_000): print(f'{i:09d}')")
        self.assertEqual((done["status"], done["output"]["size"]), ("ok", 2_000_000))
        self.assertEqual((done["output"]["spill"]["size"], done["output"]["spill"]["whole"]), (MIB, False))
        self.assertEqual(done["output"]["tail"][-10:], "000199999\n")
        self.assertEqual(c.run("d", "1 + 1")["value"], "2")

    # P-063: the directory goes away while a cell prints; memory still answers, the next cell makes it anew
    def test_directory_deleted(self):
        k, c = self.attached()
        done = c.run("c", f"import shutil\nprint('x' * 100_000); shutil.rmtree({k.root + '/output'!r}); print('y' * 2_000_000)")
        self.assertEqual((done["status"], done["output"]["size"]), ("ok", 2_100_002))
        self.assertEqual(self.ask(c, "cell_read", cell="c", offset=100_001, limit=4)["page"]["text"], "yyyy")
        gone = self.ask(c, "cell_read", cell="c", offset=1_500_000, limit=4)
        self.assertEqual(gone["code"], "output_lost")
        self.assertIn("missing", gone["error"])
        out = c.run("d", "print('z' * 100_000)")["output"]
        self.assertEqual(os.stat(out["spill"]["path"]).st_size, 100_001)

    # P-063: files of 14 days ago go at a start, which does not wait for it
    def test_pruned_at_start(self):
        directory = self.bundle()
        old = directory + "/old"
        open(old, "w").close()
        os.utime(old, (1, 1))
        _, c = self.attached(output=directory)
        done = c.run("c", "import threading\nfor t in threading.enumerate():\n    if t.name == 'soma prune': t.join()")
        self.assertEqual((done["status"], os.path.exists(old), os.path.exists(directory + "/soma_kernel.py")), ("ok", False, True))

    # P-062, P-203: bytes that are no text, in print's buffer and by descriptor, while the cell is read
    def test_binary(self):
        _, c = self.attached()
        done = c.run("c", "import os, sys\nb = bytes(range(256)) * 400\nsys.stdout.buffer.write(b)\nos.write(1, b)")
        text = (bytes(range(256)) * 400).decode("utf-8", "replace") * 2
        self.assertEqual(done["output"]["size"], len(text.encode()))
        self.assertEqual(self.whole(c, "c", done["output"]["size"]), text)
        self.assertEqual(done["output"]["head"] + done["output"]["tail"], text)


class Flood(Case):
    # P-212, P-062: 10 MB in 100,000 lines: readable by offset to the last byte, live pieces true, and fast
    def test_ten_megabytes(self):
        _, c = self.attached()
        line = "%05d" + "x" * 94 + "\n"
        text = "".join(line % i for i in range(100_000))
        rates = []
        for i in range(3):
            at = time.perf_counter()
            done = c.run(f"c{i}", "for i in range(100_000): print('%05d' % i + 'x' * 94)")
            rates.append(10 / (time.perf_counter() - at))
            self.assertEqual(done["output"]["size"], 10_000_000)
        self.assertEqual(self.whole(c, "c2", 10_000_000), text)
        for value in c.seen:
            if value.get("output", {}).get("cell") == "c2":
                offset, piece = value["output"]["offset"], value["output"]["text"]
                self.assertEqual(text[offset:offset + len(piece)], piece)
        self.assertGreater(statistics.median(rates), 10, rates)  # the goal is 80 MB/s on a quiet machine; bench measures it

    # P-055: once its 16 channels are full a kernel that prints on holds no more
    def test_memory(self):
        _, c = self.attached()
        held = []
        for i in range(36):
            c.run(f"c{i}", "for i in range(30_000): print('x' * 99)")
            if i in (17, 35):
                with open(f"/proc/{c.kernel.process.pid}/statm", encoding="ascii") as f:
                    held.append(int(f.read().split()[1]) * 4096)
        self.assertLess(held[1] - held[0], 6 * MIB)


def png(filler):
    """A whole PNG image of some size."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)) + chunk(b"teXt", b"a" * filler)
            + chunk(b"IDAT", zlib.compress(b"\0\x7f")) + chunk(b"IEND", b""))


class Images(Case):
    def put(self, k, name, data):
        with open(f"{k.workspace}/{name}", "wb") as f:
            f.write(data)
        return data

    # P-064: images travel in the done of the cell whose code showed them; the rest is named there
    def test_in_done(self):
        k, c = self.bound()
        data = self.put(k, "a.png", png(10))
        done = c.run("c", "for _ in range(5): show_image('a.png')")
        self.assertEqual([(i["media"], base64.b64decode(i["data"]), i["name"]) for i in done["images"]],
                         [("image/png", data, "a.png")] * 4)
        [line] = done["image_errors"]
        self.assertEqual(os.path.dirname(line.split("'")[1]), k.root + "/output")
        self.assertNotIn("images", c.run("d", "1"))
        self.assertEqual(c.run("e", line.rpartition("show_image")[2].join(("show_image", "")))["images"][0]["data"],
                         base64.b64encode(data).decode())
        self.assertIn("cut short", c.run("f", "show_image(open('a.png', 'rb').read()[:-1])")["error"]["message"])

    # P-041: each task's images go to its own cell
    def test_own_cell(self):
        k, c = self.bound()
        self.put(k, "a.png", png(1))
        self.put(k, "b.png", png(2))
        c.run("s", "go = asyncio.Event()")
        c.execute("first", "await go.wait()\nshow_image('a.png')")
        second = c.run("second", "show_image('b.png'); go.set()")
        self.assertEqual([second["images"][0]["name"], c.done("first")["images"][0]["name"]], ["b.png", "a.png"])

    # P-065: asked again, a result has its images as long as they are among the newest 8 MiB
    def test_replayed(self):
        k, c = self.bound()
        self.put(k, "a.png", png(4 * MIB))
        first = c.run("c1", "show_image('a.png')")
        self.assertEqual(c.run("c1", "never run")["images"], first["images"])
        c.run("c2", "show_image('a.png')")
        again = c.run("c1", "never run")
        self.assertNotIn("images", again)
        self.assertIn("not kept any more", again["image_errors"][0])
        self.assertIn("images", c.run("c2", "never run"))
