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
CALLS = 64                  # names in the calls of a done
COMMAND = 4096              # characters of a job's command
JOB_TAIL = 2048
PAGE_MIN, PAGE_MAX = 4, 64 << 10
NAMES = 200                 # names of a completion
IMAGES_KEPT = 8 << 20       # base64 of the images of all kept results
TRACE = 1 << 20             # bytes of a trace frame

CODES = ("job_not_found", "cell_not_found", "output_lost", "invalid", "busy")
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
_ANSWER = {"id": "string", "ok": "bool", "code": "string?", "error": "string?"}
FRAMES = {
    "daemon": {
        "execute": {"cell": "string", "code": "string", "timeout_ms": "int", "correlation": "string?", "causation": "string?",
                    "origin": "string?", "background_ms": "int?"},
        "reply": {"call": "string", "ok": "bool", "value": "json?", "error": "object?"},
        "interrupt": {"cell": "string"},
        "shutdown": {},
        "job_list": {"id": "string"},
        "job_read": {"id": "string", "job": "string", "offset": "int?", "limit": "int"},
        "job_stop": {"id": "string", "job": "string"},
        "cell_read": {"id": "string", "cell": "string", "offset": "int?", "limit": "int"},
        "complete": {"id": "string", "text": "string", "cursor": "int"},
    },
    "kernel": {
        "ready": {},
        "startup_error": {"error": "string"},
        "call": {"id": "string", "cell": "string?", "method": "json", "args": "json"},
        "done": {"cell": "string", "status": "string", "started_at": "int", "duration_ms": "int",
                 "value": "string?", "error": "object?", "output": "object", "calls": "array?", "images": "array?",
                 "image_errors": "array?", "repair": "string?", "background": "bool?", "wake": "bool?"},
        "backgrounded": {"cell": "string", "duration_ms": "int", "output": "object"},
        "trace": {"cell": "string", "changes": "array"},
        "job_start": {"job": "string", "pid": "int", "pgid": "int", "leader": "string", "command": "string",
                      "service": "bool", "cell": "string?", "started_at": "int"},
        "job": {"job": "string", "cell": "string?", "state": "string", "exit_code": "int?", "timed_out": "bool",
                "ended_at": "int", "bytes": "int", "service": "bool", "command": "string", "wake": "bool",
                "tail": "string"},
        "jobs": {"live": "int", "awaited": "int", "items": "array"},
        "seen": {"cells": "array", "jobs": "array"},
        "cleanup": {"errors": "array"},
        "job_list": {**_ANSWER, "jobs": "array?"},
        "job_read": {**_ANSWER, "page": "object?"},
        "job_stop": _ANSWER,
        "cell_read": {**_ANSWER, "page": "object?"},
        "complete": {**_ANSWER, "names": "array?", "start": "int?"},
        "cells": {"live": "int", "bloated": "bool", "eligible": "bool"},
    },
}
OBJECTS = {
    "reply.error": {"code": "string", "message": "string"},
    "done.error": {"type": "string", "message": "string", "traceback": "string"},
    "done.output": {"head": "string", "tail": "string", "size": "int", "spill": "object?"},
    "done.output.spill": {"path": "string", "size": "int", "whole": "bool"},
    "done.images": {"media": "string", "data": "string", "name": "string?"},
    "trace.changes": {"path": "string", "kind": "string", "diff": "string", "truncated": "bool"},
    "jobs.items": {"id": "string", "command": "string", "service": "bool", "started": "int"},
    "job_list.jobs": {"id": "string", "command": "string", "state": "string", "exit_code": "int?", "timed_out": "bool",
                      "service": "bool", "started_at": "int", "ended_at": "int?", "bytes": "int", "cell": "string?"},
    "page": {"offset": "int", "next_offset": "int", "size": "int", "running": "bool", "text": "string"},
}
# What an answer that is ok must hold beside its id.
ANSWERS = {"job_list": ("jobs",), "job_read": ("page",), "job_stop": (), "cell_read": ("page",),
           "complete": ("names", "start")}

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


def _output_ok(output):
    return (_fits(OBJECTS["done.output"], output)
            and ("spill" not in output or _fits(OBJECTS["done.output.spill"], output["spill"])))


def _all_fit(name, items):
    return all(_fits(OBJECTS[name], item) for item in items)


def _answer_ok(kind, frame):
    if not frame["ok"]:
        return "code" in frame and "error" in frame
    if any(name not in frame for name in ANSWERS[kind]):
        return False
    return ("page" not in frame or _fits(OBJECTS["page"], frame["page"])) and (
        kind != "job_list" or _all_fit("job_list.jobs", frame["jobs"]))


def _frame_ok(side, frame):
    kind = frame.get("type")
    if type(kind) is not str:
        return False
    fields = FRAMES[side].get(kind)
    if fields is None:
        return True
    if not _fits(fields, frame):
        return False
    if "cell" in frame and "cell" in fields and not _good_id(frame["cell"]):
        return False
    if kind == "reply":
        return frame["ok"] or _fits(OBJECTS["reply.error"], frame.get("error"))
    if side == "daemon":
        return True
    if kind in ANSWERS:
        return _answer_ok(kind, frame)
    if kind == "done":
        return (frame["status"] in STATUSES and _output_ok(frame["output"])
                and ("error" not in frame or _fits(OBJECTS["done.error"], frame["error"]))
                and _all_fit("done.images", frame.get("images", ())))
    if kind == "backgrounded":
        return _output_ok(frame["output"])
    if kind == "trace":
        return _all_fit("trace.changes", frame["changes"])
    if kind == "jobs":
        return _all_fit("jobs.items", frame["items"])
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
