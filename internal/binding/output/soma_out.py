"""The name `output` of the cells: pages of what cells, jobs and a person's shell commands have written."""


class Page(str):
    """The text of a page, with where it lies: offset, next_offset (None at the end of what has ended), size and running.

    size and running are None where they are not known."""

    def __new__(cls, text, offset=0, next_offset=None, size=None, running=None):
        self = super().__new__(cls, text)
        self.offset, self.next_offset, self.size, self.running = offset, next_offset, size, running
        return self

    def __reduce__(self):
        return Page, (str(self), self.offset, self.next_offset, self.size, self.running)


class Output:
    """output.read(id) and output.read_shell(id)."""

    __slots__ = ("_api",)

    def __init__(self, api):
        self._api = api

    def read(self, id, offset=0, limit=16 << 10):
        """A page of the output of a cell, a job or "native": the text of at most limit bytes (4 to 65,536) from a byte
        offset on; offset=None gives the end. Go on at page.next_offset until it is None.

        LookupError for an output that is not kept, OutputLost where the page is not, ValueError for a bad range."""
        channels = self._api.channels
        capture = channels.get(id) if isinstance(id, str) else None
        if capture is None:
            raise LookupError(f"no output of {id!r} is kept: those of the 16 cells and 64 jobs that ended last are, and all that run")
        page = capture.page(offset, limit)
        if not page["running"]:
            if channels.cell(id) is capture:
                self._api.seen(cell=id)
            elif channels.job(id) is capture:
                self._api.seen(job=id)
        at_end = not page["running"] and page["next_offset"] >= page["size"]
        return Page(page["text"], page["offset"], None if at_end else page["next_offset"], page["size"], page["running"])

    async def read_shell(self, id, offset=0, limit=4000):
        """A page of what a person's `!` command printed, like read(): await it. It starts and stops nothing."""
        if not isinstance(id, str):
            raise TypeError("the id of a shell command is a string")
        if type(limit) is not int or not 4 <= limit <= 64 << 10:
            raise ValueError("a page has 4 to 65536 bytes: give such a limit=, and go on with offset=")
        if type(offset) is not int or offset < 0:
            raise ValueError("offset= is a number of bytes from the start")
        page = await self._api.call("output.read_shell", {"id": id, "offset": offset, "limit": limit})
        return Page(page["text"], offset, page["next_offset"])

    def __repr__(self):
        return "output: output.read(id, offset=0, limit=16384), await output.read_shell(id, offset=0, limit=4000)"


def setup(api):
    api.provide("output", Output(api))
