"""Attach, hello, the session layer, hostile input."""
import json
import random
import socket
import struct

import soma_wire
from tests.client import Closed, KernelCase, load


class Attach(KernelCase):
    # P-012
    def test_hello(self):
        k, c = self.attached()
        vector = load("vectors/hello.json")["hello"]
        self.assertEqual(set(c.hello), set(vector))
        expected = {"protocol": 1, "bundle": "0f", "epoch": 1, "ack": 0, "jobs": [], "external": 0,
                    "awaited_external": 0, "external_jobs": [], "dropped": 0, "cells": [], "finished": []}
        self.assertEqual({name: c.hello[name] for name in expected}, expected)
        c.run("c1", "1")
        c.execute("c2", "import asyncio; await asyncio.Event().wait()")
        c.acked(k.sent)
        again = k.attach(ack=c.last)
        self.assertEqual((again.hello["epoch"], again.hello["ack"], again.hello["ready"]), (2, k.sent, True))
        self.assertEqual((again.hello["cells"], again.hello["finished"]), (["c2"], ["c1"]))

    # P-013
    def test_newest_attach_wins(self):
        k, first = self.attached()
        second = k.attach()
        self.assertTrue(first.closed())
        self.assertEqual(second.hello["epoch"], 2)
        self.assertEqual(second.run("c", "1+1")["value"], "2")

    # P-012, P-013: each reason; a refused attach changes nothing for the one that stands
    def test_refusals(self):
        k, c = self.attached()
        good = k.attach(lease=5)
        self.assertTrue(c.closed())
        for changes, reason in (({"token": "00"}, "token"), ({"token": "é"}, "token"), ({"kernel": "k2"}, "kernel"),
                                ({"lease": 4}, "lease"), ({"lease": 5, "ack": 10_000}, "ack"), ({"grace": 0}, "malformed"),
                                ({"token": "00", "kernel": "k2", "lease": 0}, "token")):
            bad = k.connect()
            self.assertEqual(bad.attach(**changes), {"refused": reason}, changes)
            self.assertTrue(bad.closed())
        self.assertEqual(good.run("c", "1+1")["value"], "2")
        self.assertEqual(k.attach(lease=5).hello["epoch"], 3)

    # P-014: the first pong of a connection says that all that is sent again has come, however much it is
    def test_pong_follows_what_is_sent_again(self):
        k, c = self.attached()
        k.hold_acks = True
        for i in range(6):
            c.run(f"c{i}", "print('x' * 900_000)")
        c = k.attach(ack=0)
        c.send({"ping": 7})
        c.until(lambda v: "pong" in v)
        done = [v["frame"]["cell"] for v in c.seen if v.get("frame", {}).get("type") == "done"]
        self.assertEqual(done, [f"c{i}" for i in range(6)])

    # P-013: whatever is raised in the reader costs the connection, no more
    def test_reader_survives(self):
        k, c = self.attached()
        c.run("c1", """import sys
link = sys.modules["soma_host"]._calls._link
real = link._events.apply
def once(frame):
    link._events.apply = real
    raise MemoryError
link._events.apply = once""")
        c.execute("c2", "1+1")
        self.assertTrue(c.closed())
        again = k.attach(ack=c.last)
        self.assertEqual(again.hello["ack"], k.sent - 1)
        again.send({"seq": k.sent, "ack": c.last, "frame": {"type": "execute", "cell": "c2", "code": "1+1", "timeout_ms": 9000}})
        self.assertEqual(again.done("c2")["value"], "2")

    # P-012: a daemon of another protocol may attach, so that it can end the kernel
    def test_other_protocol(self):
        k, _ = self.attached()
        other = k.attach(protocol=99)
        self.assertEqual(other.hello["protocol"], 1)
        other.frame("shutdown")
        self.assertEqual(k.wait(), 0)

    # P-118: before the attach anything else is refused and cut, a large unit from its header
    def test_garbage_before_attach(self):
        k, c = self.attached()
        for data in (b"GET / HTTP/1.1\r\n\r\n", soma_wire.unit(b'{"ping":1}'), soma_wire.unit(b"[]"), b"\0\0\0\0",
                     struct.pack(">I", soma_wire.ATTACH_UNIT + 1), soma_wire.unit(b'{"attach":{}}')):
            bad = k.connect()
            bad.send_raw(data)
            self.assertEqual(bad.recv(), {"refused": "malformed"}, data)
            self.assertTrue(bad.closed())
        self.assertEqual(c.run("c", "1+1")["value"], "2")

    # P-118: after it the connection is cut; the kernel and its names stay
    def test_garbage_after_attach(self):
        k, c = self.attached()
        c.run("c", "x = 41")
        for data in (b"\xff" * 8, soma_wire.unit(b"nonsense"), soma_wire.unit(b'{"later":1}'),
                     soma_wire.unit(b'{"ack":999999}'), soma_wire.unit(b'{"seq":0,"ack":0,"frame":{"type":"shutdown"}}')):
            bad = k.attach()
            bad.send_raw(data)
            self.assertTrue(bad.closed(), data)
        self.assertEqual(k.attach().run("d", "x + 1")["value"], "42")

    # P-118: connections that never attach do not add up, and end after a time
    def test_silent_connections(self):
        k, c = self.attached(scale=20)
        silent = [k.connect() for _ in range(12)]
        for s in silent:
            self.assertTrue(s.closed())
        self.assertEqual(c.run("c", "1+1")["value"], "2")

    # P-004: the socket listens before start-up is complete; what comes early waits
    def test_execute_before_ready(self):
        k = self.kernel(scale=1).listening()
        c = k.attach()
        c.execute("c", "1+1")
        self.assertEqual(c.done("c")["value"], "2")
        kinds = [v["frame"]["type"] for v in c.seen if "frame" in v]
        self.assertEqual([kind for kind in kinds if kind != "cells"], ["ready", "done"])


