"""The binding `cells`: other cells of this branch, their code, output and changes; and running one again with edits.

Live cells and the newest results are known here; of older ones the daemon tells what was committed.
"""
from soma_page import PAGE as _PAGE, Page

_KEPT = 16            # edited sources, by the cell that ran them
_CANCEL_SECONDS = 5.0
_LONG = 10            # lines from which a failure names how to edit again


class Facts(dict):
    """What is known of a cell; prints as one line and its source."""

    def __repr__(self):
        shown = [f"cell {self['id']}: {self.get('status') or self['state']}"]
        shown.append(f"ran {self['duration_ms'] / 1000:.1f}s" if self.get("status") else f"for {self['duration_ms'] / 1000:.1f}s")
        if self.get("background"):
            shown.append("in the background")
        if self.get("error"):
            shown.append(self["error"])
        return ", ".join(shown) + "\n" + self["source"]

    __str__ = __repr__


class Listing(list):
    """Cells; prints one a line."""

    def __repr__(self):
        return "\n".join(repr(facts).replace("\n", " | ", 1).partition("\n")[0][:300] for facts in self) or "no cells"

    __str__ = __repr__


class Changes(list):
    """Changed files of a cell; prints their diffs."""

    def __repr__(self):
        parts = []
        for change in self:
            parts.append(f"{change['kind']} {change['path']}" + (" (diff cut)" if change.get("truncated") else ""))
            if change["diff"]:
                parts.append(change["diff"].rstrip("\n"))
        return "\n".join(parts) or "no changes through files"

    __str__ = __repr__


