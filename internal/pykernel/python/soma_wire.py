"""What is on the wire: units, shapes and the numbers of protocol version 1 (see protocol/pykernel/SPEC.md).

Knows bytes and objects only: no socket, no cell. Its constants are compared with frames.json by a test.
"""
import json
from struct import Struct

PROTOCOL = 1
MAX_UNIT = 64 << 20
ATTACH_UNIT = 64 << 10
OUTBOX_FRAMES = 4096
OUTBOX_BYTES = 64 << 20
CELLS_LIVE = 16
CELLS_FINISHED = 16
CELL_ID_BYTES = 128
TIMEOUT_MS = 3_600_000
OUTPUT_TEXT = 64 << 10
HEAD = 1 << 20
TAIL = 64 << 10
VALUE = 64 << 10
TRACEBACK = 64 << 10
MESSAGE = 64 << 10
NATIVE_FILE = 16 << 20
GRACE_SECONDS = 604_800

STATUSES = ("ok", "error", "interrupted", "timed_out")

# Each unsequenced unit: a dict of fields, or the type of its bare value.
UNITS = {
    "daemon": {
        "attach": {"kernel": "string", "token": "string", "ack": "int", "grace": "number", "lease": "int",
                   "protocol": "int"},
        "ping": "int",
        "ack": "int",
    },
    "kernel": {
        "hello": {"protocol": "int", "bundle": "string", "epoch": "int", "ack": "int", "pid": "int", "pgid": "int",
                  "leader": "string", "ready": "bool", "jobs": "array", "external": "int", "awaited_external": "int",
                  "external_jobs": "array", "dropped": "int", "cells": "array", "finished": "array",
                  "python": "string"},
        "refused": "string",
        "pong": "int",
        "output": {"cell": "string", "offset": "int", "text": "string"},
        "ack": "int",
    },
}
FRAMES = {
    "daemon": {
        "execute": {"cell": "string", "code": "string", "timeout_ms": "int", "correlation": "string?", "causation": "string?"},
        "reply": {"call": "string", "ok": "bool", "value": "json?", "error": "object?"},
        "interrupt": {"cell": "string"},
        "shutdown": {},
    },
    "kernel": {
        "ready": {},
        "startup_error": {"error": "string"},
        "call": {"id": "string", "cell": "string", "method": "json", "args": "json"},
        "done": {"cell": "string", "status": "string", "started_at": "int", "duration_ms": "int",
                 "value": "string?", "error": "object?", "output": "object"},
        "cells": {"live": "int"},
    },
}
OBJECTS = {
    "reply.error": {"code": "string", "message": "string"},
    "done.error": {"type": "string", "message": "string", "traceback": "string"},
    "done.output": {"head": "string", "tail": "string", "size": "int"},
}

_HEADER = Struct(">I")
_TYPES = {
    "string": lambda v: type(v) is str,
    "int": lambda v: type(v) is int,
    "number": lambda v: type(v) in (int, float),
    "bool": lambda v: type(v) is bool,
    "array": lambda v: type(v) is list,
    "object": lambda v: type(v) is dict,
}


class BadUnit(Exception):
    """The stream holds something that is not a unit; `outcome` is its class in SPEC.md, section 1."""

    def __init__(self, outcome):
        super().__init__(outcome)
        self.outcome = outcome


def _not_a_number(name):
    raise ValueError(name)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_ascii = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_decode = json.JSONDecoder(parse_constant=_not_a_number).decode


def encode(value):
    """The JSON of value as bytes. TypeError or ValueError when it has none (RecursionError when too deep)."""
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:  # a lone surrogate: only its escape can travel
        return _encode_ascii(value).encode()


def decode(body):
    """The object in the bytes of one unit's body; BadUnit when they are something else."""
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError:
        raise BadUnit("not_utf8") from None
    try:
        value = _decode(text)
    except (ValueError, RecursionError):
        raise BadUnit("not_json") from None
    if type(value) is not dict:
        raise BadUnit("not_object")
    return value


def unit(body):
    """One unit from the JSON bytes of an object."""
    return _HEADER.pack(len(body)) + body


class Decoder:
    """Cuts a byte stream into the objects of its units. Not for several threads."""

    def __init__(self, limit=MAX_UNIT):
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data):
        """Take some bytes and yield each object that is complete; BadUnit where the stream stops being one."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4:
            length = _HEADER.unpack_from(buffer)[0]
            if length > self.limit:
                raise BadUnit("too_large")
            if length == 0:
                raise BadUnit("empty")
            if len(buffer) < 4 + length:
                return
            body = bytes(memoryview(buffer)[4:4 + length])
            del buffer[:4 + length]
            yield decode(body)

    def end(self):
        """The class of a stream that ends here: eof, or truncated inside a unit."""
        return "truncated" if self._buffer else "eof"


def _fits(fields, value):
    if type(value) is not dict:
        return False
    for name, kind in fields.items():
        if kind.startswith("json"):
            continue
        if name not in value:
            if not kind.endswith("?"):
                return False
        elif not _TYPES[kind.rstrip("?")](value[name]):
            return False
    return True


def _good_id(cell):
    return 0 < len(cell.encode("utf-8", "replace")) <= CELL_ID_BYTES and all(c >= " " and c != "\x7f" for c in cell)


def _attach_ok(a):
    return a["ack"] >= 0 and a["lease"] >= 0 and 0 < a["grace"] <= GRACE_SECONDS


def _frame_ok(side, frame):
    kind = frame.get("type")
    if type(kind) is not str:
        return False
    fields = FRAMES[side].get(kind)
    if fields is None:
        return True
    if not _fits(fields, frame):
        return False
    if "cell" in fields and not _good_id(frame["cell"]):
        return False
    if kind == "reply":
        return frame["ok"] or _fits(OBJECTS["reply.error"], frame.get("error"))
    if kind == "done":
        return (frame["status"] in STATUSES and _fits(OBJECTS["done.output"], frame["output"])
                and ("error" not in frame or _fits(OBJECTS["done.error"], frame["error"])))
    return True


def shape(side, value):
    """What an object from that side ("daemon", "kernel") is: a unit's name, "frame", or "malformed"."""
    if "frame" in value:
        ok = (type(value.get("seq")) is int and value["seq"] > 0 and type(value.get("ack")) is int
              and value["ack"] >= 0 and type(value["frame"]) is dict and _frame_ok(side, value["frame"]))
        return "frame" if ok else "malformed"
    for name, want in UNITS[side].items():
        if name not in value:
            continue
        got = value[name]
        if type(want) is dict:
            ok = _fits(want, got)
        else:
            ok = _TYPES[want](got)
        if ok and name == "attach":
            ok = _attach_ok(got)
        elif ok and name == "ack":
            ok = got >= 0
        elif ok and name == "output":
            ok = got["offset"] >= 0
        return name if ok else "malformed"
    return "malformed"
