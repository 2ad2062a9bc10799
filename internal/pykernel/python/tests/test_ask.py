"""Questions of the daemon: answered once, with the right code, also while a cell holds the loop."""
import unittest

from soma_complete import complete
from tests.test_api import ApiCase


class Answers(ApiCase):
    def ask(self, c, kind, **fields):
        self.count = getattr(self, "count", 0) + 1
        c.frame(kind, id=f"q{self.count}", **fields)
        answer = c.frame_of(kind, id=f"q{self.count}")
        return {k: v for k, v in answer.items() if k not in ("type", "id")}

    # P-051, P-126: the plugins' views
    def test_jobs(self):
        _, c = self.sample()
        self.assertEqual([j["id"] for j in self.ask(c, "job_list")["jobs"]], ["j2"])
        self.assertEqual(self.ask(c, "job_read", job="j2", offset=3, limit=2)["page"]["text"], "xx")
        self.assertEqual(self.ask(c, "job_stop", job="j2"), {"ok": True})
        for kind, fields, code in (("job_read", {"job": "j1", "limit": 4}, "job_not_found"), ("job_stop", {"job": "j1"}, "job_not_found"),
                                   ("job_read", {"job": "wrong", "limit": 4}, "invalid"), ("job_stop", {"job": "stubborn"}, "busy")):
            answer = self.ask(c, kind, **fields)
            self.assertEqual((answer["ok"], answer["code"]), (False, code), (kind, fields))
            self.assertTrue(answer["error"])

    # P-051: a kernel without a binding for jobs has none
    def test_no_plugin(self):
        _, c = self.attached()
        self.assertEqual(self.ask(c, "job_list"), {"ok": True, "jobs": []})
        self.assertEqual(self.ask(c, "job_read", job="j1", limit=4)["code"], "job_not_found")
        self.assertEqual(self.ask(c, "job_stop", job="j1")["code"], "job_not_found")

    # P-050, P-061: a cell's output, running and ended, from an offset and from the end; its errors
    def test_cell_read(self):
        _, c = self.attached()
        c.run("c0", "go = asyncio.Event()")
        c.execute("c1", "print('aé', flush=True); await go.wait(); print('b')")
        c.printed("c1", "aé")
        self.assertEqual(self.ask(c, "cell_read", cell="c1", limit=16)["page"],
                         {"offset": 0, "next_offset": 4, "size": 4, "running": True, "text": "aé\n"})
        c.run("c2", "go.set()")
        c.done("c1")
        self.assertEqual(self.ask(c, "cell_read", cell="c1", offset=4, limit=16)["page"],
                         {"offset": 4, "next_offset": 6, "size": 6, "running": False, "text": "b\n"})
        for fields, code in (({"cell": "c9", "limit": 16}, "cell_not_found"), ({"cell": "c1", "limit": 3}, "invalid"),
                             ({"cell": "c1", "limit": 65_537}, "invalid"), ({"cell": "c1", "limit": 16, "offset": 7}, "invalid"),
                             ({"cell": "c1", "limit": 16, "offset": -1}, "invalid")):
            self.assertEqual(self.ask(c, "cell_read", **fields)["code"], code, fields)

    # P-051, P-201: while a cell holds the loop, what only looks is answered nevertheless
    def test_views_while_busy(self):
        k, c = self.sample(scale=8)
        c.execute("c1", "print('busy', flush=True)\nwhile not os.path.exists('go'): pass")
        c.printed("c1", "busy")
        self.assertEqual(self.ask(c, "cell_read", cell="c1", limit=16)["page"]["text"], "busy\n")
        self.assertEqual(len(self.ask(c, "job_list")["jobs"]), 1)
        self.assertEqual(self.ask(c, "job_read", job="j2", limit=4)["page"]["text"], "xxxx")
        self.assertEqual(self.ask(c, "complete", text="sam", cursor=3), {"ok": True, "names": ["sample"], "start": 0})
        # P-025: a stop is not done beside the loop; it is answered once, as busy
        self.assertEqual(self.ask(c, "job_stop", job="j2")["code"], "busy")
        open(k.workspace + "/go", "w").close()
        c.done("c1")
        c.run("c2", "await asyncio.sleep(0)")
        self.assertEqual(sum(v.get("frame", {}).get("type") == "job_stop" for v in c.seen), 1)

    # P-050: an answer that cannot be sent is one that says so
    def test_bad_handlers(self):
        text = ("def setup(api):\n    api.on_ask('job_list', lambda f: {'jobs': [object()]})\n"
                "    api.on_ask('job_read', lambda f: 1 / 0)\n    api.on_ask('job_stop', lambda f: {'x': float('nan')}, anywhere=True)\n")
        _, c = self.sample(text)
        for kind, fields in (("job_list", {}), ("job_read", {"job": "j", "limit": 4}), ("job_stop", {"job": "j"})):
            answer = self.ask(c, kind, **fields)
            self.assertEqual((answer["ok"], answer["code"]), (False, "invalid"), answer)

    # P-051: asked again after a reconnect under its old number it is not answered twice
    def test_replay(self):
        k, c = self.sample()
        c.frame("job_list", id="q")
        c.frame_of("job_list")
        c = k.attach(ack=c.last)
        c.send({"seq": k.sent, "ack": 0, "frame": {"type": "job_list", "id": "q"}})
        c.ping()
        self.assertFalse([v for v in c.seen if v.get("frame", {}).get("type") == "job_list"])

    # the names of a live namespace, where no code of a person is asked for them
    def test_complete(self):
        _, c = self.sample()
        c.run("c1", "alpha = [1]\nclass Trap:\n    inner = 'text'\n    def __getattr__(self, n): print('asked'); return 1\n"
                    "    def __dir__(self): print('asked'); return []\n    @property\n    def costly(self): print('asked'); return ''\n"
                    "    def method(self): pass\ntrap = Trap(); trap.own = {}\ndef äußern(): pass")
        for text, names, start in (("alp", ["alpha"], 0), ("alpha.ap", ["append"], 6), ("x = trap.o", ["own"], 9),
                                   ("trap.own.po", ["pop", "popitem"], 9), ("trap.costly.up", [], 12), ("Trap.inner.isasc", ["isascii"], 11),
                                   ("json.du", ["dump", "dumps"], 5), ("os.path.joi", ["join"], 8), ("sample.api.cel", ["cell", "cell_ended", "cell_facts", "cell_jobs", "cells"], 11),
                                   ("äu", ["äußern"], 0), ("impor", ["import"], 0), ("nothing.x", [], 8), ("alpha .appe", ["append"], 7),
                                   ("", ["Trap", "alpha", "trap", "äußern"], 0), ("print(alp", ["alpha"], 6), ("first\nalp", ["alpha"], 6), (" ", [], 1), ("alpha[0].re", [], 9),
                                   ("hash", ["hash", "hashlib"], 0), ("trap.me", ["method"], 5), ("trap._", None, 5)):
            with self.subTest(text):
                answer = self.ask(c, "complete", text=text, cursor=len(text))
                self.assertTrue(answer["ok"], answer)
                if names is not None:
                    self.assertEqual((answer["names"], answer["start"]), (names, start))
        self.assertIn("__getattr__", answer["names"])
        self.assertEqual(self.ask(c, "complete", text="alpha", cursor=2)["names"][0], "all")
        self.assertEqual(len(self.ask(c, "complete", text="x = zq", cursor=6)["names"]), 0)
        c.run("c2", "for i in range(300): globals()[f'many{i}'] = i")
        self.assertEqual(len(self.ask(c, "complete", text="many", cursor=4)["names"]), 200)
        for cursor in (-1, 6):
            self.assertEqual(self.ask(c, "complete", text="alpha", cursor=cursor)["code"], "invalid")
        self.assertEqual([v for v in c.seen if "asked" in str(v.get("output"))], [])
        self.assertEqual(c.run("c3", "1")["output"]["size"], 0)


class Completer(unittest.TestCase):
    # what lies in the way of finding an attribute without asking
    def test_hostile(self):
        class Meta(type):
            def __instancecheck__(cls, other): raise RuntimeError("asked")
            def __getattribute__(cls, name): raise RuntimeError("asked")

        class Hostile(metaclass=Meta):
            __slots__ = ("slot",)
            def __getattribute__(self, name): raise RuntimeError("asked")
            def found(self): pass

        class Names:
            namespace = {"h": Hostile(), "H": Hostile, 5: "no name"}
            def known(self): return {}

        for text in ("h.fo", "H.fo"):
            self.assertEqual(complete(text, 4, Names()), (["found"], 2))
        self.assertEqual(complete("h.slot.x", 8, Names()), ([], 7))
