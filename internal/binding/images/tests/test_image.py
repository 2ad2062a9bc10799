"""`show_image`: what it takes, what it refuses and why, and where the rest goes."""
import os
import pathlib
import random
import shutil
import stat
import struct
import sys
import tempfile
import tracemalloc
import unittest
import zlib
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.abspath(os.path.join(HERE, "../../../pykernel/python"))]

import soma_capture  # noqa: E402
import soma_image  # noqa: E402

MIB = 1 << 20


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width=3, height=2, filler=0):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    text = chunk(b"teXt", b"a" * filler) if filler else b""
    rows = b"" if width * height > 1000 else b"".join(b"\0" + b"\x7f" * width for _ in range(height))
    return b"\x89PNG\r\n\x1a\n" + header + text + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def segment(marker, body):
    return bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body


def jpeg(width=3, height=2, frame=0xC0, scans=1):
    start = b"\xff\xd8" + segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0") + segment(0xFE, b"\xff\xd9 in a comment")
    size = segment(frame, b"\x08" + struct.pack(">HH", height, width) + b"\1\1\x11\0")
    scan = segment(0xC4, bytes(17)) + segment(0xDA, b"\1\1\0\0\x3f\0") + b"\x12\xff\x00\x34\xff\xd0\x56\xff"
    return start + b"\xff" + size + scan * scans + b"\xff\xd9"


def webp(*chunks):
    body = b"WEBP" + b"".join(k + struct.pack("<I", len(b)) + b + b"\0" * (len(b) % 2) for k, b in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def vp8(width=3, height=2):
    return b"VP8 ", struct.pack("<I", 4 << 5 | 0x10)[:3] + b"\x9d\x01\x2a" + struct.pack("<HH", width, height | 0x4000) + b"data"


def vp8l(width=3, height=2):
    return b"VP8L", b"\x2f" + struct.pack("<I", width - 1 | height - 1 << 14) + b"data"


def vp8x(width=3, height=2):
    return b"VP8X", b"\x10\0\0\0" + struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]


WHOLE = {
    "png": png(), "jpeg": jpeg(), "progressive jpeg": jpeg(frame=0xC2, scans=3), "webp": webp(vp8()), "lossless webp": webp(vp8l()),
    "extended webp": webp(vp8x(), (b"ICCP", b"odd"), vp8l()), "animated webp": webp(vp8x(), (b"ANIM", b"123456"), (b"ANMF", b"x" * 30)),
}
MEDIA = {"png": "image/png", "jpeg": "image/jpeg", "webp": "image/webp"}


class Api:
    """What `show_image` needs of a kernel's API."""

    def __init__(self, output_dir):
        self.output_dir = output_dir
        self.out = soma_capture.CellCapture("c1")
        self.names = {}

    def provide(self, name, value):
        self.names[name] = value

    def capture(self):
        return self.out


class Structure(unittest.TestCase):
    # P-064: the three kinds, told apart and measured without a decoder
    def test_whole(self):
        for name, data in WHOLE.items():
            self.assertEqual(soma_image.measure(data, name), (MEDIA[name.split()[-1]], 3, 2), name)

    # P-064: cut short anywhere, it is refused by name
    def test_cut_short(self):
        for name, data in WHOLE.items():
            for n in range(len(data)):
                with self.assertRaisesRegex(ValueError, name):
                    soma_image.measure(data[:n], name)

    # P-064: what is broken raises ValueError and nothing else
    def test_broken(self):
        draw = random.Random(7)
        for name, data in WHOLE.items():
            for at in range(len(data)):
                for _ in range(8):
                    broken = bytearray(data)
                    broken[at] = draw.randrange(256)
                    try:
                        soma_image.measure(bytes(broken), name)
                    except ValueError as e:
                        self.assertIn(name, str(e))
        for data in (b"", b"GIF89a" + b"x" * 50, b"%PDF-1.7", b"RIFF\x04\0\0\0WAVE", b"\x89PNG", b"\xff\xd8", b"<svg/>"):
            with self.assertRaises(ValueError):
                soma_image.measure(data, "x")

    # P-064: what each kind must have
    def test_invalid(self):
        head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 3, 2, 8, 0, 0, 0, 0))
        bad = bytearray(png())
        bad[-14] ^= 1
        for data, why in (
            (head + chunk(b"IEND", b""), "no data"), (bytes(bad), "checksum"), (head + head[8:] + png()[33:], "not where"),
            (png()[:8] + png()[33:], "not where"), (png(0, 2), "no pixels"), (jpeg(3, 0), "no pixels"),
            (b"\xff\xd8\xff\xd9", "no data"), (webp(), "no data"), (webp((b"VP8 ", b"\1" * 20)), "key frame"), (webp((b"VP8L", b"xxxxxx")), "no header"),
            (webp((b"VP8 ", b"\xf0\xff\xff" + vp8()[1][3:])), "cut short"), (b"RIFF\x04\0\0\0WAVE", "another RIFF"),
        ):
            with self.assertRaisesRegex(ValueError, why):
                soma_image.measure(data, "x")


