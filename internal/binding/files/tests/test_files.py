"""The functions of `files` on real files, and the traces that they leave."""
import contextlib
import os
import stat
import sys
import tempfile
import time
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.abspath(os.path.join(HERE, "../../../pykernel/python"))]

import soma_files  # noqa: E402
import soma_search  # noqa: E402
import soma_trace  # noqa: E402


class Api:
    """What `files` needs of a kernel's API."""

    def __init__(self, workspace):
        self.workspace = workspace
        self.running = "c1"
        self.names, self.sent, self.enders, self.ended = {}, [], [], set()

    def provide(self, name, value):
        self.names[name] = value

    def cell(self):
        return self.running

    def cell_facts(self, cell):
        return {"state": "finished" if cell in self.ended else "running"}

    def supervising(self):
        return contextlib.nullcontext()

    def on_cell_end(self, handler):
        self.enders.append(handler)

    def send(self, kind, fields, key=None, coalesces=False):
        self.sent.append((kind, fields, key, coalesces))

    def end(self, cell):
        """The changes of the cell's frame, or None when none was sent."""
        before = len(self.sent)
        for handler in self.enders:
            handler(cell)
        self.ended.add(cell)
        return self.sent[-1][1]["changes"] if len(self.sent) > before else None


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = os.path.realpath(tempfile.mkdtemp())
        self.addCleanup(lambda: __import__("shutil").rmtree(self.dir))
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.dir)
        self.api = Api(self.dir)
        soma_files.setup(self.api)
        self.files = self.api.names["files"]

    def put(self, name, data):
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        return name

    def got(self, name):
        with open(name, "rb") as f:
            return f.read()

    def fails(self, text, call, *args, kind=ValueError, **kw):
        with self.assertRaises(kind) as caught:
            call(*args, **kw)
        self.assertIn(text, str(caught.exception))
        return str(caught.exception)


class Read(Case):
    def test_whole_text_is_exact(self):
        self.put("a", "one\r\ntwo\nthrée")
        self.assertEqual(self.files.read("a"), "one\r\ntwo\nthrée")
        self.assertEqual(self.files.read(self.put("empty", "")), "")
        self.assertEqual(self.files.read("empty", 1, 5), "")

    def test_lines(self):
        self.put("a", "".join(f"line {i}\n" for i in range(1, 1001)) + "end")
        for args, want in (((3, 4), "line 3\nline 4\n"), ((1000,), "line 1000\nend"), ((None, 1), "line 1\n"), ((-2,), "line 1000\nend"),
                           ((-2, -2), "line 1000\n"), ((1001, 2000), "end"), ((-5000, 1), "line 1\n")):
            self.assertEqual(self.files.read("a", *args), want, args)
        self.assertEqual(self.files.read("a", 9, 10, numbers=True), " 9  line 9\n10  line 10\n")
        self.fails("has 1001 lines: there is no line 1002", self.files.read, "a", 1002)
        self.fails("before start", self.files.read, "a", 5, 4)
        self.fails("line number", self.files.read, "a", 0)
        self.fails("line number", self.files.read, "a", "1")

    def test_large_files_are_read_in_parts(self):
        with open("big", "wb") as f:
            for i in range(1, 400_001):
                f.write(b"%08d\n" % i)
        message = self.fails("400000 lines", self.files.read, "big")
        self.assertIn("files.read('big', 1, 500)", message)
        self.assertEqual(self.files.read("big", 350_000, 350_001), "00350000\n00350001\n")
        self.assertEqual(self.files.read("big", -1), "00400000\n")
        message = self.fails("more than 1048576 bytes", self.files.read, "big", 1, 200_000)
        self.assertIn("files.read('big', 1, 116508) fits", message)
        self.assertEqual(len(self.files.read("big", 1, 116_508)), 116_508 * 9)

    def test_a_line_of_5_megabytes(self):
        self.put("long", "a\n" + "x" * 5_000_000 + "\nz\n")
        self.fails("line 2 alone is longer", self.files.read, "long", 2, 2)
        self.assertEqual(self.files.read("long", 3), "z\n")

    def test_files_without_a_size(self):
        self.assertIn("Name:", self.files.read("/proc/self/status"))
        self.assertIn("Name:", self.files.read("/proc/self/status", 1, 1))
        self.assertEqual(len(self.files.grep("^Name:", "/proc/self/status")), 1)

    def test_borders_of_chunks(self):
        chunk = soma_files._CHUNK
        self.put("a", b"x" * (chunk - 1) + b"\n" + b"second\n" + b"y" * chunk + b"\nlast")
        self.assertEqual(self.files.read("a", 2, 2), "second\n")
        self.assertEqual(self.files.read("a", 4), "last")

    def test_what_is_no_text(self):
        self.put("a.png", b"\x89PNG\r\n\x1a\n\0\0")
        self.fails("a PNG image of 10 bytes, no text: show_image('a.png') shows it", self.files.read, "a.png")
        self.put("data", b"a\0b")
        self.fails("Path('data').read_bytes()", self.files.read, "data")
        self.put("latin", b"ok\ncaf\xe9\n")
        self.fails("not utf-8: byte 0xe9 in line 2", self.files.read, "latin")
        self.fails("in line 2", self.files.read, "latin", 2)
        self.assertEqual(self.files.read("latin", encoding="latin-1"), "ok\ncafé\n")
        self.put("wide", "a\nb\n".encode("utf-16"))
        self.fails("encoding='utf-16'", self.files.read, "wide")
        self.assertEqual(self.files.read("wide", 2, encoding="utf-16"), "b\n")
        os.mkdir("folder")
        self.fails("files.find('*', 'folder')", self.files.read, "folder", kind=IsADirectoryError)
        os.mkfifo("pipe")
        self.fails("not a file", self.files.read, "pipe")
        self.put("settings.json", "{}")
        self.fails("near to it: settings.json", self.files.read, "setings.json", kind=FileNotFoundError)
        self.fails("nor its folder", self.files.read, "none/x", kind=FileNotFoundError)
        self.fails("a path is text", self.files.read, 3, kind=TypeError)
        self.fails("NUL", self.files.read, "a\0b")


