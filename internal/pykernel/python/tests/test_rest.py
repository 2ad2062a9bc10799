"""Whether a kernel rests: told with the cells, and again when it changes."""
from tests.test_api import MODULE, ApiCase


class Eligible(ApiCase):
    def told(self, c, eligible):
        """Read until the frame that says so."""
        return c.frame_of("cells", eligible=eligible)

    # P-128: false with a result (its code has just run), true a second later when nothing is left of it; never repeated
    def test_after_a_cell(self):
        _, c = self.attached(scale=10)
        self.told(c, True)
        c.run("c1", "1")
        cells, done = [v["frame"] for v in c.seen if "frame" in v][-2:]
        self.assertEqual((cells["type"], cells["live"], cells["bloated"], cells["eligible"], done["type"]),
                         ("cells", 0, False, False, "done"))
        self.assertEqual(self.told(c, True)["live"], 0)
        c.run("c2", "1")
        self.told(c, True)
        self.assertEqual(len([v for v in c.seen if v.get("frame", {}).get("type") == "cells"]), 5)

    # Looks when the cell's own task has ended.
    LOOK = ("\nimport gc, soma_rest\nseen = []\nrest = [r for r in gc.get_objects() if type(r) is soma_rest.Rest][0]\n"
            "asyncio.get_running_loop().call_soon(lambda: seen.append(rest.look()))")

    # P-045, P-128: what a cell leaves behind holds it until it is gone
    def test_what_holds(self):
        _, c = self.sample(scale=10)
        self.told(c, True)
        holds = {
            "task": ("t = asyncio.create_task(asyncio.Event().wait())", "t.cancel()"),
            "timer": ("t = asyncio.get_running_loop().call_later(3600, print)", "t.cancel()"),
            "thread": ("import threading\ne = threading.Event()\nt = threading.Thread(target=e.wait)\nt.start()", "e.set(); t.join()"),
            "file": ("f = open('/dev/null')", "f.close()"),
            "socket": ("import socket\ns = socket.socket()", "s.close()"),
            "environment": ("os.environ['X_HELD'] = '1'", "del os.environ['X_HELD']"),
            "predicate": ("sample.held = True", "sample.held = False"),
            "failing predicate": ("sample.held = type('B', (), {'__bool__': lambda s: 1 / 0})()", "sample.held = False"),
            "job": ("sample.begin('j1')", "sample.finish('j1')"),
            "job elsewhere": ("sample.api.report_jobs('a', [{'id': 'r', 'command': 'c', 'service': True, 'started': 1}])",
                              "sample.api.report_jobs('a', [])"),
        }
        for name, (hold, release) in holds.items():
            with self.subTest(name):
                cell = name.replace(" ", "-")
                c.run(cell, hold + self.LOOK)
                self.assertEqual(c.run(cell + "-seen", "seen")["value"], "[False]")
                c.run(cell + "-end", release + self.LOOK)
                self.assertEqual(c.run(cell + "-free", "seen")["value"], "[True]")
        self.told(c, True)

    # P-128: a predicate that begins to hold while nothing runs is noticed
    def test_changes_by_itself(self):
        _, c = self.sample(MODULE + "    import threading, os\n"
                                    "    api.holds(lambda: os.path.exists('held'))\n", scale=10)
        self.told(c, True)
        open(c.kernel.workspace + "/held", "w").close()
        self.told(c, False)

    # P-128: idle workers of asyncio's pool hold nothing; busy ones do
    def test_pool(self):
        _, c = self.attached(scale=10)
        c.run("c1", "await asyncio.to_thread(len, '')")
        self.told(c, True)
