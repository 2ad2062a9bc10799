"""The binding `files`: text files read, written and edited, found and searched. Plain calls; errors say what to do next."""
import os

import soma_trace

WHOLE = 1 << 20      # bytes of text that one read returns
EDITED = 16 << 20    # bytes of a file that edit takes
_LOOK = 8192         # bytes that tell text from binary
_CHUNK = 1 << 20
_MARKS = ((b"\x89PNG", "a PNG image"), (b"\xff\xd8\xff", "a JPEG image"), (b"RIFF", "a RIFF file"), (b"GIF8", "a GIF image"),
          (b"%PDF", "a PDF"), (b"PK\x03\x04", "a zip archive"), (b"\x1f\x8b", "gzip data"), (b"\x7fELF", "an ELF program"),
          (b"SQLite format 3", "an SQLite database"))


class Files:
    """Text files. Paths are relative to the working directory; lines count from 1."""

    def __init__(self, api):
        self._api = api
        self._traces = api.traces = soma_trace.Traces(api)

    def read(self, path, start=None, end=None, *, numbers=False, encoding="utf-8"):
        """The text of a file, or its lines start to end (both included; a negative start counts from the end).

        At most 1 MiB; numbers=True puts the number before each line."""
        path = _path(path)
        with _open(path) as f:
            size = os.fstat(f.fileno()).st_size
            _refuse_binary(path, f, size, encoding)
            if start is None and end is None:
                first, data = 1, f.read(WHOLE + 1)
                if len(data) > WHOLE:
                    f.seek(0)
                    raise ValueError(f"{path} has {size} bytes in {_count(f)} lines, and files.read returns at most {WHOLE}: "
                                     f"read parts, files.read({path!r}, 1, 500), or search it, files.grep(pattern, {path!r})")
            else:
                first, data = _range(f, path, _whole(start, "start"), _whole(end, "end"), encoding)
        text = _decode(data, path, encoding, first)
        return _numbered(text, first) if numbers else text

    def write(self, path, text, *, encoding="utf-8"):
        """Make text (str, or bytes) the whole content of a file, which is replaced at once; folders are made as needed."""
        path = _path(path)
        data = bytes(text) if isinstance(text, (bytes, bytearray, memoryview)) else _encode(text, encoding)
        real, before = self._replace(path, data)
        if before is None:
            return f"created {path}, {_amount(data)}"
        return f"wrote {path}, {_amount(data)}"

    def edit(self, path, old, new, count=1, *, encoding="utf-8"):
        """Replace the text old, which must be in the file exactly count times (None: any number), by new."""
        for name, value in (("old", old), ("new", new)):
            if not isinstance(value, str):
                raise TypeError(f"{name} is text, not {type(value).__name__}")
        if count is not None and (not isinstance(count, int) or count < 1):
            raise ValueError("count is how often old must be in the file, 1 or more, or None for any number")
        if old == new:
            raise ValueError("old and new are the same text")
        if not old:
            raise ValueError("old is empty: name the text that is to be replaced, or use files.write")
        path = _path(path)
        with _open(path) as f:
            size = os.fstat(f.fileno()).st_size
            _refuse_binary(path, f, size, encoding)
            if size > EDITED:
                raise ValueError(f"{path} has {size} bytes, and files.edit takes at most {EDITED}")
            data = f.read(size + 1)
        text = _decode(data, path, encoding, 1)
        if old not in text and "\r\n" in text and "\r" not in old:  # a file with CRLF keeps them
            old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
        found = text.count(old)
        if found == 0:
            raise ValueError(_not_found(path, text, old))
        if count is not None and found != count:
            lines = _lines_of(text, old)
            raise ValueError(f"old is in {path} {_times(found)}, at line {lines}: take more of its surroundings, or say "
                             f"count={found} to replace all" if found > count else
                             f"old is in {path} only {_times(found)}, at line {lines}, not {_times(count)}")
        lines = _lines_of(text, old)
        self._replace(path, _encode(text.replace(old, new), encoding), data)
        return f"edited {path}, line {lines}"

    def find(self, glob="*", path=".", *, limit=500):
        """Files whose name matches glob, sorted: `*.py` in any folder below path, `src/**/*.py` from path on."""
        import soma_search

        return soma_search.find(glob, _path(path), limit)

    def grep(self, pattern, path=".", *, glob="*", context=0, ignore_case=False, limit=100):
        """Lines that match a regular expression, in a file or in the text files below a folder whose names match glob."""
        import soma_search

        return soma_search.grep(pattern, _path(path), glob, context, ignore_case, limit)

    def _replace(self, path, data, known=None):
        """Write data; (real path, bytes before or None). known: the bytes that are to be replaced."""
        real = os.path.realpath(path)
        before = known if known is not None else _before(real)
        with self._api.supervising():  # an interrupt must not fall between a write and what is known of it
            _write(path, real, data, before is not None)
            self._traces.wrote(real, before, data)
        return real, before

    def __repr__(self):
        return "files: read, write, edit, find, grep (help(files.read) tells more)"


