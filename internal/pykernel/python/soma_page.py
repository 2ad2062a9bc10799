"""Pages of output: their bounds, their text with its place, and where characters end."""

PAGE = 64 << 10  # the longest page or preview, bytes
PAGE_LEAST = 4   # the longest character
BOUNDARY = 3     # bytes of a character that can precede its last one


class Page(str):
    """The text of a page, with where it lies: offset, next_offset (None at the end of what has ended), size and running.

    size and running are None where they are not known."""

    def __new__(cls, text, offset=0, next_offset=None, size=None, running=None):
        self = super().__new__(cls, text)
        self.offset, self.next_offset, self.size, self.running = offset, next_offset, size, running
        return self

    def __reduce__(self):
        return Page, (str(self), self.offset, self.next_offset, self.size, self.running)

    @classmethod
    def of(cls, page):
        """From what Capture.page() gives."""
        at_end = not page["running"] and page["next_offset"] >= page["size"]
        return cls(page["text"], page["offset"], None if at_end else page["next_offset"], page["size"], page["running"])


def head_of(data, limit):
    """The first bytes of valid UTF-8, at most limit, cut on a character border."""
    if len(data) <= limit:
        return data
    while limit and data[limit] & 0xC0 == 0x80:
        limit -= 1
    return data[:limit]


def tail_of(data, limit):
    """The last bytes of valid UTF-8, at most limit, cut on a character border."""
    start = max(len(data) - limit, 0)
    while start < len(data) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


def half_at_start(data):
    """How many bytes of a character whose start lies before data are at its start."""
    n = 0
    while n < min(len(data), BOUNDARY) and data[n] & 0xC0 == 0x80:
        n += 1
    return n