class Write(Case):
    def test_new_files_are_compared_with_none(self):
        for name in ("a", "b"):
            with unittest.mock.patch.object(soma_files, "_near", side_effect=AssertionError):
                self.files.write(name, "text\n")

    def test_new_and_old(self):
        self.assertEqual(self.files.write("a/b/c.txt", "one\ntwo"), "created a/b/c.txt, 2 lines, 7 bytes")
        self.assertEqual(self.got("a/b/c.txt"), b"one\ntwo")
        self.assertEqual(self.files.write("a/b/c.txt", b"\0\1\n"), "wrote a/b/c.txt, 1 line, 3 bytes")
        self.assertEqual(self.got("a/b/c.txt"), b"\0\1\n")
        self.assertEqual(os.listdir("a/b"), ["c.txt"])

    def test_mode_and_links_are_kept(self):
        self.put("run.sh", "old")
        os.chmod("run.sh", 0o751)
        os.symlink("run.sh", "link")
        os.symlink("far/away", "dangling")
        os.link(self.put("hard", "old"), "other")
        inode = os.stat("hard").st_ino
        for name in ("link", "dangling", "hard"):
            self.files.write(name, "new")
        self.assertEqual(stat.S_IMODE(os.stat("run.sh").st_mode), 0o751)
        self.assertTrue(os.path.islink("link") and os.path.islink("dangling"))
        self.assertEqual([self.got(n) for n in ("run.sh", "far/away", "other")], [b"new"] * 3)
        self.assertEqual(os.stat("hard").st_ino, inode)

    def test_mode_of_a_new_file_follows_the_umask(self):
        old = os.umask(0o027)
        self.addCleanup(os.umask, old)
        self.files.write("a", "x")
        self.assertEqual(stat.S_IMODE(os.stat("a").st_mode), 0o640)

    def test_a_failed_write_leaves_the_file(self):
        self.put("a", "old")
        self.fails("'\\udc80' at 3, which utf-8 cannot hold; nothing was written", self.files.write, "a", "abc\udc80")
        self.fails("str or bytes", self.files.write, "a", 7, kind=TypeError)
        real, os.replace = os.replace, None  # a call of it raises
        try:
            self.assertRaises(TypeError, self.files.write, "a", "new")
        finally:
            os.replace = real
        self.assertEqual((self.got("a"), os.listdir(".")), (b"old", ["a"]))
        os.mkdir("folder")
        self.assertRaises(IsADirectoryError, self.files.write, "folder", "x")


