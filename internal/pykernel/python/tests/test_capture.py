"""Channels by themselves: what is kept, what lies in a file, and what a page, a preview, a save then give."""
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import tracemalloc
import unittest
from unittest import mock

import soma_spill
from soma_capture import Capture, CellCapture, Channels, OutputLost
from tests.client import BUNDLE

KIB, MIB = 1 << 10, 1 << 20
LIMIT = 16 * MIB


def pattern(n, seed=1):
    """n bytes that are different everywhere."""
    return random.Random(seed).randbytes(n)


def lines(n):
    return "".join(f"{i:09d}\n" for i in range(n))


class CaptureCase(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="out")
        self.addCleanup(shutil.rmtree, self.root, True)
        self.dir = self.root + "/output"

    def files(self):
        return sorted(os.listdir(self.dir)) if os.path.isdir(self.dir) else []

    def paged(self, capture, limit=64 * KIB, at=0):
        """The text of all pages in order, and the offset after the last."""
        text = []
        while True:
            page = capture.page(at, limit)
            if page["next_offset"] == at:
                return "".join(text), at
            text.append(page["text"])
            at = page["next_offset"]

    def lost(self, capture, *args):
        with self.assertRaises(OutputLost) as caught:
            capture.page(*args)
        return caught.exception


class Kept(CaptureCase):
    # P-055: the first 1 MiB and, only once more has arrived, the last 64 KiB; all of it is counted
    def test_first_and_last(self):
        data = pattern(3 * MIB)
        for step in (1 * KIB, 70_001, 3 * MIB):
            c = Capture("j")
            for at in range(0, len(data), step):
                c.add_bytes(data[at:at + step])
                self.assertEqual(c._tail is not None, c.size > MIB + 3)
                self.assertEqual(c.size, min(at + step, len(data)))
            self.assertEqual(c._bytes(0, MIB), data[:MIB])
            self.assertEqual(c._bytes(len(data) - 64 * KIB, len(data)), data[-64 * KIB:])
            self.assertLess(len(c._head) + len(c._tail), MIB + 130 * KIB)
            self.assertEqual(self.lost(c, MIB - 10, 64).kept, c.kept())

    # P-055: while the two parts touch nothing is lost
    def test_parts_touch(self):
        for size in (MIB - 1, MIB, MIB + 1, MIB + 3, MIB + 4, MIB + 64 * KIB, MIB + 64 * KIB + 3):
            c = Capture("j")
            data = pattern(size, size)
            for at in range(0, size, 9_999):
                c.add_bytes(data[at:at + 9_999])
            self.assertEqual(c._bytes(0, size), data)
            self.assertEqual(c.kept(), size)

    # P-055: 16 cells and 64 jobs that have ended are kept, every running one and "native" besides
    def test_channels(self):
        for many, opened, found in ((16, "open_cell", "cell"), (64, "open_job", "job")):
            channels = Channels()
            running = getattr(channels, opened)("long")
            for i in range(many + 3):
                getattr(channels, opened)(f"x{i}").close()
            self.assertEqual([getattr(channels, found)(f"x{i}") is not None for i in range(many + 3)],
                             [False] * 3 + [True] * many)
            self.assertIs(channels.get("long"), running)
            running.close()  # the newest that has ended
            self.assertIs(channels.get("long"), running)
            self.assertIsNone(channels.get("x3"))
            self.assertIsNotNone(channels.get("x4"))
            self.assertIs(channels.get("native"), channels.native)

    # P-055: a name that is used again is the newer channel, whatever happens to the older
    def test_name_again(self):
        channels = Channels()
        old, new = channels.open_job("j"), channels.open_job("j")
        old.close()
        self.assertIs(channels.get("j"), new)

    # P-056: bytes are never decoded on their way in, so a late pipe gets exactly them, as long as they fit
    def test_exact_bytes(self):
        c = Capture("j", self.dir)
        data = "€😀".encode() * 100_000 + b"\xff\x00\xfe"
        for at in range(0, len(data), 1001):
            c.add_bytes(memoryview(data)[at:at + 1001])
        self.assertEqual(c.bytes_from_start(), data)
        self.assertIsNone(c.bytes_from_start(len(data) - 1))
        c.add_bytes(b"x" * (MIB - len(data)))
        self.assertEqual(len(c.bytes_from_start()), MIB)
        c.add_bytes(b"x")
        self.assertIsNone(c.bytes_from_start())

    # P-056: of a huge ASCII print only what is kept is encoded
    def test_huge_print(self):
        text = "0123456789" * (12 * MIB)
        for directory, kept in ((None, MIB), (self.dir, LIMIT)):
            c = CellCapture("c", directory)
            encoded, add = [], c._add
            c._add = lambda data: (encoded.append(len(data)), add(data))
            tracemalloc.start()
            c.add_text(text)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            self.assertLess(peak, 8 * MIB)
            self.assertLessEqual(sum(encoded), kept + 2 * MIB)
            self.assertEqual(c.size, len(text))
            out = c.result()
            self.assertEqual((out["head"], out["tail"]), (text[:MIB], text[-64 * KIB:]))
            self.assertFalse(c.pending())  # nothing is shown live that the result has

    # P-056: a long print that is no ASCII is encoded in pieces, none of them lost
    def test_long_print(self):
        text = "aé€😀" * 700_000
        c = CellCapture("c", self.dir)
        c.add_text("first ")
        c.add_text(text)
        c.close()
        self.assertEqual(self.paged(c)[0], "first " + text)


