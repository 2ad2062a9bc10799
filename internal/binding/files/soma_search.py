"""Finding files by name and lines by pattern, in folders of any size: bounded, sorted, and said when cut."""
import os
import re
from collections import deque
from time import monotonic

# Folders that are walked only when the path or the pattern names them.
SKIPPED = frozenset((".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".nox", ".mypy_cache",
                     ".pytest_cache", ".ruff_cache", ".cache", ".gradle", ".terraform", "bower_components"))
ENTRIES = 500_000          # that one search looks at
SECONDS = 20.0
SCANNED = 512 << 20        # bytes
LARGE = 16 << 20           # bytes of a file that is not searched in a folder
LINE = 400                 # characters of a line that are shown
LIMIT = 10_000             # results at most
_CHUNK = 4 << 20           # bytes of a file that are held at a time


class Found(list):
    """Results; prints one a line. `cut` says why there are not all, else it is empty."""

    cut = ""

    def __str__(self):
        lines = self._lines()
        if not self:
            lines.append("nothing found")
        if self.cut:
            lines.append(f"[{self.cut}]")
        return "\n".join(lines)

    __repr__ = __str__

    def _lines(self):
        return [str(item) for item in self]


class Line(tuple):
    """(path, number, text) of a line that matches."""

    __slots__ = ()
    path = property(lambda self: self[0])
    number = property(lambda self: self[1])
    text = property(lambda self: self[2])


class Lines(Found):
    """Lines that match, printed under the name of their file; `around` holds context by path and number."""

    def __init__(self):
        super().__init__()
        self.around = {}

    def _lines(self):
        shown, matched = [], {}
        for path, number, text in self:
            matched.setdefault(path, {})[number] = text
        for path, lines in matched.items():
            shown.append(path)
            last = None
            for number in sorted(lines.keys() | self.around.get(path, {}).keys()):
                if last is not None and number != last + 1 and self.around:
                    shown.append("--")
                last = number
                shown.append(f"{number}: {lines[number]}" if number in lines else f"{number}- {self.around[path][number]}")
        return shown


class Walk:
    """The files below a folder in the order of their paths; `cut` says why it ended early."""

    def __init__(self, root, globs):
        self.root = root
        self.cut = ""
        self.until = monotonic() + SECONDS
        self._left = ENTRIES
        self._named = {part for glob in globs for part in glob.split("/")}
        self._matches = [matcher(glob) for glob in globs]

    def __iter__(self):
        """(path to show, size) of each regular file that matches."""
        prefix = "" if self.root in (".", "./") else self.root.rstrip("/") + "/"
        waiting = [self._entries("")]
        while waiting:
            entry = next(waiting[-1], None)
            if entry is None:
                waiting.pop()
                continue
            name, inside, folder = entry
            if folder:
                if name not in SKIPPED or name in self._named:
                    waiting.append(self._entries(inside + "/"))
            elif any(m(inside) for m in self._matches):
                yield prefix + inside
            if self.cut:
                return

    def _entries(self, inside):
        try:
            with os.scandir(os.path.join(self.root, inside)) as found:
                entries = []
                for e in found:
                    self._left -= 1
                    if self._left < 0 or not self._left % 256 and monotonic() > self.until:
                        self.cut = "the search was ended early: too many files; name a folder further down"
                        return
                    try:
                        if e.is_dir(follow_symlinks=False):
                            entries.append((e.name, True))
                        elif e.is_file():
                            entries.append((e.name, False))
                    except OSError:
                        pass
        except OSError:
            if not inside:
                raise
            return  # a folder that may not be read, or is gone
        for name, folder in sorted(entries):
            yield name, inside + name, folder


def matcher(glob):
    """A function that tells whether a path below the root matches: `*` and `?` stay within a folder, `**` does not, `{a,b}` is
    either; a glob without "/" is for the name alone."""
    whole = "/" in glob
    match = re.compile(_regex(glob.removeprefix("./"))).fullmatch
    return match if whole else lambda path: match(path.rpartition("/")[2])


def _regex(glob):
    out, i, depth = [], 0, 0
    while i < len(glob):
        c = glob[i]
        i += 1
        if c == "*":
            if glob[i:i + 1] == "*":
                i += 1
                if glob[i:i + 1] == "/":
                    i += 1
                    out.append("(?:[^/]+/)*")
                else:
                    out.append(".*")
            else:
                out.append("[^/]*")
        elif c == "?":
            out.append("[^/]")
        elif c == "[" and (end := glob.find("]", i + 1)) > 0:
            inner = glob[i:end].replace("\\", "\\\\").replace("[", "\\[")
            out.append("[" + ("^" + inner[1:] if inner[0] in "!^" else inner) + "]")
            i = end + 1
        elif c == "{" and "}" in glob[i:]:
            depth += 1
            out.append("(?:")
        elif c == "}" and depth:
            depth -= 1
            out.append(")")
        elif c == "," and depth:
            out.append("|")
        else:
            out.append(re.escape(c))
    return "(?s:" + "".join(out) + ")"