class Edit(Case):
    def test_exact_and_unique(self):
        self.put("a", "x = 1\ny = 1\nz = 2\n")
        self.assertEqual(self.files.edit("a", "y = 1", "y = 3"), "edited a, line 2")
        self.assertEqual(self.got("a"), b"x = 1\ny = 3\nz = 2\n")
        message = self.fails("old is in a 3 times, at line 1, 2, 3", self.files.edit, "a", " = ", " == ")
        self.assertIn("count=3", message)
        self.assertEqual(self.files.edit("a", " = ", " == ", 3), "edited a, line 1, 2, 3")
        self.fails("only 3 times, at line 1, 2, 3, not 4 times", self.files.edit, "a", " == ", " = ", 4)
        self.assertEqual(self.files.edit("a", " == ", " = ", None), "edited a, line 1, 2, 3")
        self.assertEqual(self.got("a"), b"x = 1\ny = 3\nz = 2\n")

    def test_bad_arguments(self):
        self.put("a", "x")
        self.fails("same text", self.files.edit, "a", "x", "x")
        self.fails("old is empty", self.files.edit, "a", "", "x")
        self.fails("new is text", self.files.edit, "a", "x", None, kind=TypeError)
        self.fails("count", self.files.edit, "a", "x", "y", 0)
        self.assertEqual(self.got("a"), b"x")

    def test_what_is_nearest(self):
        self.put("a", "def f(x):\n    if x > 1:\n        return x\n\ndef g(value):\n    return value * 2\n")
        message = self.fails("with other white space it is at line 2", self.files.edit, "a", "if x > 1:\n    return x", "pass")
        self.assertTrue(message.endswith("\n    if x > 1:\n        return x"), message)
        message = self.fails("nearest to it, at line 5", self.files.edit, "a", "def g(val):\n    return val * 2", "pass")
        self.assertTrue(message.endswith("\ndef g(value):\n    return value * 2"), message)
        self.fails("nor a line that is near to it", self.files.edit, "a", "something quite different", "pass")
        self.fails("nor a line that is near to it", self.files.edit, "a", "}", "pass")

    def test_the_search_for_what_is_near_is_quick(self):
        self.put("a", "".join(f"value_{i} = compute({i}, other_{i})\n" for i in range(100_000)))
        at = time.monotonic()
        self.fails("nearest to it", self.files.edit, "a", "value_77 = compute(77, another_one)", "pass")
        self.assertLess(time.monotonic() - at, 10)

    def test_crlf_is_kept(self):
        self.put("a", "one\r\ntwo\r\nthree\r\n")
        self.files.edit("a", "one\ntwo\n", "1\n2\n2.5\n")
        self.assertEqual(self.got("a"), b"1\r\n2\r\n2.5\r\nthree\r\n")
        self.files.edit("a", "2.5\r\n", "")
        self.assertEqual(self.got("a"), b"1\r\n2\r\nthree\r\n")

    def test_encodings(self):
        self.put("a", "café\n".encode("latin-1"))
        self.files.edit("a", "café", "thé", encoding="latin-1")
        self.assertEqual(self.got("a"), "thé\n".encode("latin-1"))
        self.fails("cannot hold", self.files.edit, "a", "thé", "€", encoding="latin-1")
        self.put("bom", b"\xef\xbb\xbfx = 1\n")
        self.files.edit("bom", "x = 1", "x = 2")
        self.assertEqual(self.got("bom"), b"\xef\xbb\xbfx = 2\n")


