"""Kept results: how many, and whose images."""
import unittest

from soma_results import GONE, Results
from soma_wire import CELLS_FINISHED, IMAGES_KEPT, decode


def done(size=0, **more):
    images = {"images": [{"media": "image/png", "data": "x" * size}]} if size else {}
    return {"type": "done", "value": "1", **images, **more}


class Kept(unittest.TestCase):
    # P-065: the 16 newest
    def test_newest(self):
        results = Results()
        for i in range(CELLS_FINISHED + 2):
            body = results.put(f"c{i}", done(value=str(i)))
            self.assertIs(results.get(f"c{i}"), body)
        self.assertEqual(results.names(), [f"c{i}" for i in range(2, CELLS_FINISHED + 2)])
        self.assertIsNone(results.get("c1"))
        self.assertEqual(decode(results.get("c2"))["value"], "2")

    # P-065: 8 MiB of base64 over all of them, newest first; an older one says that its images are gone and keeps the rest
    def test_images(self):
        results = Results()
        results.put("a", done(IMAGES_KEPT // 2))
        results.put("b", done())
        results.put("c", done(IMAGES_KEPT // 2))
        self.assertIn("images", decode(results.get("a")))
        results.put("d", done(1, image_errors=["one"]))
        self.assertEqual(decode(results.get("a")), {"type": "done", "value": "1", "image_errors": [GONE]})
        self.assertEqual(decode(results.get("b")), done())
        self.assertEqual(len(decode(results.get("c"))["images"][0]["data"]), IMAGES_KEPT // 2)
        results.put("e", done(IMAGES_KEPT))
        self.assertEqual(decode(results.get("d"))["image_errors"], ["one", GONE])
        self.assertEqual([n for n in results.names() if "images" in decode(results.get(n))], ["e"])
