"""Names that a cell finds: preloaded modules, locked bindings, `import soma`; and what is left of them in builtins."""
from tests.client import KernelCase

NAMES = ("asyncio base64 collections datetime functools hashlib itertools json math os re shutil sys textwrap time Path").split()
MODULE = """
class Files:
    def read(self, path): return path

def setup(api):
    api.provide("files", Files())
    api.provide("run", lambda x: x)
"""


class NamesCase(KernelCase):
    def names(self):
        """A connection to a kernel with the bindings `files` and `run`."""
        _, c = self.attached(modules=("soma_sample",), bundle=self.bundle(self.module("soma_sample", MODULE)))
        return c

    def value(self, c, code):
        self.count = getattr(self, "count", 0) + 1
        done = c.run(f"v{self.count}", code)
        self.assertEqual(done["status"], "ok", done)
        return done.get("value")

    def refused(self, c, code, kind):
        self.count = getattr(self, "count", 0) + 1
        done = c.run(f"v{self.count}", code)
        self.assertEqual((done["status"], done.get("error", {}).get("type")), ("error", kind), code)
        return done


class Preloaded(NamesCase):
    # P-028: all sixteen, without an import, and none of them is among the person's names
    def test_all(self):
        c = self.names()
        self.assertEqual(self.value(c, f"[n for n in {NAMES!r} if eval(n) is None]"), "[]")
        expected = "[True, True, 'PosixPath', True]"
        self.assertEqual(self.value(c, "[math is __import__('math'), datetime is __import__('datetime'), type(Path('.')).__name__, "
                                       "isinstance(hashlib.md5(), object)]"), expected)
        self.assertEqual(self.value(c, "sorted(n for n in globals() if not n.startswith('__'))"), "[]")

    # P-028: also where the name is met first in a string, a function, a lambda, a comprehension, a thread
    def test_first_use_anywhere(self):
        for code in ("eval('datetime.date(2020, 1, 2).day')", "exec('x = hashlib.md5()'); x.digest_size - 14",
                     "def f():\n    def g(): return Path('a/bb').name\n    return g\nlen(f()())",
                     "(lambda: len([shutil for _ in range(2)]))()",
                     "import threading\nr = []\nt = threading.Thread(target=lambda: r.append(datetime.MINYEAR + 1))\nt.start(); t.join(); r[0]"):
            c = self.names()
            self.assertEqual(self.value(c, code), "2", code)

    # P-028: a person's own name shadows, `del` recovers
    def test_shadow(self):
        c = self.names()
        self.assertEqual(self.value(c, "json = 5; hashlib = 6; json, hashlib"), "(5, 6)")
        self.assertEqual(self.value(c, "del json, hashlib\njson.dumps([1]), hashlib.md5().name"), "('[1]', 'md5')")

    # P-028: Python's own builtins stay as they are, for libraries and in every module
    def test_process_builtins(self):
        c = self.names()
        self.assertEqual(self.value(c, "import builtins\n[n for n in ('json', 'Path', 'files', 'run') if hasattr(builtins, n)]"), "[]")
        k = c.kernel
        with open(k.workspace + "/own.py", "w") as f:
            f.write("try: json\nexcept NameError: answer = 'none'\n")
        self.assertEqual(self.value(c, "import own; own.answer"), "'none'")

    # P-028: a cell that uses what `site` adds
    def test_site_builtins(self):
        c = self.names()
        self.assertEqual(self.value(c, "type(exit).__name__, type(help).__name__"), "('Quitter', '_Helper')")


ASSIGNS = ("files = 1", "files: int = 1", "files += 1", "(files := 1)", "[files := x for x in range(2)]", "a, *files = 1, 2",
           "for files in (): pass", "with open('/dev/null') as files: pass", "def files(): pass", "class files: pass",
           "async def files(): pass", "import files", "import files.part", "import os as files", "from os import path as files",
           "from soma import run as files", "from os import files", "del files", "try: pass\nexcept ValueError as files: pass",
           "try: pass\nexcept* ValueError as files: pass", "match 1:\n    case files: pass", "match []:\n    case [*files]: pass",
           "match {}:\n    case {**files}: pass", "def f():\n    global files", "class A:\n    def f(self):\n        global run\n        run = 1",
           "if 0:\n    files = 1", "async for files in x: pass", "global files\nfiles = 1", "for x.y, files in (): pass")