class Find(Case):
    def setUp(self):
        super().setUp()
        for name in ("b.py", "a.py", "src/x.py", "src/deep/y.py", "src/deep/y.txt", ".git/config.py", "node_modules/m.py",
                     "src/__pycache__/x.py", ".hidden/h.py", "we[i]rd/z.py"):
            self.put(name, "text\n")

    def test_globs(self):
        for glob, path, want in (
            ("*.py", ".", [".hidden/h.py", "a.py", "b.py", "src/deep/y.py", "src/x.py", "we[i]rd/z.py"]),
            ("src/*.py", ".", ["src/x.py"]),
            ("src/**/*.py", ".", ["src/deep/y.py", "src/x.py"]),
            ("**/y.{py,txt}", ".", ["src/deep/y.py", "src/deep/y.txt"]),
            ("[ab].py", ".", ["a.py", "b.py"]),
            ("[!a].py", "src", ["src/x.py"] + ["src/deep/y.py"]),
            ("?.txt", "src/", ["src/deep/y.txt"]),
            (".git/*", ".", [".git/config.py"]),
            ("*.py", ".git", [".git/config.py"]),
            ("we[[]i]rd/*", ".", ["we[i]rd/z.py"]),
            (self.dir + "/src/**/y*", ".", [self.dir + "/src/deep/y.py", self.dir + "/src/deep/y.txt"]),
            ("nothing", ".", []),
        ):
            self.assertEqual(sorted(self.files.find(glob, path)), sorted(want), glob)
        self.assertEqual(list(self.files.find("*.py")), sorted(self.files.find("*.py"), key=lambda p: p.split("/")))

    def test_what_is_printed(self):
        self.assertEqual(str(self.files.find("src/*.py")), "src/x.py")
        self.assertEqual(repr(self.files.find("none")), "nothing found")
        cut = self.files.find("*.py", limit=2)
        self.assertEqual(str(cut), ".hidden/h.py\na.py\n[more than 2 files: a narrower glob or path, or limit=]")
        self.assertEqual(self.files.find("*.py", limit=6).cut, "")

    def test_refusals(self):
        self.fails("none is no folder", self.files.find, "*", "none", kind=FileNotFoundError)
        self.fails("a.py is no folder", self.files.find, "*", "a.py")
        self.fails("limit", self.files.find, "*", limit=0)
        self.fails("a glob is text", self.files.find, "")

    def test_links_do_not_lead_in_circles(self):
        os.symlink("..", "src/up")
        os.symlink("a.py", "to_a.py")
        self.assertEqual(list(self.files.find("*a.py")), ["a.py", "to_a.py"])

    def test_the_walk_is_bounded(self):
        old, soma_search.ENTRIES = soma_search.ENTRIES, 5
        try:
            self.assertIn("too many files", self.files.find("*").cut)
        finally:
            soma_search.ENTRIES = old