class Pages(CaptureCase):
    # P-057, P-050: 4 to 65,536 bytes, anything else raises and says what to do
    def test_limits(self):
        c = Capture("j")
        c.add_bytes(b"0123456789")
        for limit in (3, 0, -1, 65_537, 1 << 40, 5.0, "5", None, True):
            with self.assertRaisesRegex(ValueError, "4 to 65536 bytes.*offset="):
                c.page(0, limit)
        for offset in (-1, 11, 1 << 70, 2.0, "0"):
            with self.assertRaisesRegex(ValueError, "not within this output: it has 10 bytes"):
                c.page(offset, 4)
        self.assertEqual(c.page(10, 4), {"offset": 10, "next_offset": 10, "size": 10, "running": True, "text": ""})
        self.assertEqual(c.page(2, 4)["text"], "2345")
        self.assertEqual(c.page(None, 4)["text"], "6789")

    # P-050, P-131: pages of any size join to the whole text, cut on characters
    def test_characters(self):
        text = "aé€😀\n" * 50
        c = Capture("j")
        c.add_bytes(text.encode())
        for limit in range(4, 40):
            self.assertEqual(self.paged(c, limit), (text, c.size))
        for back in range(4, 30):
            page = c.page(None, back)
            self.assertTrue(text.endswith(page["text"]))
            self.assertEqual(page["next_offset"] - page["offset"], len(page["text"].encode()))
            self.assertGreater(len(page["text"].encode()), back - 4)

    # P-050: half a character at the end of what runs waits for its other half; nothing follows what has ended
    def test_half_waits(self):
        c = Capture("j")
        c.add_bytes(b"ab\xf0\x9f")
        self.assertEqual(c.page(0, 64), {"offset": 0, "next_offset": 2, "size": 4, "running": True, "text": "ab"})
        self.assertEqual(c.page(2, 64)["text"], "")
        self.assertEqual(c.tail(10), "ab")
        c.add_bytes(b"\x98\x80c\xe2")
        self.assertEqual((c.page(2, 64)["text"], c.page(2, 64)["next_offset"]), ("😀c", 7))
        c.close()
        self.assertEqual((c.page(2, 64)["text"], c.page(2, 64)["next_offset"]), ("😀c\ufffd", 8))
        self.assertFalse(c.page(2, 64)["running"])

    # P-131: bytes of half a character at a page's edge are left out, other invalid ones replaced; pages always get on
    def test_invalid(self):
        c = Capture("j")
        c.add_bytes("x€y".encode())
        self.assertEqual((c.page(2, 64)["text"], c.page(3, 64)["text"]), ("y", "y"))
        for seed in range(20):
            c = Capture("j")
            c.add_bytes(pattern(5000, seed))
            c.close()
            for limit in (4, 5, 333):
                at, steps = 0, 0
                while at < c.size:
                    page = c.page(at, limit)
                    self.assertLess(at, page["next_offset"])
                    self.assertLessEqual(page["next_offset"], at + limit)
                    at, steps = page["next_offset"], steps + 1
                self.assertLessEqual(steps, 5000)
            self.assertEqual(c.text(), pattern(5000, seed).decode("utf-8", "replace"))

    # P-131: a page that touches what was lost refuses, names the prefix and a call that works; the end stays readable
    def test_lost(self):
        c = Capture("it's", self.dir)
        data = pattern(20 * MIB)
        for at in range(0, len(data), MIB):
            c.add_bytes(data[at:at + MIB])
        self.assertEqual(c.kept(), LIMIT)
        for offset in (LIMIT - 100, LIMIT - 2, LIMIT, 18 * MIB, 20 * MIB - 64 * KIB - 4000):
            error = self.lost(c, offset, 8000)
            self.assertEqual((error.kept, error.code), (LIMIT, "output_lost"))
            call = str(error).rpartition("are: ")[2]
            self.assertIn(f"the first {LIMIT} bytes are", str(error))
            page = eval(call, {"output": mock.Mock(read=lambda name, offset, limit: (name, c.page(offset, limit)))})
            self.assertEqual(page[0], "it's")
            self.assertGreater(page[1]["next_offset"], page[1]["offset"])
        self.assertEqual(c._bytes(LIMIT - 100, LIMIT), data[LIMIT - 100:LIMIT])
        self.assertEqual(c.page(None, 64 * KIB)["next_offset"], 20 * MIB)
        self.assertEqual(c._bytes(20 * MIB - 64 * KIB, 20 * MIB), data[-64 * KIB:])

    # P-131: errors survive pickling, as the results of executors do
    def test_error_pickles(self):
        import pickle
        again = pickle.loads(pickle.dumps(OutputLost("x", 7)))
        self.assertEqual((str(again), again.kept), ("x", 7))


