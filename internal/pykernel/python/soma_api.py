"""What a binding's module is given: `setup(api)` is called once, before the first cell.

One Api belongs to one kernel. All methods are for the loop's thread unless they say otherwise.
"""
from contextlib import contextmanager

from soma_ask import AskError
from soma_board import Board
from soma_guard import spawning
from soma_interrupt import SUPERVISING
from soma_output import CURRENT
from soma_wire import COMMAND, JOB_TAIL, TRACE, encode

__all__ = ["Api", "AskError", "PartialSave"]

class PartialSave(Exception):
    """Raised by a save handler that could keep only a part: `state` is kept, `lost` names what is not."""

    def __init__(self, state, lost):
        super().__init__("saved in part")
        self.state = state
        self.lost = list(lost)


class Api:
    """workspace, output_dir, run_dir: absolute paths. loop: the kernel's. channels: soma_capture.Channels."""

    traces = None  # of the files binding (soma_trace.Traces), for those that show a cell's trace

    def __init__(self, loop, post, link, calls, asks, names, channels, workspace, run_dir, output_dir):
        self.loop = loop
        self._post = post
        self.channels = channels
        self.workspace = workspace
        self.run_dir = run_dir
        self.output_dir = output_dir
        self._link = link
        self._calls = calls
        self._asks = asks
        self._names = names
        self._cells = None
        self._board = Board(asks)
        self._seen = set()
        self._cell_ends, self._cleanups, self._holds, self._watchers = [], [], [], []
        self._states = {}          # name -> (save, load)
        asks.bind(self.send)
        asks.on("cell_read", channels.answer_cell_read, anywhere=True)
        asks.on("complete", self._complete, anywhere=True)

    def bind(self, cells):
        """Tell the Api of the cells (soma_cells); once, by the executor."""
        self._cells = cells

    # --- names and the cell that runs here ---

    def provide(self, name, value):
        """Give the cells a locked name, which is also an attribute of `import soma`. ValueError when it is taken."""
        self._names.provide(name, value)

    def cell(self):
        """The id of the cell whose code runs here (also in its tasks and threads, and after its end), or None."""
        out = CURRENT.get()
        return None if out is None else out.cell

    def capture(self):
        """The channel of that cell, or None."""
        return CURRENT.get()

    async def run_source(self, source):
        """Run source in the cells' namespace within the cell that runs here; the value of its final expression."""
        return await self._cells.run_source(source)

    @contextmanager
    def supervising(self):
        """Tasks and callbacks begun within are hit by no cell's interrupt, nor is the code in it."""
        before = SUPERVISING.set(True)
        try:
            yield
        finally:
            SUPERVISING.reset(before)

    def spawning(self):
        """A context manager: on this thread, programs may be started within. Code of bindings may always start them."""
        return spawning()

    # --- the daemon ---

    def send(self, kind, fields, key=None, coalesces=False):
        """Send a sequenced frame; with coalesces it replaces an unacknowledged one of that key. Any thread.

        `trace` and `jobs` always coalesce, by their cell and by their kind. A trace over 1 MiB loses its longest diffs."""
        if kind == "trace":
            fields, key, coalesces = _bounded_trace(fields), ("trace", fields["cell"]), True
        elif kind == "jobs":
            key, coalesces = "jobs", True
        elif kind in ("job_start", "job"):
            fields = {**fields, "command": fields["command"][:COMMAND]}
            if "tail" in fields:
                fields["tail"] = _tail(fields["tail"])
        frame = {"type": kind, **fields}
        body = encode(frame)
        if kind in ("job_start", "job"):
            self._board.note(frame)
        self._link.send(body, key, coalesces)

    async def call(self, method, args=None):
        """Ask the daemon; the reply's value, HostError when it says no. Ends with the cell that runs here, if one does."""
        return await self._calls.call(method, args)

    def start_call(self, method, args=None):
        """Like call(), but its future belongs to no cell and lives until it is answered."""
        return self._calls.start(method, args)

    def on_ask(self, kind, handler, anywhere=False):
        """handler(frame) -> dict of the reply's fields, or an awaitable of it; AskError(code, text) refuses.
        anywhere: it runs at once, on the reader thread."""
        self._asks.on(kind, handler, anywhere)

    def post(self, callback):
        """Run callback() on the loop, after what was posted before; once more if it was disturbed. Any thread."""
        self._post(lambda _: callback(), None)

    # --- jobs ---

    def on_job_view(self, list_handler, read_handler):
        """list_handler() -> rows, newest first. read_handler(job, offset, limit) -> page, or None when it is not its own.
        Both only look; while a cell holds the loop they run on another thread."""
        self._board.lists.append(list_handler)
        self._board.reads.append(read_handler)

    def on_job_stop(self, handler):
        """handler(job) -> None when it is not its own, else an awaitable that ends when the job has."""
        self._board.stops.append(handler)

    def on_cell_jobs(self, handler):
        """handler(cell) -> [{id, command, service}] of what that cell has started and that still runs."""
        self._board.of_cells.append(handler)

    def cell_jobs(self, cell):
        """What all plugins say of a cell's running jobs."""
        return self._board.of_cell(cell)

    def report_jobs(self, plugin, items):
        """Tell of a plugin's jobs that are no OS processes here: all that run, [{id, command, service, started}]."""
        self.send("jobs", self._board.report(plugin, items))

    def live_jobs(self):
        """How many jobs run, of this machine and of others. Any thread."""
        return self._board.live()

    def hello_facts(self):
        """The fields of the hello that tell of jobs. Any thread."""
        return self._board.hello_facts()

    # --- cells ---

    def cells(self):
        """Ids of the cells: live ones in frame order, then the kept finished ones, newest first."""
        live, finished = self._cells.names()
        return [*live, *reversed(finished)]

    def cell_facts(self, cell):
        """{id, state, status?, started_at, duration_ms, source, background, seen, error?} of a cell, or None."""
        facts = self._cells.facts(cell)
        return facts and {**facts, "seen": ("cells", cell) in self._seen}

    def cancel_cell(self, cell):
        """End a live cell without a wake; False when none of that id is live."""
        return self._cells.cancel(cell)

    def on_cell_end(self, handler):
        """handler(cell) is called when a cell's code has ended, before its done is sent."""
        self._cell_ends.append(handler)

    def cell_ended(self, cell):
        """Call the handlers of on_cell_end; what went wrong, as lines."""
        return _call_all(self._cell_ends, cell)

    def seen(self, cell=None, job=None):
        """A finished result was read by code: nobody need be told of it. Once a result; a live cell is none."""
        fresh = []
        if cell is not None:
            facts = self._cells.facts(cell)
            fresh += [("cells", cell)] if facts is None or facts["state"] == "finished" else []
        if job is not None and not self._board.lives(job):
            fresh.append(("jobs", job))
        fresh = [f for f in fresh if f not in self._seen]
        if not fresh:
            return
        if len(self._seen) > 4096:
            self._seen.clear()
        self._seen.update(fresh)
        self.send("seen", {kind: [n for k, n in fresh if k == kind] for kind in ("cells", "jobs")})

    def _complete(self, frame):
        from soma_complete import complete

        names, start = complete(frame["text"], frame["cursor"], self._names)
        return {"names": names, "start": start}

    # --- life ---

    def on_state(self, name, save, load):
        """save() -> JSON, or PartialSave; load(state). For saves of the namespace."""
        if name in self._states:
            raise ValueError(f"the state {name!r} is another's")
        self._states[name] = save, load

    def save_states(self):
        """({name: state}, [what was lost]) of all on_state handlers."""
        states, lost = {}, []
        for name, (save, _) in self._states.items():
            try:
                states[name] = save()
            except PartialSave as e:
                states[name] = e.state
                lost += [f"{name}: {part}" for part in e.lost]
            except Exception as e:
                lost.append(f"{name}: {_told(e)}")
        return states, lost

    def load_states(self, states):
        """Give saved states back; [what was lost]."""
        lost = []
        for name, state in states.items():
            try:
                self._states[name][1](state)
            except Exception as e:
                lost.append(f"{name}: {_told(e)}")
        return lost

    def holds(self, predicate):
        """predicate() is true while this process must not end for want of use. Any thread may call it."""
        self._holds.append(predicate)

    def held(self):
        """Whether a predicate holds the kernel; one that fails does. Any thread."""
        return any(_true(predicate) for predicate in self._holds)

    def on_watch(self, handler):
        """handler() is called about 20 times a second on another thread while a cell runs: for what must not wait where
        the cell holds the loop. It must be quick."""
        self._watchers.append(handler)

    def watched(self):
        """Call the handlers of on_watch. The watch thread."""
        for handler in self._watchers:
            handler()

    def on_cleanup(self, handler):
        """handler(), sync or async, is called before the process ends; it has about 2 s."""
        self._cleanups.append(handler)

    def cleanups(self):
        return list(self._cleanups)


def _call_all(handlers, argument):
    errors = []
    for handler in handlers:
        try:
            handler(argument)
        except Exception as e:
            errors.append(f"{getattr(handler, '__module__', '?')}: {_told(e)}")
    return errors


def _true(predicate):
    try:
        return bool(predicate())
    except Exception:
        return True


def _told(failure):
    return f"{type(failure).__name__}: {failure}"[:1024]


def _tail(text):
    data = text.encode("utf-8", "backslashreplace")[-JOB_TAIL:]
    return data.decode("utf-8", "ignore")


def _bounded_trace(fields):
    changes = fields["changes"]
    sizes = [len(encode(change)) for change in changes]
    over = sum(sizes) - TRACE + 4096
    if over <= 0:
        return fields
    changes = list(changes)
    for i in sorted(range(len(changes)), key=sizes.__getitem__, reverse=True):
        if over <= 0:
            break
        changes[i] = {**changes[i], "diff": "", "truncated": True}
        over -= sizes[i] - len(encode(changes[i]))
    while over > 0 and changes:
        over -= len(encode(changes.pop()))
    return {**fields, "changes": changes}