def _checked(limit):
    if not isinstance(limit, int) or not 1 <= limit <= LIMIT:
        raise ValueError(f"limit is 1 to {LIMIT}")


def _glob(glob, root):
    """The glob as one below root, and root: an absolute glob names its own."""
    if not isinstance(glob, str) or not glob:
        raise ValueError("a glob is text such as '*.py' or 'src/**/*.py'")
    glob = os.path.expanduser(glob)
    if not glob.startswith("/"):
        return glob, root
    parts = glob.split("/")
    n = next((i for i, part in enumerate(parts[:-1]) if set(part) & set("*?[{")), len(parts) - 1)
    return "./" + "/".join(parts[n:]), "/".join(parts[:n]) or "/"


def _folder(path):
    if not os.path.isdir(path):
        raise (ValueError if os.path.exists(path) else FileNotFoundError)(f"{path} is no folder")


def find(glob, path, limit):
    _checked(limit)
    glob, path = _glob(glob, path)
    _folder(path)
    found, walk = Found(), Walk(path, [glob])
    for name in walk:
        if len(found) == limit:
            found.cut = f"more than {limit} files: a narrower glob or path, or limit="
            return found
        found.append(name)
    found.cut = walk.cut
    return found


def grep(pattern, path, glob, context, ignore_case, limit):
    _checked(limit)
    if not isinstance(context, int) or not 0 <= context <= 50:
        raise ValueError("context is 0 to 50 lines")
    if isinstance(pattern, re.Pattern):
        search, literal = pattern.search, None
    else:
        try:
            search = re.compile(pattern, re.IGNORECASE if ignore_case else 0).search
        except re.error as e:
            raise ValueError(f"the pattern is no regular expression: {e}; re.escape(text) makes one of plain text") from None
        literal = pattern if not ignore_case and not set(pattern) & set("\\.^$*+?{}[]|()\n\r") else None
    found, large, scanned = Lines(), [], 0
    alone = os.path.isfile(path)
    if alone:
        walk, names = None, [path]
    else:
        glob, path = _glob(glob, path)
        _folder(path)
        walk = names = Walk(path, [glob])
    until = monotonic() + SECONDS
    for name in names:
        try:
            with open(name, "rb") as f:
                size = os.fstat(f.fileno()).st_size
                if size > LARGE and not alone:
                    large.append(name)
                    continue
                text = _text(f, min(size + 1, _CHUNK) if size or not alone else _CHUNK, literal)
                if text is None:
                    if alone:
                        raise ValueError(f"{name} is no text")
                    continue
                whole = _in_file(found, name, text, search, context, limit)
        except OSError:
            if alone:
                raise
            continue
        if not whole:
            found.cut = f"more than {limit} lines match: a narrower pattern, path or glob, or limit="
            return found
        scanned += size
        if not alone and (scanned > SCANNED or monotonic() > until):
            found.cut = f"ended after {name}: too much text; a narrower path or glob"
            return found
    notes = [walk.cut] if walk is not None and walk.cut else []
    if large:
        shown = ", ".join(large[:3]) + (", …" if len(large) > 3 else "")
        notes.append(f"not searched, for they are over {LARGE >> 20} MiB: {shown}")
    found.cut = "; ".join(notes)
    return found


def _text(f, most, literal):
    """The lines of a file of which most bytes are read at first; none where it cannot hold the literal; None where it is no text."""
    data = f.read(most)
    if b"\0" in data[:8192]:
        return None
    if len(data) >= _CHUNK:
        return _pieces(f, data)
    text = data.decode("utf-8", "replace")
    if literal is not None and literal not in text:
        return ()
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _pieces(f, data):
    """The lines of a long file, of which a part is held at a time; a line longer than that is several."""
    while data:
        end = data.rfind(b"\n") + 1 or len(data)
        yield from data[:end].removesuffix(b"\n").decode("utf-8", "replace").split("\n")
        more = f.read(_CHUNK)
        if not more and end == len(data):
            return
        data = data[end:] + more


def _in_file(found, name, lines, search, context, limit):
    """Add what matches in one file; False when the limit is reached and more is there."""
    before, after = deque(maxlen=context), 0
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r")
        if search(line) is not None:
            if len(found) == limit:
                return False
            found.append(Line((name, number, _cut(line))))
            if context:
                found.around.setdefault(name, {}).update(before)
            after = context
        elif after:
            after -= 1
            found.around.setdefault(name, {})[number] = _cut(line)
        elif context:
            before.append((number, _cut(line)))
    return True


def _cut(line):
    return line if len(line) <= LINE else f"{line[:LINE]}… [{len(line)} characters]"