def setup(api):
    api.provide("files", Files(api))


def _path(path):
    if isinstance(path, bytes) or not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"a path is text or a Path, not {type(path).__name__}")
    path = os.path.expanduser(os.fspath(path))
    if not path or "\0" in path:
        raise ValueError("the path is empty or has a NUL character")
    return path


def _whole(number, name):
    if number is not None and (not isinstance(number, int) or number == 0):
        raise ValueError(f"{name} is a line number, from 1 on")
    return number


def _opener(path, flags):
    return os.open(path, flags | os.O_NONBLOCK)  # a FIFO without a writer must not hang


def _open(path):
    import stat

    try:
        f = open(path, "rb", opener=_opener)  # which owns its descriptor from the start, whatever interrupts it
    except FileNotFoundError as e:
        raise FileNotFoundError(e.errno, "there is no such file" + _near(path), path) from None
    except IsADirectoryError:
        raise IsADirectoryError(f"{path} is a folder: files.find('*', {path!r}) lists its files") from None
    try:
        if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
            raise ValueError(f"{path} is a device, socket or pipe, not a file")
        return f
    except BaseException:
        f.close()
        raise


def _near(path):
    from difflib import get_close_matches

    folder, name = os.path.split(path)
    try:
        near = get_close_matches(name, sorted(os.listdir(folder or "."))[:2000], 3)
    except OSError:
        return ", nor its folder"
    return "; near to it: " + ", ".join(os.path.join(folder, n) for n in near) if near else ""


def _refuse_binary(path, f, size, encoding):
    """Leaves f at its start."""
    start = f.read(_LOOK)
    f.seek(0)
    if start[:2] in (b"\xff\xfe", b"\xfe\xff") and encoding == "utf-8":
        raise ValueError(f"{path} is UTF-16: give encoding='utf-16'")
    if b"\0" not in start or encoding.lower().startswith(("utf-16", "utf-32", "utf16", "utf32")):
        return
    kind = next((name for mark, name in _MARKS if start.startswith(mark)), "binary data")
    hint = f"show_image({path!r}) shows it" if kind.endswith("image") else f"Path({path!r}).read_bytes() gives its bytes"
    raise ValueError(f"{path} is {kind} of {size} bytes, no text: {hint}")


def _decode(data, path, encoding, line):
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as e:
        line += data.count(b"\n", 0, e.start)
        raise ValueError(f"{path} is not {encoding}: byte 0x{data[e.start]:02x} in line {line}; name the right encoding, such as "
                         f"encoding='latin-1', or read it as bytes with Path({path!r}).read_bytes()") from None


def _encode(text, encoding):
    if not isinstance(text, str):
        raise TypeError(f"text is a str or bytes, not {type(text).__name__}")
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as e:
        raise ValueError(f"the text has {ascii(text[e.start])} at {e.start}, which {encoding} cannot hold; "
                         "nothing was written") from None


def _count(f):
    """How many lines f has, from where it stands."""
    n, last = 0, b"\n"
    while chunk := f.read(_CHUNK):
        n += chunk.count(b"\n")
        last = chunk[-1:]
    return n + (last != b"\n")


def _range(f, path, start, end, encoding):
    """(number of the first line, bytes of the lines start to end)."""
    if "\n".encode(encoding) != b"\n":
        return _range_decoded(f, path, start, end, encoding)
    if start is None:
        start = 1
    if start < 0 or (end is not None and end < 0):
        total = _count(f)
        f.seek(0)
        start = max(1, total + 1 + start) if start < 0 else start
        end = total + 1 + end if end is not None and end < 0 else end
    _order(start, end)
    line, at = 1, 0
    while line < start:
        f.seek(at)
        chunk = f.read(_CHUNK)
        breaks = chunk.count(b"\n")
        if line + breaks < start:
            if not chunk:
                break
            line, at = line + breaks, at + len(chunk)
            continue
        for _ in range(start - line):
            i = chunk.index(b"\n") + 1
            at, chunk = at + i, chunk[i:]
        line = start
    f.seek(at)
    data = f.read(WHOLE + 1)
    if start > 1 and (line < start or not data):
        f.seek(0)
        raise ValueError(f"{path} has {_count(f)} lines: there is no line {start}")
    if end is None:
        kept = data
    else:
        kept, at = b"", 0
        for _ in range(end - start + 1):
            i = data.find(b"\n", at)
            if i < 0:
                at = len(data)
                break
            at = i + 1
        kept = data[:at]
    if len(kept) > WHOLE:
        fit = data.count(b"\n", 0, WHOLE)
        more = f"files.read({path!r}, {start}, {start + fit - 1}) fits" if fit else f"line {start} alone is longer: open it and seek"
        raise ValueError(f"these lines of {path} have more than {WHOLE} bytes: {more}")
    return start, kept


def _order(start, end):
    if end is not None and end < start:
        raise ValueError(f"end ({end}) is before start ({start})")


