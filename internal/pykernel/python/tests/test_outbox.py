"""The outbox by itself."""
import unittest

from soma_outbox import Outbox


def numbers(box, after=0):
    return [n for n, _ in box.after(after)]


class Bounds(unittest.TestCase):
    # P-014, P-015
    def test_kept_until_acknowledged(self):
        box = Outbox()
        for i in range(5):
            box.add(b"f%d" % i)
        self.assertEqual(list(box.after(0)), [(i + 1, b"f%d" % i) for i in range(5)])
        self.assertTrue(box.ack(3))
        self.assertEqual(numbers(box), [4, 5])
        self.assertEqual(numbers(box, 4), [5])
        self.assertTrue(box.ack(1))
        self.assertEqual(numbers(box), [4, 5])
        self.assertFalse(box.ack(6))

    # P-015: the newest of a key stands for all, under a new number
    def test_coalesces(self):
        box = Outbox()
        box.add(b"a", "cells", True)
        box.add(b"x")
        box.add(b"b", "cells", True)
        self.assertEqual(list(box.after(0)), [(2, b"x"), (3, b"b")])
        self.assertEqual(box.dropped, 0)

    # P-015: over the bound coalescing frames go first, then the oldest
    def test_over_the_bound(self):
        box = Outbox(max_frames=3)
        box.add(b"1")
        box.add(b"2")
        box.add(b"c", "cells", True)
        box.add(b"4")
        self.assertEqual(numbers(box), [1, 2, 4])
        box.add(b"5")
        self.assertEqual(numbers(box), [2, 4, 5])
        self.assertEqual(box.dropped, 2)

    # P-015
    def test_bytes(self):
        box = Outbox(max_bytes=10)
        box.add(b"x" * 6)
        box.add(b"y" * 6)
        self.assertEqual(numbers(box), [2])
        box.ack(2)
        box.add(b"z" * 10)
        self.assertEqual((numbers(box), box.dropped), ([3], 1))

    # P-023: a done that still waits is not added again
    def test_holds(self):
        box = Outbox()
        box.add(b"d", ("done", "c"))
        self.assertTrue(box.holds(("done", "c")))
        box.ack(1)
        self.assertFalse(box.holds(("done", "c")))
