"""`output`: pages of channels, whose wakes they retire, and the host call for shell commands."""
import asyncio
import os
import pickle
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.abspath(os.path.join(HERE, "../../../pykernel/python"))]

import soma_capture  # noqa: E402
import soma_out  # noqa: E402
import soma_page  # noqa: E402


class Api:
    """What `output` needs of a kernel's API."""

    def __init__(self):
        self.channels = soma_capture.Channels()
        self.names, self.read, self.asked = {}, [], []
        self.pages = []

    def provide(self, name, value):
        self.names[name] = value

    def seen(self, **what):
        self.read.append(what)

    async def call(self, method, args):
        self.asked.append((method, args))
        return self.pages.pop(0)


class Case(unittest.TestCase):
    def setUp(self):
        self.api = Api()
        soma_out.setup(self.api)
        self.output = self.api.names["output"]


class Read(Case):
    # P-057, P-131: cells, jobs and native alike, by offset to the last byte
    def test_pages(self):
        job = self.api.channels.open_job("j1")
        job.add_bytes(b"0123456789")
        page = self.output.read("j1", limit=4)
        self.assertEqual((page, page.offset, page.next_offset, page.size, page.running), ("0123", 0, 4, 10, True))
        end = self.output.read("j1", 8, 64)
        self.assertEqual((end, end.next_offset), ("89", 10))  # it may go on
        job.close()
        self.assertEqual(self.output.read("j1", end.next_offset).next_offset, None)
        self.assertEqual((self.output.read("j1", offset=None, limit=4), self.output.read("j1").next_offset), ("6789", None))
        self.api.channels.open_cell("c1").add_text("x" * 100_000)
        got, at = "", 0
        while at < 100_000:
            page = self.output.read("c1", at, 64 << 10)
            got, at = got + page, page.next_offset
        self.assertEqual(got, "x" * 100_000)
        self.api.channels.native.add_bytes(b"n")
        self.assertEqual(self.output.read("native"), "n")

    # P-057: over 64 KiB raises; so does what is not kept
    def test_refused(self):
        job = self.api.channels.open_job("j1")
        job.add_bytes(b"x" * (3 << 20))
        for limit in (65_537, 1 << 30, 3, 0):
            with self.assertRaisesRegex(ValueError, "4 to 65536"):
                self.output.read("j1", 0, limit)
        with self.assertRaises(soma_capture.OutputLost):
            self.output.read("j1", 2 << 20)
        for name in ("j2", "", None, 7, b"j1"):
            with self.assertRaisesRegex(LookupError, "no output of"):
                self.output.read(name)

    # P-044: reading what has ended retires its wake; reading what runs does not, nor does a page that was refused
    def test_seen(self):
        job, cell = self.api.channels.open_job("j1"), self.api.channels.open_cell("c1")
        self.output.read("j1")
        self.output.read("c1")
        self.assertEqual(self.api.read, [])
        job.close()
        cell.result()
        self.assertRaises(ValueError, self.output.read, "j1", 1)
        self.output.read("j1")
        self.output.read("c1")
        self.output.read("native")
        self.assertEqual(self.api.read, [{"job": "j1"}, {"cell": "c1"}])

    # P-131: a page is text like any other, and pickles with its place
    def test_page(self):
        page = soma_page.Page("text", 3, 7, 9, True)
        again = pickle.loads(pickle.dumps(page))
        self.assertEqual((again, vars(again)), ("text", vars(page)))
        self.assertEqual(page.upper(), "TEXT")


class Shell(Case):
    # P-061: one host call a page; null ends it
    def test_read_shell(self):
        self.api.pages = [{"text": "ab", "next_offset": 2}, {"text": "c", "next_offset": None}]
        first = asyncio.run(self.output.read_shell("s1", limit=4))
        last = asyncio.run(self.output.read_shell("s1", first.next_offset))
        self.assertEqual((first, first.next_offset, last, last.next_offset), ("ab", 2, "c", None))
        self.assertEqual(self.api.asked, [("output.read_shell", {"id": "s1", "offset": 0, "limit": 4}),
                                          ("output.read_shell", {"id": "s1", "offset": 2, "limit": 4000})])

    # P-061: bad ranges do not reach the daemon
    def test_bad(self):
        for args in ((1,), ("s", -1), ("s", "0"), ("s", 0, 3), ("s", 0, 65_537), ("s", 0, None)):
            with self.assertRaises((ValueError, TypeError)):
                asyncio.run(self.output.read_shell(*args))
        self.assertEqual(self.api.asked, [])