class Cells:
    """Cells of this branch, by id. All functions are awaited."""

    def __init__(self, api):
        self._api = api
        self._edited = {}   # cell -> the source that it ran by run(), oldest first
        self._waiting = {}  # cell -> futures that wait for its end
        api.on_cell_end(self._ended)

    async def list(self, limit=20):
        """The newest cells, running ones first; at most 100."""
        if not isinstance(limit, int) or not 1 <= limit <= 100:
            raise ValueError("limit is 1 to 100")
        here = [facts for facts in map(self._api.cell_facts, self._api.cells()) if facts]
        found = Listing(Facts(facts) for facts in here[:limit])
        if len(found) < limit:
            known = {facts["id"] for facts in here}
            older = await self._api.call("cells.list", {"limit": limit})
            found += [Facts(facts) for facts in older if facts["id"] not in known][:limit - len(found)]
        return found

    async def info(self, id):
        """State, status, times, error and source of a cell."""
        facts = self._api.cell_facts(_id(id))
        if facts is None:
            facts = await self._api.call("cells.info", {"cell": id})
        self._read(id, facts)
        return Facts(facts)

    async def read(self, id, offset=None, limit=None):
        """The output of a cell, whole up to 64 KiB; else a page from a byte offset on (a negative one counts from the end).
        Go on at page.next_offset until it is None."""
        facts = self._api.cell_facts(_id(id))
        channel = self._api.channels.cell(id)
        whole = offset is None and limit is None
        if whole or offset is not None and offset < 0:
            size = (await self._api.call("cells.info", {"cell": id}))["size"] if channel is None else channel.size
            if whole and size > _PAGE:
                raise ValueError(f"the output has {size} bytes, more than the {_PAGE} that are read at once: cells.read({id!r}, 0) "
                                 f"is its first page and goes on at next_offset, cells.read({id!r}, -{_PAGE}) its end")
            offset = 0 if whole else max(0, size + offset)
        limit = _PAGE if limit is None else limit
        if channel is not None:
            page = channel.page(offset, limit)
        else:
            page = await self._api.call("cells.read", {"cell": id, "limit": limit, **({} if offset is None else {"offset": offset})})
        self._read(id, facts or {"state": "running" if page["running"] else "finished"})
        return Page.of(page)

    async def trace(self, id):
        """What a cell has changed through files, as [{path, kind, diff, truncated}]."""
        facts = self._api.cell_facts(_id(id))
        traces = getattr(self._api, "traces", None)
        changes = None if traces is None else traces.of(id)
        if changes is None:
            changes = [] if facts is not None and facts["state"] != "finished" else await self._api.call("cells.trace", {"cell": id})
        self._read(id, facts or {"state": "finished"})
        return Changes(changes)

    async def cancel(self, id):
        """End a running cell; nobody is told of its end. Prints which jobs of it run on."""
        from asyncio import get_running_loop, wait

        if _id(id) == self._api.cell():
            raise ValueError("a cell cannot cancel itself: raise an exception, or let it end")
        facts = self._api.cell_facts(id)
        if facts is None:
            facts = await self._api.call("cells.info", {"cell": id})
        if facts["state"] == "finished":
            print(f"cell {id} has ended before: {facts.get('status')}")
            return
        ended = get_running_loop().create_future()
        self._waiting.setdefault(id, []).append(ended)
        if not self._api.cancel_cell(id):
            ended.cancel()
            print(f"cell {id} does not run here any more")
            return
        await wait([ended], timeout=_CANCEL_SECONDS)
        print(f"cell {id} is cancelled" if ended.done() else f"cell {id} was told to end and goes on: its code keeps it from that")
        left = [job for job in self._api.cell_jobs(id) if not job["service"]]
        if left:
            print("jobs of it that run on: " + ", ".join(f"{job['id']} ({job['command'][:100]})" for job in left))

    async def run(self, id, *edits):
        """Run the code of a cell again, here, after replacements: each edit is (old, new), old exactly once in the code."""
        cell = self._api.cell()
        if _id(id) == cell:
            raise ValueError("a cell cannot run itself again")
        source = self._edited.get(id)
        if source is None:
            facts = self._api.cell_facts(id)
            if facts is None:
                facts = await self._api.call("cells.info", {"cell": id})
            source = facts["source"]
            self._read(id, facts)
        source = edited(source, edits)
        if cell is not None:
            self._edited.pop(cell, None)
            self._edited[cell] = source
            while len(self._edited) > _KEPT:
                del self._edited[next(iter(self._edited))]
        try:
            return await self._api.run_source(source)
        except Exception as e:
            if cell is not None and source.rstrip().count("\n") + 1 >= _LONG:
                e.add_note(f"the edited code is kept: cells.run({cell!r}, ...) edits it further")
            raise

    def _ended(self, cell):
        for future in self._waiting.pop(cell, ()):
            if not future.done():
                future.set_result(None)

    def _read(self, id, facts):
        """A finished result was read: nobody need be told of it. One that was waited for has been told."""
        if facts["state"] == "finished" and facts.get("background", True):
            self._api.seen(cell=id)

    def __repr__(self):
        return "cells: list, info, read, trace, cancel, run (help(cells.run) tells more)"


def edited(source, edits):
    """The source after all edits; each must fit exactly one place of what the ones before it have left."""
    for n, edit in enumerate(edits, 1):
        if not (isinstance(edit, (tuple, list)) and len(edit) == 2 and all(isinstance(part, str) for part in edit)):
            raise TypeError(f"edit {n} is no pair (old, new) of texts")
        old, new = edit
        found = source.count(old) if old else 0
        if found != 1:
            raise ValueError(f"the old text of edit {n} is {'empty' if not old else 'not' if not found else f'{found} times'} in the "
                             "code, it must be there once" + _near(source, old, found))
        source = source.replace(old, new)
    return source


def _near(source, old, found):
    if found or not old.strip():
        return ""
    from difflib import get_close_matches

    lines = source.split("\n")
    first = next(line for line in old.split("\n") if line.strip())
    near = get_close_matches(first, lines, 1)
    return f"; nearest to it is line {lines.index(near[0]) + 1}: {near[0].strip()[:200]}" if near else ""


def _id(id):
    if not isinstance(id, str) or not id:
        raise TypeError("the id of a cell is text")
    return id


def setup(api):
    api.provide("cells", Cells(api))
