"""The name `output` of the cells: pages of what cells, jobs and a person's shell commands have written."""
from soma_page import PAGE, PAGE_LEAST, Page


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
        page = capture.read(offset, limit)
        if not page.running:
            if channels.cell(id) is capture:
                self._api.seen(cell=id)
            elif channels.job(id) is capture:
                self._api.seen(job=id)
        return page

    async def read_shell(self, id, offset=0, limit=4000):
        """A page of what a person's `!` command printed, like read(): await it. It starts and stops nothing."""
        if not isinstance(id, str):
            raise TypeError("the id of a shell command is a string")
        if type(limit) is not int or not PAGE_LEAST <= limit <= PAGE:
            raise ValueError(f"a page has {PAGE_LEAST} to {PAGE} bytes: give such a limit=, and go on with offset=")
        if type(offset) is not int or offset < 0:
            raise ValueError("offset= is a number of bytes from the start")
        page = await self._api.call("output.read_shell", {"id": id, "offset": offset, "limit": limit})
        return Page(page["text"], offset, page["next_offset"])

    def __repr__(self):
        return "output: output.read(id, offset=0, limit=16384), await output.read_shell(id, offset=0, limit=4000)"


def setup(api):
    api.provide("output", Output(api))