class Previews(CaptureCase):
    # P-058: characters and lines, lines= wins, zero is empty, the whole where it is shorter
    def test_plain(self):
        c = Capture("j")
        c.add_bytes("één\ntwo\nthree".encode())
        self.assertEqual((c.head(2), c.tail(2), c.head(0), c.tail(0), c.head(5, lines=0), c.tail(5, lines=0)),
                         ("éé", "ee", "", "", "", ""))
        self.assertEqual((c.head(1, lines=2), c.tail(1, lines=2)), ("één\ntwo\n", "two\nthree"))
        self.assertEqual((c.head(lines=9), c.tail(lines=9), c.head(), c.tail(64 * KIB)), ("één\ntwo\nthree",) * 4)
        c.add_bytes(b"\n")
        self.assertEqual((c.tail(lines=1), c.tail(lines=2)), ("three\n", "two\nthree\n"))

    # P-058: out of range or beyond the window raises and names the way out; nothing is shortened silently
    def test_never_clamped(self):
        c = Capture("j")
        for args in ((-1, None), (64 * KIB + 1, None), (1, -1), (1, 64 * KIB + 1), (1.5, None), ("5", None)):
            for call in (c.head, c.tail):
                with self.assertRaisesRegex(ValueError, r"job\.read\(offset=.*job\.save\(path\)"):
                    call(*args)
        c.add_bytes("€".encode() * 30_000)  # 90,000 bytes: 21,845 characters are in the window
        self.assertEqual((len(c.head(21_845)), len(c.tail(21_845))), (21_845, 21_845))
        for call in (c.head, c.tail):
            with self.assertRaisesRegex(ValueError, "so many characters.*job.read"):
                call(21_846)
        cell = CellCapture("c9")
        with self.assertRaisesRegex(ValueError, r"use output\.read\('c9', offset="):
            cell.head(1 << 20)

    # P-058: a line that the window cuts does not count
    def test_cut_line(self):
        c = Capture("j")
        c.add_bytes(lines(7000).encode())  # 70,000 bytes; 6,553 whole lines are in the window of 65,536
        self.assertEqual((c.head(lines=6553), c.tail(lines=6553)), (lines(6553), lines(7000)[-65_530:]))
        for call in (c.head, c.tail):
            with self.assertRaisesRegex(ValueError, "so many lines"):
                call(lines=6554)
        c = Capture("j")
        c.add_bytes(b"x\n" + b"y\n" * (32 * KIB))  # the window begins with a whole line
        self.assertEqual(len(c.tail(lines=32 * KIB)), 64 * KIB)

    # P-059: the whole text of what has ended, at most 1 MiB; a 5 MB line is read in pages
    def test_whole(self):
        c = Capture("j", self.dir)
        c.add_bytes(b"\xff" + b"x" * (MIB - 1))
        with self.assertRaisesRegex(ValueError, r"still runs.*output\.read\('j', offset=0, limit=65536\)"):
            c.text()
        late = Capture("k", self.dir)
        late.add_bytes(b"y" * 5_000_000)
        late.close()
        c.close()
        self.assertEqual(c.text(), "\ufffd" + "x" * (MIB - 1))
        with self.assertRaisesRegex(ValueError, r"5000000 bytes.*1048576.*output\.read\('k', offset=0, limit=65536\)"):
            late.text()
        self.assertEqual(self.paged(late), ("y" * 5_000_000, 5_000_000))


