"""One cell: what it is to run, how far it is, and what its result says beside its value.

A cell is queued, then running, then finished.
"""
from time import monotonic

from soma_code import is_cell_file

QUEUED, RUNNING, FINISHED = "queued", "running", "finished"
# state -> event -> next state; what is not here is dropped.
MOVES = {
    QUEUED: {"start": RUNNING, "cancel": FINISHED},
    RUNNING: {"end": FINISHED},
    FINISHED: {},
}
_CLEANS_UP = 1.0  # seconds
_MISSED = 0.1     # seconds
_REPAIR_LINES = 10  # of a failed cell, from where on it is cheaper to mend it than to send it again
_REPAIR = "mend it without sending it again: await cells.run({!r}, (old, new), ...) runs its code with these replacements"


class Cell:
    def __init__(self, frame):
        self.id = frame["cell"]
        self.code = frame["code"]
        self.model = frame.get("origin") == "model"
        self.timeout = frame["timeout_ms"] / 1000
        background = frame.get("background_ms", 0)
        self.background_at = background / 1000 if background > 0 else None  # seconds from its start
        self.backgrounded = False
        self.wake = True         # whether somebody is to be told of its end
        self.calls = ()          # bindings that its code names as called
        self.state = QUEUED
        self.capture = None
        self.task = None
        self.reason = None       # why it is interrupted
        self.restarting = False  # its task seems lost, another is on its way
        self.timed_out = False   # the deadline's interrupt was sent
        self.delivered = False   # the interrupt has reached its code
        self.knocks = 0          # signals that found a library's code
        self.raised = None       # (exception, whether in its own task, monotonic) of an interrupt, until it has arrived
        self.cancelled_at = None # monotonic, when that was by its task
        self.began = None        # monotonic
        self.ended = None
        self.started_at = None   # wall clock, ms

    def cleans_up(self):
        """Whether its task was cancelled a moment ago: what it does about that is not interrupted again at once."""
        return self.delivered and self.cancelled_at is not None and monotonic() - self.cancelled_at < _CLEANS_UP

    def missed(self):
        """Whether the interrupt that was raised has not arrived: it was swallowed below the cell's code (in C code that
        frees something, say), or ended a callback or another task only. Any thread."""
        if self.raised is None:
            return False
        failure, own, at = self.raised
        if own and _has_cell_frame(failure.__traceback__):
            self.raised = None
            return False
        return monotonic() - at > _MISSED

    def facts(self, **more):
        """What code may ask of it."""
        now = self.ended if self.state == FINISHED else monotonic()
        return {"id": self.id, "state": self.state, "started_at": self.started_at,
                "duration_ms": 0 if self.began is None else int((now - self.began) * 1000),
                "source": self.code, "background": self.backgrounded, **more}

    def move(self, event):
        """Take the event; False when it means nothing in this state."""
        state = MOVES[self.state].get(event)
        if state is None:
            return False
        self.state = state
        return True

    def told(self, status):
        """The fields of its done that come from how it was asked for."""
        fields = {}
        if self.model:
            fields["calls"] = list(self.calls)
            if status != "ok" and self.code.rstrip().count("\n") + 1 >= _REPAIR_LINES:
                fields["repair"] = _REPAIR.format(self.id)
        if self.backgrounded:
            fields["background"] = True
        if not self.wake:
            fields["wake"] = False
        return fields


def _has_cell_frame(traceback):
    while traceback is not None:
        if is_cell_file(traceback.tb_frame.f_code.co_filename):
            return True
        traceback = traceback.tb_next
    return False
