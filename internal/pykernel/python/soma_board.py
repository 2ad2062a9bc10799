"""The jobs that bindings have told of: those that live, those elsewhere, and who answers questions about them."""
import threading

from soma_ask import AskError
from soma_wire import COMMAND


class Board:
    """Handlers are registered before the first cell; all else is for any thread."""

    def __init__(self, asks):
        self._lock = threading.RLock()  # a finalizer may start a job while it is held
        self._live = {}      # id -> job_start frame
        self._external = {}  # plugin -> items of report()
        self.lists, self.reads, self.stops, self.of_cells = [], [], [], []
        asks.on("job_list", self._list, view=True)
        asks.on("job_read", self._read, view=True)
        asks.on("job_stop", self._stop)

    def note(self, frame):
        """A job_start or job frame goes out."""
        with self._lock:
            if frame["type"] == "job_start":
                self._live[frame["job"]] = frame
            else:
                self._live.pop(frame["job"], None)

    def lives(self, job):
        return job in self._live

    def report(self, plugin, items):
        """All jobs of a plugin that are no processes here; the fields of the jobs frame that tells of them."""
        self._external[plugin] = [{**i, "command": i["command"][:COMMAND]} for i in items]
        items = self._elsewhere()
        return {"live": len(items), "awaited": _awaited(items), "items": items}

    def _elsewhere(self):
        return [i for items in list(self._external.values()) for i in items]

    def live(self):
        """How many jobs run, here and elsewhere."""
        return len(self._live) + len(self._elsewhere())

    def hello_facts(self):
        """The fields of the hello that tell of jobs."""
        with self._lock:
            jobs = list(self._live.values())
        items = self._elsewhere()
        return {"jobs": jobs, "external": len(items), "awaited_external": _awaited(items), "external_jobs": items}

    def of_cell(self, cell):
        return [job for handler in self.of_cells for job in handler(cell)]

    def _list(self, _frame):
        return {"jobs": [row for handler in self.lists for row in handler()]}

    def _read(self, frame):
        for handler in self.reads:
            page = handler(frame["job"], frame.get("offset"), frame["limit"])
            if page is not None:
                return {"page": page}
        raise _unknown(frame["job"])

    async def _stop(self, frame):
        for handler in self.stops:
            stopping = handler(frame["job"])
            if stopping is not None:
                await stopping
                return {}
        raise _unknown(frame["job"])


def _awaited(items):
    return sum(not item["service"] for item in items)


def _unknown(job):
    return AskError("job_not_found", f"no job {job} is known here")