class Case(unittest.TestCase):
    def setUp(self):
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="image"))
        self.addCleanup(shutil.rmtree, self.root, True)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.root)  # where cells look, wherever the workspace is
        self.api = Api(self.root + "/output")
        soma_image.setup(self.api)
        self.show = self.api.names["show_image"]

    def put(self, name, data):
        with open(self.root + "/" + name, "wb") as f:
            f.write(data)
        return self.root + "/" + name

    def refused(self, why, *sources, error=ValueError):
        with self.assertRaisesRegex(error, why):
            self.show(*sources)
        self.assertEqual((self.api.out.images, self.api.out.image_errors, os.path.exists(self.api.output_dir)), ([], [], False))


class Show(Case):
    # P-064: bytes of any kind and paths of any kind, in their order, untouched
    def test_sources(self):
        self.put("plot.png", png())
        self.assertIsNone(self.show("plot.png", pathlib.Path(self.root, "plot.png"), bytearray(jpeg()), memoryview(webp(vp8()))))
        self.assertEqual(self.api.out.images, [
            {"media": "image/png", "data": png(), "name": "plot.png"}, {"media": "image/png", "data": png(), "name": "plot.png"},
            {"media": "image/jpeg", "data": jpeg()}, {"media": "image/webp", "data": webp(vp8())}])

    # P-064: the fifth image, and one too many bytes: saved as they are, and said so with the call that shows them
    def test_overflow(self):
        self.put("big one.png", png(filler=3 * MIB))
        text = self.show(png(), png(filler=3 * MIB), "big one.png", jpeg(), webp(vp8()), jpeg())
        self.assertEqual([i["media"] for i in self.api.out.images], ["image/png", "image/png", "image/jpeg", "image/webp"])
        self.assertEqual(repr(text), str(text))  # as a cell's value it is shown as it is
        self.assertEqual(self.api.out.image_errors, text.split("\n"))
        again = []
        for line, name, start, data in zip(text.split("\n"), ("big one.png", "an image"), ("big-one-", "image-"),
                                           (png(filler=3 * MIB), jpeg()), strict=True):
            self.assertTrue(line.startswith(name + " is not shown"), line)
            self.assertIn("in another cell: show_image('" + self.api.output_dir + "/" + start, line)
            path = eval(line.rpartition("show_image")[2])
            with open(path, "rb") as f:
                self.assertEqual(f.read(), data)
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            again.append(path)
        self.assertEqual([os.path.splitext(p)[1] for p in again], [".png", ".jpg"])
        self.api.out = soma_capture.CellCapture("c2")
        self.assertIsNone(self.show(*again))

    # P-064: without an output directory the rest goes to a temporary one
    def test_temporary(self):
        self.api.output_dir = None
        with mock.patch.object(tempfile, "tempdir", self.root):
            text = self.show(*[png()] * 5)
        path = eval(text.rpartition("show_image")[2])
        self.assertTrue(path.startswith(self.root + "/soma-output-"))
        self.assertTrue(os.path.exists(path))

    # P-064: a save that fails raises, and leaves no file
    def test_no_room_to_save(self):
        with mock.patch("soma_spill.write_all", side_effect=OSError(28, "no space")), self.assertRaises(OSError):
            self.show(*[png()] * 5)
        self.assertEqual(os.listdir(self.api.output_dir), [])

    # P-064: over 5 MiB: its size and what to do, and a large file is not read
    def test_too_large(self):
        path = self.put("huge.png", b"")
        os.truncate(path, 1 << 40)
        tracemalloc.start()
        self.refused("huge.png has 1099511627776 bytes, a cell shows at most 5242880: make it smaller, crop it", path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        self.assertLess(peak, MIB)
        self.refused("the image has 5242881 bytes", b"x" * (5 * MIB + 1))
        self.refused("the image has 8388608 bytes", memoryview(bytearray(8 * MIB)).cast("Q"))
        data = png(filler=5 * MIB - len(png()) - 12)
        self.assertEqual(len(data), 5 * MIB)
        self.assertIsNone(self.show(self.put("fits.png", data)))

    # P-064: invalid, cut short or too long a side: nothing of the call is shown
    def test_refused(self):
        self.refused("cut short", png(), png()[:-3])
        self.refused("bad.png is no PNG, JPEG or WebP image", self.put("bad.png", b"text"))
        self.refused("the image is 8001 × 2 pixels, a side has at most 8000", png(8001, 2))
        self.refused("2 × 8001", jpeg(2, 8001))
        self.refused("16777216 × 1 ", webp(vp8x(1 << 24, 1), vp8l()))
        self.refused("not Axes: write it to a file or a BytesIO", type("Axes", (), {})(), error=TypeError)
        self.refused("not int", 3, error=TypeError)
        self.refused("none.png", "none.png", error=FileNotFoundError)
        self.refused("is no file|a directory", self.root, error=(ValueError, IsADirectoryError))
        os.mkfifo(self.root + "/pipe")
        self.refused("is no file", "pipe")  # without waiting for a writer
        self.assertIsNone(self.show(png(8000, 8000)))

    # P-064: no cell, or one that has ended, takes no image
    def test_no_cell(self):
        self.api.out.result()
        self.refused("no cell runs here", png(), error=RuntimeError)
        self.api.out = None
        with self.assertRaisesRegex(RuntimeError, "no cell runs here"):
            self.show(png())
