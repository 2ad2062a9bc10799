"""The codec and the tables, against the shared vectors."""
import base64
import random
import unittest

import soma_process
import soma_wire
from tests.client import load


def decode_stream(data, cuts=()):
    """(objects, outcome class) of a byte stream fed in pieces."""
    decoder, units = soma_wire.Decoder(), []
    edges = [0, *sorted(cuts), len(data)]
    try:
        for a, b in zip(edges, edges[1:]):
            units.extend(decoder.feed(data[a:b]))  # extend keeps what was yielded before a BadUnit
    except soma_wire.BadUnit as e:
        return units, e.outcome
    return units, decoder.end()


class Units(unittest.TestCase):
    # P-118, P-210
    def test_vectors(self):
        for case in load("vectors/units.json"):
            data = base64.b64decode(case["input"])
            for cuts in ((), range(1, min(len(data), 200))):
                with self.subTest(case["name"], pieces=len(cuts)):
                    self.assertEqual(decode_stream(data, cuts), (case["units"], case["outcome"]))

    # P-210: the limit is decided from the header; nothing of that size is ever held
    def test_large(self):
        import tracemalloc

        for case in load("vectors/large.json"):
            with self.subTest(case["name"]):
                tracemalloc.start()
                _, outcome = decode_stream(case["length"].to_bytes(4, "big"))
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                self.assertEqual(outcome, case["outcome"])
                self.assertLess(peak, 1 << 20)

    # P-210: whatever the bytes, the decoder ends in one of its classes and never yields what is no object
    def test_fuzz(self):
        classes = {"eof", "truncated", "empty", "too_large", "not_utf8", "not_json", "not_object"}
        seeds = [base64.b64decode(c["input"]) for c in load("vectors/units.json") if len(c["input"]) < 2000]
        rng = random.Random(7)
        for _ in range(5000):
            data = bytearray(b"".join(rng.sample(seeds, 2)))
            for _ in range(rng.randrange(4)):
                if data:
                    data[rng.randrange(len(data))] = rng.randrange(256)
            cuts = [rng.randrange(len(data) + 1) for _ in range(rng.randrange(3))] if data else []
            units, outcome = decode_stream(bytes(data), cuts)
            self.assertIn(outcome, classes)
            self.assertTrue(all(type(u) is dict for u in units))
            for u in units:
                soma_wire.shape("daemon", u)
                soma_wire.shape("kernel", u)

    # P-118
    def test_round_trip(self):
        for value in ({"t": "é€😀\0"}, {"t": "\ud800"}, {"a": [1, 2.5, None, True, {"b": []}]}):
            units, outcome = decode_stream(soma_wire.unit(soma_wire.encode(value)))
            self.assertEqual((units, outcome), ([value], "eof"))
        with self.assertRaises(ValueError):
            soma_wire.encode({"a": float("nan")})


class Shapes(unittest.TestCase):
    # P-011
    def test_vectors(self):
        for case in load("vectors/shapes.json"):
            with self.subTest(case["name"]):
                self.assertEqual(soma_wire.shape(case["from"], case["input"]), case["outcome"])

    # P-012: hello.json defines the hello, field by field
    def test_hello(self):
        vector = load("vectors/hello.json")
        self.assertEqual(vector["types"], soma_wire.UNITS["kernel"]["hello"])
        self.assertEqual(set(vector["hello"]), set(vector["types"]))
        self.assertEqual(soma_wire.shape("kernel", {"hello": vector["hello"]}), "hello")
        self.assertEqual(soma_wire.shape("daemon", {"attach": vector["attach"]}), "attach")

    # P-011: names, fields, limits and classes are those of frames.json, both ways
    def test_tables(self):
        table = load("frames.json")
        self.assertEqual(table["protocol"], soma_wire.PROTOCOL)
        self.assertEqual(table["max_unit_bytes"], soma_wire.MAX_UNIT)
        units, frames = {"daemon": {}, "kernel": {}}, {"daemon": {}, "kernel": {}}
        for f in table["frames"]:
            for side in ("daemon", "kernel") if f["from"] == "both" else (f["from"],):
                (frames if f["sequenced"] else units)[side][f["name"]] = f["fields"] if "fields" in f else f["value"]
        self.assertEqual(units, soma_wire.UNITS)
        self.assertEqual(frames, soma_wire.FRAMES)
        self.assertEqual(table["objects"], soma_wire.OBJECTS)
        self.assertEqual(tuple(table["statuses"]), soma_wire.STATUSES)
        self.assertEqual(table["limits"], {
            "attach_unit_bytes": soma_wire.ATTACH_UNIT, "outbox_frames": soma_wire.OUTBOX_FRAMES,
            "outbox_bytes": soma_wire.OUTBOX_BYTES, "cells_live": soma_wire.CELLS_LIVE,
            "cells_finished": soma_wire.CELLS_FINISHED, "cell_id_bytes": soma_wire.CELL_ID_BYTES,
            "timeout_ms": soma_wire.TIMEOUT_MS, "output_text_bytes": soma_wire.OUTPUT_TEXT,
            "head_bytes": soma_wire.HEAD, "tail_bytes": soma_wire.TAIL, "value_bytes": soma_wire.VALUE,
            "traceback_bytes": soma_wire.TRACEBACK, "message_bytes": soma_wire.MESSAGE,
            "native_file_bytes": soma_wire.NATIVE_FILE, "grace_seconds": soma_wire.GRACE_SECONDS, "calls": soma_wire.CALLS,
            "command_characters": soma_wire.COMMAND, "job_tail_bytes": soma_wire.JOB_TAIL,
            "page_min_bytes": soma_wire.PAGE_MIN, "page_max_bytes": soma_wire.PAGE_MAX, "names": soma_wire.NAMES,
            "images_kept_bytes": soma_wire.IMAGES_KEPT, "trace_bytes": soma_wire.TRACE})
        self.assertEqual(tuple(table["codes"]), soma_wire.CODES)
        self.assertEqual(table["exits"], {
            "ended": soma_process.ENDED, "failed": soma_process.FAILED, "usage": soma_process.USAGE,
            "no_socket": soma_process.NO_SOCKET, "locked": soma_process.LOCKED, "no_token": soma_process.NO_TOKEN})

    # P-011: reserved names are used for nothing
    def test_reserved(self):
        table = load("frames.json")
        reserved = {f["name"] for f in table["reserved"]}
        self.assertFalse(reserved & {f["name"] for f in table["frames"]})

