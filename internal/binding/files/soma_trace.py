"""Traces: what the cells changed through `files`, as bounded unified diffs, one frame a cell (P-066).

A file that a cell writes several times is one change, from what it was before the first to what the last one wrote. The frame
goes out when the cell's code has ended; what its tasks write later is added and sent again, the whole each time.
"""
import os
import threading

from soma_code import clean

COMPARED = 512 * 1024    # bytes of a file, before or after; larger ones are named without a diff
DIFF = 32 * 1024         # bytes of one file's diff
CELL = 256 * 1024        # bytes of all diffs of a cell
FILES = 200              # of a cell that are named
HELD = 16 * 1024 * 1024  # bytes held for the diffs of running cells
LINES = 4000             # lines that are compared one by one; more are shown as replaced
KEPT = 16                # traces of ended cells
PAST = 64                # ended cells that may have threads, far more than run at once


class Change:
    def __init__(self, before, after):
        self.before = before  # bytes, None: there was no file
        self.after = after
        self.held = True      # False: too large to compare

    def size(self):
        return len(self.before or b"") + len(self.after or b"") if self.held else 0

    def drop(self):
        self.before = None if self.before is None else b""
        self.after, self.held = b"", False


class Traces:
    def __init__(self, api):
        self._api = api
        self._root = os.path.realpath(api.workspace)
        self._open = {}   # cell -> {real path: Change}
        self._ended = {}  # cell -> {real path: Change}, oldest first
        self._past = {}   # ids of ended cells, oldest first: what comes now is late
        self._held = 0    # bytes of all changes
        self._lock = threading.RLock()  # cells may write from threads, and finalizers in the midst of that
        api.on_cell_end(self.end)

    def wrote(self, path, before, after):
        """A write through `files` is done: path is real, before and after are bytes (before None: there was no file)."""
        cell = self._api.cell()
        if cell is None:
            return
        with self._lock:
            facts = self._api.cell_facts(cell)
            late = cell in self._past or facts is None or facts["state"] == "finished"
            changes = self._keep(cell, self._ended.get(cell, {})) if late else self._open.setdefault(cell, {})
            change = changes.get(path)
            if change is None:
                change = changes[path] = Change(before, after)
            else:
                self._held -= change.size()
                change.after = after
            if max(len(change.before or b""), len(after)) > COMPARED or self._held + change.size() > HELD:
                change.drop()
            self._held += change.size()
            if late:
                self._send(cell, changes)

    def end(self, cell):
        """The code of a cell has ended."""
        with self._lock:
            self._past[cell] = True
            while len(self._past) > PAST:
                del self._past[next(iter(self._past))]
            changes = self._open.pop(cell, None)
            if changes is not None:
                self._send(cell, self._keep(cell, changes))

    def _keep(self, cell, changes):
        self._ended[cell] = changes
        while len(self._ended) > KEPT:
            old = self._ended.pop(next(iter(self._ended)))
            self._held -= sum(c.size() for c in old.values())
        return changes

    def of(self, cell):
        """The changes of a running or lately ended cell as in its frame; None when nothing is known of it."""
        with self._lock:
            changes = self._open.get(cell) or self._ended.get(cell)
            return None if changes is None else self._shown(changes)

    def _send(self, cell, changes):
        self._api.send("trace", {"cell": cell, "changes": self._shown(changes)}, key=("trace", cell), coalesces=True)

    def _shown(self, changes):
        shown, room = [], CELL
        for path, change in changes.items():
            there = os.path.lexists(path)
            if not there and change.before is None:
                continue  # made and removed
            kind = "deleted" if not there else "created" if change.before is None else "changed"
            if kind == "changed" and change.held and change.before == change.after:
                continue
            if len(shown) == FILES:
                shown.append({"path": f"({len(changes) - FILES} more files)", "kind": "changed", "diff": "", "truncated": True})
                break
            name = self._name(path)
            diff, cut = "", True
            if change.held:
                diff, cut = bounded(unified(name, change.before, change.after if there else None), min(DIFF, room))
            room -= len(diff.encode())
            shown.append({"path": name, "kind": kind, "diff": diff, "truncated": cut})
        return shown

    def _name(self, path):
        if path.startswith(self._root + "/"):
            path = path[len(self._root) + 1:]
        return clean(path)


def bounded(lines, limit):
    """(text of the first lines within limit bytes, whether some are left out)."""
    kept, size = [], 0
    for line in lines:
        size += len(line.encode())
        if size > limit:
            return "".join(kept), True
        kept.append(line)
    return "".join(kept), False


def unified(name, before, after):
    """The lines of a unified diff; None is no file."""
    try:
        old = [] if before is None else _lines(before.decode())
        new = [] if after is None else _lines(after.decode())
    except UnicodeDecodeError:
        yield f"binary file {name}: {len(before or b'')} bytes before, {len(after or b'')} bytes after\n"
        return
    yield "--- " + ("/dev/null" if before is None else "a/" + name) + "\n"
    yield "+++ " + ("/dev/null" if after is None else "b/" + name) + "\n"
    yield from _hunks(old, new)


def _lines(text):
    lines = text.split("\n")
    last = lines.pop()
    lines = [line + "\n" for line in lines]
    if last:
        lines.append(last + "\n\\ No newline at end of file\n")
    return lines


def _hunks(old, new, around=3):
    """What is equal at both ends is left away before the lines are compared, so that a small edit of a large file is quick."""
    most = min(len(old), len(new))
    start = 0
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    first = max(0, start - around)
    a = old[first:len(old) - max(0, end - around)]
    b = new[first:len(new) - max(0, end - around)]
    if max(len(a), len(b)) <= LINES:
        import difflib

        groups = difflib.SequenceMatcher(None, a, b, False).get_grouped_opcodes(around)
    else:
        head, tail = start - first, min(end, around)
        groups = [[("equal", 0, head, 0, head), ("replace", head, len(a) - tail, head, len(b) - tail),
                   ("equal", len(a) - tail, len(a), len(b) - tail, len(b))]]
    for group in groups:
        yield f"@@ -{_range(first, group[0][1], group[-1][2])} +{_range(first, group[0][3], group[-1][4])} @@\n"
        for tag, i, j, k, m in group:
            if tag == "equal":
                yield from (" " + line for line in a[i:j])
            else:
                yield from ("-" + line for line in a[i:j])
                yield from ("+" + line for line in b[k:m])


def _range(first, start, stop):
    count = stop - start
    if count == 1:
        return str(first + start + 1)
    return f"{first + start + (count > 0)},{count}"