class Session(KernelCase):
    # P-014, P-017: the shared cases, against a live kernel
    def test_sequence_vectors(self):
        for case in load("vectors/sequence.json"):
            with self.subTest(case["name"]):
                k, c = self.attached()
                if case["last"]:
                    c.send({"seq": case["last"], "ack": 0, "frame": {"type": "later"}})
                for i, seq in enumerate(case["seqs"]):
                    c.send({"seq": seq, "ack": 0,
                            "frame": {"type": "execute", "cell": f"{seq}", "code": f"print({i})", "timeout_ms": 60000}})
                k.sent = max([case["last"], *case["seqs"]])
                c.acked(k.sent)
                c.run("end", "0")
                ended = [v["frame"]["cell"] for v in c.seen if v.get("frame", {}).get("type") == "done"]
                self.assertEqual(ended, [*map(str, case["applied"]), "end"])

    # P-015, P-017: everything not acknowledged comes again, in order, under its old numbers
    def test_resent_after_hello(self):
        k, c = self.attached()
        k.hold_acks = True
        for i in range(5):
            c.run(f"c{i}", f"{i}")
        first = [v for v in c.seen if "frame" in v and v["frame"]["type"] == "done"]
        again = k.attach()
        again.until(lambda v: v.get("seq") == c.last)
        second = [v for v in again.seen if "frame" in v and v["frame"]["type"] == "done"]
        self.assertEqual([(v["seq"], v["frame"]) for v in second], [(v["seq"], v["frame"]) for v in first])
        third = k.attach(ack=c.last)
        third.ping()
        self.assertFalse([v for v in third.seen if "frame" in v])

    # P-014: acks are cumulative; an acknowledged frame never comes again
    def test_ack_forgets(self):
        k, c = self.attached()
        k.hold_acks = True
        c.run("c1", "1")
        middle = c.last
        c.run("c2", "2")
        c.send({"ack": middle})
        c.ping()
        again = k.attach()
        again.done("c2")
        self.assertFalse([v for v in again.seen if v.get("frame", {}).get("cell") == "c1"])

    # P-011: a frame of an unknown type is acknowledged and does nothing
    def test_unknown_frame(self):
        k, c = self.attached()
        c.frame("from_the_future", x=[1])
        c.acked(k.sent)
        self.assertEqual(c.run("c", "1+1")["value"], "2")

    # P-017, P-019: acknowledged and answered while a cell computes
    def test_answers_while_busy(self):
        k, c = self.attached()
        c.execute("c", "print('busy', flush=True)\nstop = False\nwhile not stop: pass")
        c.printed("c", "busy")
        self.assertEqual(c.ping(77), 77)
        c.execute("d", "1")
        c.acked(k.sent)
        c.frame("interrupt", cell="c")
        self.assertEqual(c.done("c")["status"], "interrupted")
        self.assertEqual(c.done("d")["status"], "ok")

    # P-019: pings are outside the numbering
    def test_pings_are_not_numbered(self):
        k, c = self.attached(scale=10)
        c.frame_of("cells", eligible=True)  # nothing else is told of its own accord
        before = c.last
        self.assertEqual([c.ping(i) for i in range(20)], list(range(20)))
        self.assertEqual(c.last, before)

    # P-015: a bounded outbox while nobody acknowledges, the loss counted in the next hello
    def test_overflow_is_counted(self):
        k, c = self.attached()
        k.hold_acks = True
        code = "import sys\ntext = 'é' * 500_000\nprint(text); sys.stderr.write(text); None"
        for i in range(30):  # 30 x 2 MiB of head and tail as JSON stay below the bound; 80 do not
            c.run(f"c{i}", code)
        self.assertEqual(k.attach().hello["dropped"], 0)
        c = k.attach()
        for i in range(30, 80):
            c.run(f"c{i}", code)
        last = k.attach()
        self.assertGreater(last.hello["dropped"], 0)
        last.done("c79")  # the newest is there

    # P-015, P-001: a daemon that reads nothing delays no cell
    def test_deaf_daemon(self):
        k, c = self.attached()
        for i in range(8):
            c.execute(f"c{i}", "print('x' * 3_000_000)")
        c.execute("last", "open('went-through', 'w').close()")
        other = k.attach()  # until now nothing was read from c
        other.done("last")
        self.assertEqual(other.run("see", "import os; os.path.exists('went-through')")["value"], "True")

    # P-001, P-015: cut at random frames, in both directions, daemon restarts among them: each cell runs once, no done is lost
    def test_cuts(self):
        rng = random.Random(11)
        for round_number in range(8):
            k, c = self.attached()
            k.hold_acks = True
            outbox, results, last = {}, {}, c.last

            def note(value):
                nonlocal last
                frame = value.get("frame")
                if frame is not None:
                    last = max(last, value["seq"])
                    if frame["type"] == "done":
                        self.assertEqual(results.setdefault(frame["cell"], frame), frame)

            cells = [f"c{i}" for i in range(15)]  # fewer than may be queued at once
            for i, cell in enumerate(cells):
                outbox[i + 1] = {"type": "execute", "cell": cell, "timeout_ms": 60000,
                                 "code": f"with open('log', 'a') as f: f.write('{cell}\\n')\nprint('{cell}')\n{i}"}
            queue = sorted(outbox)
            while len(results) < len(cells) or queue:
                try:
                    for _ in range(rng.randrange(1, 6)):
                        if queue:
                            n = queue.pop(0)
                            body = soma_wire.unit(json.dumps({"seq": n, "ack": last, "frame": outbox[n]}).encode())
                            if rng.random() < 0.2:
                                c.send_raw(body[:rng.randrange(len(body))])
                                raise Closed
                            c.send_raw(body)
                        value = c.recv() if len(results) < len(cells) and not queue else None
                        if value is not None:
                            note(value)
                    how = rng.random()
                    if how < 0.3:
                        c.sock.shutdown(socket.SHUT_RDWR)
                    elif how < 0.6:
                        raise Closed
                    continue
                except (Closed, OSError):
                    pass
                if rng.random() < 0.4:
                    last = 0  # the daemon was restarted: its last-seen number was only in memory
                c.close()
                c = k.attach(ack=last)
                note(c.seen[-1])
                queue = [n for n in sorted(outbox) if n > c.hello["ack"]]
                if not queue and len(results) < len(cells):
                    c.send({"ping": round_number})
                    while "pong" not in (value := c.recv()):
                        note(value)
            with open(k.workspace + "/log") as f:
                self.assertEqual(f.read().split(), cells)
            self.assertEqual([results[x]["value"] for x in cells], [str(i) for i in range(15)])
            self.assertEqual([results[x]["output"]["head"] for x in cells], [x + "\n" for x in cells])