ALLOWED = ("[files for files in [1]][0]", "{files: 1 for files in [1]}[1]", "(lambda files: files)(1)",
           "def f(files, run=1):\n    files = run\n    del files\n    return run\nf(2)",
           "def f():\n    import os as files\n    for run in [1]: pass\n    return run\nf()",
           "class A:\n    files = 1\nA.files", "from soma import files, run\nrun(1)", "import soma\nsoma.run(1)",
           "x = type('X', (), {})(); x.files = 1; x.files", "d = {}; d['files'] = 1; d['files']", "dict(files=1)['files']",
           "exec('files = 1', d := {}); d['files']", "next(files for files in [1])")


class Locked(NamesCase):
    # P-029: refused when it is compiled: no line of the cell runs
    def test_assignments(self):
        c = self.names()
        for code in ASSIGNS:
            with self.subTest(code):
                done = self.refused(c, "print('ran')\n" + code, "SyntaxError")
                self.assertEqual(done["output"]["size"], 0)
                self.assertIn("is a name of this kernel", done["error"]["message"])
                self.assertIn("(<cell>, line", done["error"]["message"])
        self.assertEqual(self.value(c, "files.read('a'), run(2)"), "('a', 2)")

    # P-029: locals, comprehensions, arguments, attributes and `from soma import` are a person's own
    def test_allowed(self):
        c = self.names()
        for code in ALLOWED:
            with self.subTest(code):
                self.assertEqual(self.value(c, code), "1")
        self.assertEqual(self.value(c, "files.read('a'), run(2)"), "('a', 2)")

    # P-029: what gets past the compiler fails the cell, and the name is back for the next one
    def test_at_run_time(self):
        c = self.names()
        for code in ("globals()['files'] = 1", "exec('files = 1')", "exec('del files')\nfiles", "vars()['run'] = 2; 3",
                     "import __main__; __main__.files = 1", "import soma; soma.run = 1", "import soma; del soma.files",
                     "__builtins__.files = 1", "globals().update(run=0)\nawait asyncio.sleep(0)",
                     "import sys; setattr(sys.modules['__main__'], 'run', 1)"):
            with self.subTest(code):
                done = self.refused(c, code, "NameError" if "del files')" in code else "soma_names.LockedName")
                self.assertNotIn("value", done)
                self.assertEqual(self.value(c, "files.read('a'), run(2)"), "('a', 2)")

    # P-029: what a task does between two cells is undone before the next one runs
    def test_between_cells(self):
        c = self.names()
        self.value(c, "async def spoil():\n    await asyncio.sleep(0)\n    globals()['run'] = None\nt = asyncio.create_task(spoil())")
        self.assertEqual(self.value(c, "run(5)"), "5")

    # P-124: `import soma` gives the same objects
    def test_soma_module(self):
        c = self.names()
        self.assertEqual(self.value(c, "import soma\nfrom soma import files as f\nsoma.files is files, f is files, soma.run is run"),
                         "(True, True, True)")

    # P-029: names of the kernel cost a person's globals nothing: they are a plain dict
    def test_plain_dict(self):
        c = self.names()
        self.assertEqual(self.value(c, "type(globals()) is dict"), "True")

    # P-030: classes of cells can be pickled by name
    def test_main(self):
        c = self.names()
        self.assertEqual(self.value(c, "import pickle, __main__\nclass A:\n    def __eq__(self, o): return type(o) is A\n"
                                       "pickle.loads(pickle.dumps(A())) == A(), __main__.A is A"), "(True, True)")


class Provided(NamesCase):
    # P-126: a name that is taken, or none, is refused at start-up
    def test_taken(self):
        for name in ("run", "json", "print", "not a name"):
            code = MODULE + f"    api.provide({name!r}, 1)\n"
            k = self.kernel(modules=("soma_sample",), bundle=self.bundle(self.module("soma_sample", code))).listening()
            error = k.attach().frame_of("startup_error")["error"]
            self.assertIn(f"cannot provide the name {name!r}", error)
            self.assertIn("while the module soma_sample was set up", error)
            self.assertEqual(k.wait(), 1)