class Files(CaptureCase):
    # P-062: cells past 32 KiB, jobs past 1 MiB; the first overflow writes all that came before, the rest at once
    def test_overflow(self):
        for make, bound in ((CellCapture, 32 * KIB), (Capture, MIB)):
            c = make("x", self.dir)
            text = lines(bound // 10 + 1)[:bound]
            c.add_bytes(text.encode())
            self.assertEqual((self.files(), c.spill_note()), ([], None))
            c.add_bytes(b"z")
            [name] = self.files()
            with open(f"{self.dir}/{name}", "rb") as f:
                self.assertEqual(f.read(), text.encode() + b"z")
            c.add_bytes(b"more")
            self.assertEqual(os.stat(f"{self.dir}/{name}").st_size, bound + 5)  # nothing waits in a buffer
            self.assertEqual(c.spill_note(), {"path": f"{self.dir}/{name}", "size": bound + 5, "whole": True})
            os.unlink(f"{self.dir}/{name}")
            c.close()

    # P-062: 16 MiB on the disk, at any size of the writes; the note says that it is not the whole
    def test_bound(self):
        data = pattern(LIMIT + 3 * MIB)
        for step in (64 * KIB, 999_983, len(data)):
            c = Capture("x", self.dir)
            for at in range(0, len(data), step):
                c.add_bytes(data[at:at + step])
            note = c.spill_note()
            with open(note["path"], "rb") as f:
                self.assertEqual(f.read(), data[:LIMIT])
            self.assertEqual((note["size"], note["whole"], c.size), (LIMIT, False, len(data)))
            self.assertEqual(c._bytes(LIMIT - 70_000, LIMIT), data[LIMIT - 70_000:LIMIT])

    # P-062: what comes after the end is kept as well
    def test_after_the_end(self):
        c = CellCapture("c", self.dir)
        c.add_text(lines(4000))
        c.result()
        before = len(os.listdir("/proc/self/fd"))
        c.keep("[result] 1")
        c.add_text("late")
        self.assertEqual(self.paged(c)[0], lines(4000) + "[result] 1late")
        self.assertTrue(c.spill_note()["whole"])
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    # P-063: a readable start and a hash, whatever the name holds; 0600 in 0700
    def test_names(self):
        mask = os.umask(0)
        self.addCleanup(os.umask, mask)
        for name in ("call_01", "../../etc/passwd", "x" * 400, "é\0/\ud800", ""):
            c = CellCapture(name, self.dir)
            c.add_text("x" * (33 * KIB))
            path = c.spill_note()["path"]
            self.assertEqual(os.path.dirname(path), self.dir)
            self.assertRegex(os.path.basename(path), r"^[A-Za-z0-9-]{0,24}-[0-9a-f]{12}$")
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(self.dir).st_mode & 0o777, 0o700)
        self.assertTrue(any(n.startswith("call-01-") for n in self.files()))
        again = CellCapture("call_01", self.dir)  # as another kernel's cell: a file of its own
        again.add_text("y" * (33 * KIB))
        again.close()
        self.assertEqual(len(self.files()), 6)

    # P-063: 14 days; folders, links and what is younger stay
    def test_prune(self):
        os.makedirs(self.dir + "/folder")
        now, day = 1_800_000_000, 86_400
        for name, age in (("old", 14 * day + 1), ("young", 14 * day - 1), ("target", 14 * day - 1)):
            with open(f"{self.dir}/{name}", "w"):
                pass
            os.utime(f"{self.dir}/{name}", (now - age, now - age))
        os.symlink("target", self.dir + "/link")
        os.utime(self.dir + "/link", (1, 1), follow_symlinks=False)
        os.utime(self.dir + "/folder", (1, 1))
        soma_spill.prune(self.dir, now)
        self.assertEqual(self.files(), ["folder", "link", "target", "young"])
        soma_spill.prune(self.root + "/none", now)

    # P-063: without a directory of its own: the temp directory, if it is this user's alone
    def test_temporary(self):
        with mock.patch.dict(os.environ, TMPDIR=self.root):
            path = soma_spill.temporary()
            self.assertEqual((path, os.stat(path).st_mode & 0o777), (f"{self.root}/soma-output-{os.getuid()}", 0o700))
            os.chmod(path, 0o777)
            self.assertIsNone(soma_spill.temporary())
            os.rmdir(path)
            os.symlink("/tmp", path)
            self.assertIsNone(soma_spill.temporary())
        with mock.patch.dict(os.environ, TMPDIR="/dev/null"):
            self.assertIsNone(soma_spill.temporary())

    # P-063: a missing or shortened file raises where it is needed; memory still answers
    def test_file_gone(self):
        for damage in (os.unlink, lambda p: os.truncate(p, 3 * MIB), lambda p: (os.rename(p, p + "x"), os.symlink(p + "x", p))):
            c = Capture("j", self.dir)
            c.add_bytes(pattern(4 * MIB))
            c.close()
            path = c.spill_note()["path"]
            damage(path)
            error = self.lost(c, 3 * MIB - 10, 64)
            self.assertRegex(str(error), "is missing or shorter")
            self.assertIn(path, str(error))
            self.assertEqual(error.kept, MIB + 3)
            self.assertEqual(c._bytes(0, MIB), pattern(4 * MIB)[:MIB])
            self.assertEqual(c._bytes(4 * MIB - 64 * KIB, 4 * MIB), pattern(4 * MIB)[-64 * KIB:])
            with self.assertRaises(OutputLost):
                c.save(self.root + "/target")
            self.assertEqual(os.listdir(self.root), ["output"])

    # P-063: the directory is deleted while a channel writes: the writer goes on, the reader is told
    def test_directory_gone(self):
        c = CellCapture("c", self.dir)
        c.add_text(lines(200_000))
        shutil.rmtree(self.dir)
        c.add_text(lines(1000))
        self.assertEqual(c.result()["tail"][-10:], "000000999\n")
        self.assertRegex(str(self.lost(c, MIB + 100_000, 64)), "missing")
        again = CellCapture("d", self.dir)  # and the next one makes it anew
        again.add_text(lines(20_000))
        self.assertEqual(self.paged(again)[0], lines(20_000))

    # P-063: no directory can be made: only the spilling is off
    def test_no_directory(self):
        with open(self.dir, "w"):
            pass
        c = CellCapture("c", self.dir)
        c.add_text(lines(300_000))
        self.assertEqual((c.size, c.spill_note()), (3_000_000, None))
        self.assertEqual(c.head(10), "000000000\n")
        self.assertRegex(str(self.lost(c, 2 * MIB, 64)), f"the first {MIB + 3} bytes")

    # P-063: a full disk (a real one) stops the spilling and nothing else, also when there is room again
    def test_disk_full(self):
        if os.getuid() == 0:
            os.mkdir(self.dir)
            self.check_in("unshare", "-m", "sh", "-ec",
                          'mount -t tmpfs -o size=2m none "$1"; exec "$0" -c "$2" "$1"', sys.executable, self.dir)
        self.check_in("sh", "-ec", 'ulimit -f 4096; trap "" XFSZ; mkdir "$1/limited"; exec "$0" -c "$2" "$1/limited"',
                      sys.executable, self.root)

    def check_in(self, *command):
        """Run what fills a disk of 2 MiB."""
        code = f"""if True:
            import os, sys
            sys.path.insert(0, {BUNDLE!r})
            from soma_capture import Capture, CellCapture, OutputLost
            for make in (CellCapture, Capture):
                c = make("c", sys.argv[1])
                data = (b"%09d" % 7 + b"e") * 1000
                for i in range(500):
                    c.add_bytes(data)
                note = c.spill_note()
                assert c.size == 5_000_000 and not note["whole"], note
                assert 1 << 20 < note["size"] <= 2 << 20 and note["size"] == os.stat(note["path"]).st_size, note
                assert c.page(note["size"] - 1000, 1000)["next_offset"] == note["size"]
                try:
                    c.page(note["size"] - 100, 1000)
                except OutputLost as e:
                    assert e.kept == note["size"]
                else:
                    raise AssertionError("a page of what was lost")
                os.truncate(note["path"], 0)
                c.add_bytes(data)
                assert c.spill_note()["size"] == note["size"] and os.stat(note["path"]).st_size == 0
                c.close()
                try:
                    c.save(sys.argv[1] + "/saved")
                except OutputLost:
                    pass
                else:
                    raise AssertionError("saved")
                os.unlink(note["path"])
            print("done", os.listdir(sys.argv[1]))
        """
        done = subprocess.run([*command, code], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "done []\n"), done.stderr)

    # P-203: a signal handler that raises in the midst of a write loses a piece of the file, never its order
    def test_interrupted_write(self):
        c = Capture("j", self.dir)
        c.add_bytes(pattern(2 * MIB))
        with mock.patch.object(os, "pwrite", side_effect=KeyboardInterrupt):
            self.assertRaises(KeyboardInterrupt, c.add_bytes, b"lost")
        c.add_bytes(b"after")
        self.assertEqual(c.spill_note(), {"path": c._spill.path, "size": 2 * MIB, "whole": False})
        self.assertEqual(c._bytes(c.size - 9, c.size), b"lostafter")