def _range_decoded(f, path, start, end, encoding):
    data = f.read(EDITED + 1)
    if len(data) > EDITED:
        raise ValueError(f"{path} has more than {EDITED} bytes, too many for parts of a file in {encoding}")
    lines = _decode(data, path, encoding, 1).splitlines(True)
    start = 1 if start is None else start
    start = max(1, len(lines) + 1 + start) if start < 0 else start
    end = len(lines) if end is None else len(lines) + 1 + end if end < 0 else end
    _order(start, end)
    if start > max(1, len(lines)):
        raise ValueError(f"{path} has {len(lines)} lines: there is no line {start}")
    kept = "".join(lines[start - 1:end]).encode(encoding)
    if len(kept) > WHOLE:
        raise ValueError(f"these lines of {path} have more than {WHOLE} bytes: ask for fewer")
    return start, kept


def _numbered(text, first):
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    width = len(str(first + len(lines) - 1))
    return "".join(f"{i:>{width}}  {line}\n" for i, line in enumerate(lines, first))


def _amount(data):
    lines = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    return f"{lines} {'line' if lines == 1 else 'lines'}, {len(data)} bytes"


def _times(n):
    return "once" if n == 1 else f"{n} times"


def _lines_of(text, old, most=10):
    """The line numbers at which old begins, as text."""
    found, at, line, seen = [], 0, 1, 0
    while (i := text.find(old, at)) >= 0:
        line += text.count("\n", seen, i)
        seen, at = i, i + len(old)
        found.append(str(line))
        if len(found) > most:
            return ", ".join(found[:most]) + ", …"
    return ", ".join(found)


def _not_found(path, text, old):
    """Why old is not in text: its white space, or the lines that are nearest to it."""
    wanted = [line.strip() for line in old.strip("\r\n").split("\n")]
    lines = text.split("\n")
    bare = [line.strip() for line in lines]
    if any(wanted):
        for i in range(len(bare) - len(wanted) + 1):
            if bare[i:i + len(wanted)] == wanted:
                return (f"old is not in {path} as it stands; with other white space it is at line {i + 1}:\n"
                        + _excerpt(lines, i, len(wanted)))
    near = _nearest(bare, wanted)
    if near is None:
        return f"old is not in {path} ({len(lines)} lines), nor a line that is near to it: read the file again"
    return f"old is not in {path}; nearest to it, at line {near + 1}:\n" + _excerpt(lines, near, len(wanted))


def _excerpt(lines, start, count, most=12):
    shown = lines[start:start + min(count, most)]
    return "\n".join(line[:300].rstrip("\r") for line in shown) + ("\n…" if count > most else "")


def _nearest(bare, wanted, most=20000):
    """Index of the line where something like wanted begins, or None."""
    from difflib import SequenceMatcher

    lead = next((k for k, line in enumerate(wanted) if len(line) > 3), None)
    if lead is None:
        return None
    key = wanted[lead][:300]
    match = SequenceMatcher(None, autojunk=False)
    match.set_seq2(key)
    best, at = 0.6, None
    for i, line in enumerate(bare[:most]):
        if not line or abs(len(line) - len(key)) > max(len(line), len(key)) // 2 and key not in line:
            continue
        match.set_seq1(line[:300])
        if match.real_quick_ratio() <= best or match.quick_ratio() <= best:
            continue
        ratio = match.ratio()
        if ratio > best:
            best, at = ratio, i
            if ratio > 0.99:
                break
    return None if at is None else max(0, at - lead)


def _before(real):
    """The bytes of a file that is to be replaced, b"" where they are too many for a trace; None when there is none."""
    if not os.path.lexists(real):
        return None  # what is near to it is looked for where a file is missed only
    try:
        with _open(real) as f:
            if os.fstat(f.fileno()).st_size > soma_trace.COMPARED:
                return bytes(soma_trace.COMPARED + 1)
            return f.read(soma_trace.COMPARED + 1)
    except FileNotFoundError:
        return None
    except PermissionError:
        return b""


def _write(path, real, data, there):
    """Replace a file at once, with its mode. Where only its own bytes can be changed (another owner, further hard links, a
    folder that takes no files) it is written in place."""
    folder = os.path.dirname(real)
    if there:
        info = os.stat(real)
        if not os.access(real, os.W_OK):
            raise PermissionError(f"{path} is not writable")
        if info.st_nlink > 1 or info.st_uid != os.geteuid() or not os.access(folder, os.W_OK):
            with open(real, "r+b", 0) as f:
                _all(f.fileno(), data)
                f.truncate()
            return
    else:
        os.makedirs(folder, exist_ok=True)
    temporary = f"{folder}/.{os.path.basename(real)[:100]}.{os.urandom(6).hex()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            _all(fd, data)
            if there:
                os.fchmod(fd, info.st_mode & 0o7777)
                if info.st_gid != os.fstat(fd).st_gid:
                    try:
                        os.fchown(fd, -1, info.st_gid)
                    except PermissionError:
                        pass
        finally:
            os.close(fd)
        os.replace(temporary, real)
    except BaseException:
        try:
            os.unlink(temporary)
        except FileNotFoundError:
            pass
        raise


def _all(fd, data):
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest):]