class Grep(Case):
    def setUp(self):
        super().setUp()
        self.put("a.py", "import os\n\ndef f():\n    return os.getcwd()\n")
        self.put("src/b.py", "import sys\r\nimport os\r\n")
        self.put("c.txt", "import nothing\n")
        self.put("bin", b"import os\0")

    def test_lines(self):
        found = self.files.grep(r"^import \w+$", glob="*.py")
        self.assertEqual(list(found), [("a.py", 1, "import os"), ("src/b.py", 1, "import sys"), ("src/b.py", 2, "import os")])
        self.assertEqual((found[0].path, found[0].number, found[0].text), ("a.py", 1, "import os"))
        self.assertEqual(str(found), "a.py\n1: import os\nsrc/b.py\n1: import sys\n2: import os")
        self.assertEqual(len(self.files.grep("IMPORT", ignore_case=True)), 4)
        self.assertEqual(len(self.files.grep("import os")), 2)
        self.assertEqual(list(self.files.grep("getcwd", "a.py")), [("a.py", 4, "    return os.getcwd()")])
        self.assertEqual(list(self.files.grep("x", "src")), [])

    def test_context(self):
        self.put("n", "".join(f"{i}\n" for i in range(1, 21)))
        found = self.files.grep("^(5|6|15)$", "n", context=1)
        self.assertEqual(str(found), "n\n4- 4\n5: 5\n6: 6\n7- 7\n--\n14- 14\n15: 15\n16- 16")

    def test_cut(self):
        found = self.files.grep("import", limit=2)
        self.assertEqual(len(found), 2)
        self.assertTrue(str(found).endswith("\n[more than 2 lines match: a narrower pattern, path or glob, or limit=]"))
        self.assertEqual(self.files.grep("import", limit=4).cut, "")
        self.put("long", "x" * 5000 + "\n")
        self.assertEqual(self.files.grep("x", "long")[0].text, "x" * 400 + "… [5000 characters]")

    def test_long_files_are_searched_in_parts(self):
        old, soma_search._CHUNK = soma_search._CHUNK, 1 << 16
        self.addCleanup(setattr, soma_search, "_CHUNK", old)
        chunk = soma_search._CHUNK
        self.put("long", b"a\n" * (chunk // 2 - 1) + b"needle 1\n" + b"b\n" * chunk + b"needle 2 \xc3\xa9\n" + b"c" * chunk + b"\nneedle 3")
        found = self.files.grep("needle", "long", context=1)
        self.assertEqual(list(found), [("long", chunk // 2, "needle 1"), ("long", chunk // 2 + chunk + 1, "needle 2 é"),
                                       ("long", found[2].number, "needle 3")])
        self.assertEqual(found.around["long"][chunk // 2 + 1], "b")
        self.assertEqual(len(self.files.grep("^b$", "long", limit=10)), 10)

    def test_context_of_neighbours(self):
        self.put("n", "".join(f"{i}\n" for i in range(1, 11)))
        found = self.files.grep("^(1|4|5|10)$", "n", context=2)
        self.assertEqual(found.around["n"], {2: "2", 3: "3", 6: "6", 7: "7", 8: "8", 9: "9"})

    def test_refusals(self):
        self.fails("no regular expression", self.files.grep, "f(")
        self.fails("is no text", self.files.grep, "import", "bin")
        self.fails("is no folder", self.files.grep, "import", "none", kind=FileNotFoundError)
        self.fails("context", self.files.grep, "x", context=51)

    def test_large_files_are_named(self):
        old, soma_search.LARGE = soma_search.LARGE, 30
        try:
            found = self.files.grep("nothing")
        finally:
            soma_search.LARGE = old
        self.assertEqual(len(found), 1)
        self.assertIn("not searched", found.cut)
        self.assertIn("a.py", found.cut)


# P-066: what a cell changes is recorded as bounded diffs, one change a file, one frame a cell
class Trace(Case):
    def test_changes_of_a_cell_are_one_frame(self):
        self.put("old.txt", "one\ntwo\nthree\n")
        self.put("gone.txt", "bye\n")
        self.files.write("new.txt", "a\nb")
        self.files.edit("old.txt", "two", "2")
        self.files.edit("old.txt", "three", "3")
        self.files.write("gone.txt", "again\n")
        self.files.write("made_and_removed", "x")
        os.unlink("gone.txt")
        os.unlink("made_and_removed")
        self.assertEqual(self.api.sent, [])
        changes = self.api.end("c1")
        self.assertEqual(changes, [
            {"path": "new.txt", "kind": "created", "truncated": False,
             "diff": "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"},
            {"path": "old.txt", "kind": "changed", "truncated": False,
             "diff": "--- a/old.txt\n+++ b/old.txt\n@@ -1,3 +1,3 @@\n one\n-two\n-three\n+2\n+3\n"},
            {"path": "gone.txt", "kind": "deleted", "truncated": False,
             "diff": "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n"},
        ])
        kind, fields, key, coalesces = self.api.sent[0]
        self.assertEqual((kind, fields["cell"], key, coalesces, len(self.api.sent)), ("trace", "c1", ("trace", "c1"), True, 1))
        self.assertIsNone(self.api.end("c2"))

    def test_each_cell_has_its_own(self):
        self.files.write("a", "1\n")
        self.api.running = "c2"
        self.files.write("a", "2\n")
        self.assertEqual(self.api.end("c1")[0]["kind"], "created")
        self.assertEqual(self.api.end("c2")[0]["diff"], "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n")

    def test_what_a_task_writes_later_is_added(self):
        self.files.write("a", "1\n")
        self.api.end("c1")
        self.files.write("b", "2\n")
        self.assertEqual([c["path"] for c in self.api.sent[-1][1]["changes"]], ["a", "b"])
        self.assertEqual(self.api.sent[-1][2], ("trace", "c1"))

    def test_what_is_as_before_is_no_change(self):
        self.put("a", "1\n")
        self.files.edit("a", "1", "2")
        self.files.edit("a", "2", "1")
        self.assertEqual(self.api.end("c1"), [])

    def test_outside_of_the_workspace(self):
        other = tempfile.mkdtemp()
        self.addCleanup(lambda: __import__("shutil").rmtree(other))
        self.files.write(other + "/x", "1\n")
        self.assertEqual(self.api.end("c1")[0]["path"], os.path.realpath(other) + "/x")

    def test_bounds(self):
        self.put("large", b"x" * (soma_trace.COMPARED + 1))
        self.files.write("large", "small\n")
        self.files.write("lines", "".join(f"line {i}\n" for i in range(10_000)))
        self.files.write("bytes", b"\0\xff")
        for i in range(12):
            self.files.write(f"f{i}", "".join(f"{i} {k}\n" for k in range(5_000)))
        changes = {c["path"]: c for c in self.api.end("c1")}
        self.assertEqual(changes["large"], {"path": "large", "kind": "changed", "diff": "", "truncated": True})
        self.assertTrue(changes["lines"]["truncated"])
        self.assertLessEqual(len(changes["lines"]["diff"]), soma_trace.DIFF)
        self.assertTrue(changes["lines"]["diff"].endswith("\n"))
        self.assertEqual(changes["bytes"]["diff"], "binary file bytes: 0 bytes before, 2 bytes after\n")
        self.assertLessEqual(sum(len(c["diff"]) for c in changes.values()), soma_trace.CELL)
        self.assertEqual(changes["f11"], {"path": "f11", "kind": "created", "diff": "", "truncated": True})

    def test_many_files(self):
        for i in range(soma_trace.FILES + 5):
            self.files.write(f"f{i:03}", "x\n")
        changes = self.api.end("c1")
        self.assertEqual(len(changes), soma_trace.FILES + 1)
        self.assertEqual(changes[-1]["path"], "(5 more files)")

    def test_memory_is_bounded(self):
        old, soma_trace.HELD = soma_trace.HELD, 1000
        try:
            self.files.write("a", "x" * 900)
            self.files.write("b", "x" * 900)
            self.api.end("c1")
        finally:
            soma_trace.HELD = old
        a, b = self.api.sent[0][1]["changes"]
        self.assertFalse(a["truncated"])
        self.assertEqual((b["diff"], b["truncated"]), ("", True))
        for i in range(soma_trace.KEPT + 3):
            self.api.running = f"k{i}"
            self.files.write("a", f"{i}")
            self.api.end(f"k{i}")
        self.assertIsNone(self.api.traces.of("c1"))
        self.assertIsNotNone(self.api.traces.of(f"k{soma_trace.KEPT + 2}"))
        held = sum(c.size() for changes in self.api.traces._ended.values() for c in changes.values())
        self.assertEqual(self.api.traces._held, held)

    def test_a_small_edit_of_a_long_file_is_quick(self):
        lines = [f"{i % 7}\n" for i in range(100_000)]
        self.put("a", "".join(lines))
        lines[50_000] = "changed\n"
        self.files.write("a", "".join(lines))
        at = time.monotonic()
        diff = self.api.end("c1")[0]["diff"]
        self.assertLess(time.monotonic() - at, 2)
        self.assertEqual(diff.splitlines()[2:6], ["@@ -49998,7 +49998,7 @@", " 3", " 4", " 5"])
        self.files.write("b", "".join(f"{i}\n" for i in range(20_000)))
        self.api.end("c1")

    def test_equal_lines_at_both_ends(self):
        self.assertEqual(list(soma_trace.unified("p", b"x\n" * 20, b"x\n" * 21))[2:],
                         ["@@ -18,3 +18,4 @@\n", " x\n", " x\n", " x\n", "+x\n"])
        self.assertEqual(list(soma_trace.unified("p", b"x\n" * 21, b"x\n" * 20))[2:],
                         ["@@ -18,4 +18,3 @@\n", " x\n", " x\n", " x\n", "-x\n"])

    def test_diffs_apply(self):
        import random
        import subprocess

        draw = random.Random(7)
        for n in range(60):
            before = "".join(draw.choice("abc\n") for _ in range(draw.randrange(200)))
            after = list(before)
            for _ in range(draw.randrange(1, 6)):
                at = draw.randrange(len(after) + 1)
                after[at:at + draw.randrange(3)] = draw.choice(["", "x", "\n", "new\nlines\n"])
            after = "".join(after)
            if before == after:
                continue
            self.put("p", before)
            diff = "".join(soma_trace.unified("p", before.encode(), after.encode()))
            done = subprocess.run(["git", "apply", "--unidiff-zero", "-"], input=diff.encode(), capture_output=True)
            self.assertEqual((done.returncode, self.got("p")), (0, after.encode()), (before, diff, done))


if __name__ == "__main__":
    unittest.main()