class Save(CaptureCase):
    def ended(self, data, directory=True):
        c = Capture("j", self.dir if directory else None)
        c.add_bytes(data)
        c.close()
        return c

    # P-060: the exact bytes, in place of what was there, by absolute path
    def test_exact(self):
        target = self.root + "/target"
        for data in (b"", b"\xff\x00\xe2", pattern(5 * MIB), pattern(LIMIT + 60 * KIB)):
            with open(target, "w") as f:
                f.write("old")
            before = os.getcwd()
            os.chdir(self.root)
            try:
                self.assertEqual(self.ended(data).save("target"), os.path.realpath(target))
            finally:
                os.chdir(before)
            with open(target, "rb") as f:
                self.assertEqual(f.read(), data)

    # P-060: a link is followed, as open() does; a name may be as long as the file system lets it
    def test_link_and_long_name(self):
        long = self.root + "/" + "n" * 255
        os.symlink("n" * 255, self.root + "/link")
        self.assertEqual(self.ended(b"abc").save(self.root + "/link"), self.root + "/link")
        with open(long, "rb") as f:
            self.assertEqual(f.read(), b"abc")
        self.assertTrue(os.path.islink(self.root + "/link"))

    # P-060: in 64 KiB chunks, never the whole file in memory
    def test_chunks(self):
        c = self.ended(pattern(8 * MIB))
        tracemalloc.start()
        c.save(self.root + "/target")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        self.assertLess(peak, 512 * KIB)

    # P-060: running, lost or no room: refused, and the target is as it was, without a draft beside it
    def test_refused(self):
        target = self.root + "/target"
        with open(target, "w") as f:
            f.write("old")
        running = Capture("j", self.dir)
        running.add_bytes(b"x")
        lost = self.ended(pattern(3 * MIB), directory=False)
        for c, error in ((running, ValueError), (lost, OutputLost)):
            self.assertRaises(error, c.save, target)
        with mock.patch.object(os, "write", side_effect=OSError(28, "no space")):
            self.assertRaises(OSError, self.ended(b"abc").save, target)
        self.assertRaises(OSError, self.ended(b"abc").save, self.root + "/none/target")
        os.mkdir(self.root + "/folder")
        os.mkfifo(self.root + "/pipe")
        for name in ("/folder", "/pipe"):
            with self.assertRaisesRegex(ValueError, "is no file"):
                self.ended(b"abc").save(self.root + name)
        with open(target) as f:
            self.assertEqual(f.read(), "old")
        self.assertEqual(sorted(n for n in os.listdir(self.root) if n != "output"), ["folder", "pipe", "target"])


class Threads(CaptureCase):
    # P-062, P-203: many writers and a reader at once: nothing lost, pages true
    def test_at_once(self):
        c = CellCapture("c", self.dir)
        ended = threading.Event()
        read = []

        def write(n):
            for i in range(20_000):
                c.add_text(f"{n}.{i:05d}\n")

        def look():
            at = 0
            while True:
                last = ended.is_set()
                page = c.page(at, 64 * KIB)
                read.append(page["text"])
                at = page["next_offset"]
                if last and at == c.size:
                    return

        writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        reader = threading.Thread(target=look)
        for t in (*writers, reader):
            t.start()
        for t in writers:
            t.join()
        ended.set()
        reader.join()
        text = "".join(read)
        self.assertEqual(sorted(text.split()), sorted(f"{n}.{i:05d}" for n in range(4) for i in range(20_000)))
        self.assertEqual(self.paged(c)[0], text)


class Images(unittest.TestCase):
    # P-064: four images and 5 MiB in all
    def test_budget(self):
        c = CellCapture("c")
        self.assertEqual([c.add_image("image/png", b"x" * n) for n in (1 * MIB, 4 * MIB + 1, 4 * MIB, 1)],
                         [True, False, True, False])
        c = CellCapture("c")
        self.assertEqual([c.add_image("image/png", b"x", str(i)) for i in range(5)], [True] * 4 + [False])
        self.assertEqual(c.attachments()["images"][3], {"media": "image/png", "data": "eA==", "name": "3"})
        c = CellCapture("c")
        self.assertEqual(c.attachments(), {})
        c.result()
        self.assertFalse(c.add_image("image/png", b"x"))
