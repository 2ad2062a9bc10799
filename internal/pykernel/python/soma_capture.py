"""Channels of output: what a cell, a job or native code has written, counted, kept, and read by offset.

A channel keeps the first 1 MiB in memory and, once more than that has arrived, the last 64 KiB; past `spill_at` bytes the
first 16 MiB also lie in a private file. Everything is bytes of a position: text is decoded where it is read.
"""
import codecs
import os
import threading
from time import monotonic

from soma_page import BOUNDARY, PAGE, PAGE_LEAST, Page, half_at_start, head_of, tail_of
from soma_spill import SPILL_LIMIT, Spill, above_streams, write_all
from soma_wire import CELLS_FINISHED, HEAD, OUTPUT_TEXT, TAIL

CELL_SPILL_AT = 32 << 10   # what a result shows of its output
JOB_SPILL_AT = HEAD        # what is kept in memory
WHOLE = 1 << 20            # the longest text that is read whole
JOBS_FINISHED = 64
IMAGES = 4
IMAGE_BYTES = 5 << 20      # of all images of a cell, before base64

_DRAIN_AT = OUTPUT_TEXT
_PIECE = 1 << 20
_LIVE_KEPT = 4 * OUTPUT_TEXT
_FLUSH_SECONDS = 0.02


class OutputLost(Exception):
    """Output that was asked for is not kept (or its file is gone); `kept` is the length of the prefix that is."""

    code = "output_lost"

    def __init__(self, message, kept):
        super().__init__(message)
        self.kept = kept

    def __reduce__(self):
        return OutputLost, (str(self), self.kept)


class OutputUnknown(LookupError):
    """No channel of that name is kept."""

    code = "cell_not_found"


class Capture:
    """One channel of bytes. Any thread."""

    cell = None        # the id of the cell whose channel this is
    recovery = "job.read(offset=..., limit=65536) or job.save(path)"

    def __init__(self, name, spill_dir=None, spill_at=JOB_SPILL_AT):
        self.name = name
        self.chunks = []      # text not yet encoded; appended to by any thread without the lock
        self.held = 0         # roughly its length
        self.size = 0         # bytes seen
        self.ended = False    # no more is expected; what comes nevertheless is kept too
        self.on_end = None    # called once with this channel when it ends
        self._lock = threading.RLock()
        self._head = bytearray()
        self._tail = None     # from the moment that the head is full
        self._spill = None if spill_dir is None else Spill(spill_dir, name)
        self._spill_at = min(spill_at, HEAD)

    # --- writing ---

    def add_text(self, text):
        """Take text; sooner or later it is encoded, so it costs little when it is short."""
        self.chunks.append(text)
        self.held = held = self.held + len(text)
        if held >= _DRAIN_AT:
            self.drain()

    def add_bytes(self, data):
        """Take bytes after the text that waits."""
        with self._lock:
            self._drain()
            self._add(data)

    def skip(self, count, data):
        """Count bytes that nobody has read, where room() is 0, and take the data that follows them."""
        with self._lock:
            self._drain()
            self._skip(count)
            self.add_bytes(data)

    def room(self):
        """How many more bytes are kept in their place; of what follows only the end is kept."""
        with self._lock:
            self._drain()
            return self._room()

    def _room(self):
        spill = self._spill
        whole = spill is not None and spill.works and spill.size in (0, self.size)
        return max((SPILL_LIMIT if whole else HEAD + BOUNDARY) - self.size, 0)

    def drain(self):
        """Encode the waiting text, unless this thread is at it: a signal handler may print in the midst of it."""
        if not self.entered():
            with self._lock:
                self._drain()

    def entered(self):
        """Whether this very thread is at work here, below a signal handler that runs now."""
        return self._lock._is_owned()

    def close(self):
        """No more is expected: the writer of the file is closed."""
        with self._lock:
            self._drain()
            if self.ended:
                return
            self.ended = True
            if self._spill is not None:
                self._spill.close()
        if self.on_end is not None:
            self.on_end(self)

    def _drain(self):
        n = len(self.chunks)
        if not n:
            return
        big = self.held > _PIECE
        texts = self.chunks[:n] if big else ["".join(self.chunks[:n])]
        del self.chunks[:n]  # others append meanwhile: only these n go
        self.held = 0
        for text in texts:
            self._add_text(text)

    def _add_text(self, text):
        """Encode a text piece by piece; of a long one in ASCII only what is kept."""
        if len(text) <= _PIECE:
            self._add(text.encode("utf-8", "backslashreplace"))
            return
        at = 0
        while at < len(text):
            left = len(text) - at
            if left > _PIECE and text.isascii() and not self._room():
                self._skip(left - _PIECE)
                at += left - _PIECE
            self._add(text[at:at + _PIECE].encode("utf-8", "backslashreplace"))
            at += _PIECE

    def _add(self, data):
        if not data:
            return
        at = self.size
        self.size = size = at + len(data)
        room = HEAD + BOUNDARY - len(self._head)
        if room > 0:
            self._head += data[:room]
        if size > HEAD + BOUNDARY:
            if self._tail is None:
                self._tail = self._head[-(TAIL + BOUNDARY):]
                data_left = data[max(room, 0):]
            else:
                data_left = data
            self._tail += data_left[-(TAIL + BOUNDARY):]
            if len(self._tail) > 2 * TAIL:
                del self._tail[:len(self._tail) - TAIL - BOUNDARY]
        if size > self._spill_at and self._spill is not None:
            self._spill.add(at, data, self._head, self.ended)

    def _skip(self, count):
        self.size += count
        self._tail = bytearray()

    # --- reading ---

    def kept(self):
        """How many bytes from the start on are kept, in memory or in the file."""
        with self._lock:
            self._drain()
            return self._kept()

    def _kept(self):
        kept = min(len(self._head), self.size)
        if self._spill is not None:
            kept = max(kept, self._spill.size)
        if self._tail is not None and self.size - len(self._tail) <= kept:
            kept = self.size
        return kept

    def page(self, offset=None, limit=16 << 10):
        """The text of at most limit bytes (4 to 65,536) from a byte offset on, or the last of them without one.

        Cut on characters: half a character at the end waits for the next page, unless nothing follows; bytes of half a
        character at the start are left out. ValueError for a bad range, OutputLost where something is not kept.
        """
        if type(limit) is not int or not PAGE_LEAST <= limit <= PAGE:
            raise ValueError(f"a page has {PAGE_LEAST} to {PAGE} bytes: give such a limit=, and go on with offset=")
        with self._lock:
            self._drain()
            size, ended = self.size, self.ended
            start = max(size - limit, 0) if offset is None else offset
            if type(start) is not int or not 0 <= start <= size:
                raise ValueError(f"offset={offset!r} is not within this output: it has {size} bytes so far")
            end = min(start + limit, size)
            data = self._bytes(start, end)
        cut = half_at_start(data) if start else 0
        text, used = codecs.utf_8_decode(data[cut:], "replace", ended and end == size)
        if offset is None:
            start += cut
            cut = 0
        return {"offset": start, "next_offset": start + cut + used, "size": size, "running": not ended, "text": text}

    def read(self, offset=None, limit=16 << 10):
        """page() as a Page."""
        return Page.of(self.page(offset, limit))

    def head(self, n=4000, lines=None):
        """The first n characters, or the first lines; both at most 65,536 and within the first 64 KiB, else ValueError."""
        wanted = self._preview(n, lines)
        if not wanted:
            return ""
        with self._lock:
            self._drain()
            whole = self.size <= PAGE
            text, _ = codecs.utf_8_decode(bytes(self._head[:PAGE]), "replace", whole and self.ended)
        if lines is None:
            if len(text) >= wanted or whole:
                return text[:wanted]
        else:
            parts = text.split("\n", wanted)
            if len(parts) > wanted:
                return text[:len(text) - len(parts[-1])]
            if whole:
                return text
        raise self._too_far("first", lines)

    def tail(self, n=4000, lines=None):
        """The last n characters, or the last lines; both at most 65,536 and within the last 64 KiB, else ValueError."""
        wanted = self._preview(n, lines)
        if not wanted:
            return ""
        with self._lock:
            self._drain()
            start = max(self.size - PAGE, 0)
            data = self._bytes(max(start - 1, 0), self.size)
        after_line = start and data[:1] == b"\n"
        if start:
            data = data[1:]
            data = data[half_at_start(data):]
        text, _ = codecs.utf_8_decode(data, "replace", self.ended)
        if lines is None:
            if len(text) >= wanted or not start:
                return text[-wanted:]
        else:
            body = text[:-1] if text.endswith("\n") else text
            parts = body.rsplit("\n", wanted)
            if len(parts) > wanted:
                return text[len(parts[0]) + 1:]
            if not start or after_line and len(parts) == wanted:
                return text
        raise self._too_far("last", lines)

    def bytes_from_start(self, limit=HEAD):
        """All bytes so far, exactly; None once they are more than limit or than 1 MiB."""
        with self._lock:
            self._drain()
            return bytes(self._head[:self.size]) if self.size <= min(limit, HEAD) else None

    def text(self):
        """The whole output of what has ended, at most 1 MiB, invalid UTF-8 replaced; ValueError otherwise."""
        with self._lock:
            self._drain()
            if not self.ended:
                raise ValueError(f"{self.name} still runs: read what is there with {self.call(0)}")
            if self.size > WHOLE:
                raise ValueError(f"the output has {self.size} bytes, more than the {WHOLE} that are read at once: read it in "
                                 f"pages, the first with {self.call(0)}")
            return self._head[:self.size].decode("utf-8", "replace")

    def save(self, path):
        """Write the exact bytes of what has ended to a file, whole or not at all; its absolute path.

        ValueError while it runs or where the path is no file, OutputLost where something is not kept, OSError from the disk."""
        if not self.ended:
            raise ValueError(f"{self.name} still runs: only the output of what has ended is saved")
        path = os.path.abspath(path)
        target = os.path.realpath(path)
        if os.path.exists(target) and not os.path.isfile(target):
            raise ValueError(f"{path} is no file: what is there would be replaced")
        draft = f"{os.path.dirname(target)}/.{os.urandom(6).hex()}.tmp"
        out = above_streams(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        try:
            try:
                at = 0
                while True:
                    with self._lock:
                        self._drain()
                        data = self._bytes(at, min(at + PAGE, self.size))
                    if not data:
                        break
                    at += len(data)
                    write_all(out, data)
            finally:
                os.close(out)
            os.replace(draft, target)
        except BaseException:
            try:
                os.unlink(draft)
            except OSError:
                pass
            raise
        return path

    def spill_note(self):
        """The file as {path, size in it, whole: whether all output is in it}, or None."""
        with self._lock:
            self._drain()
            if self._spill is None or not self._spill.size:
                return None
            return {"path": self._spill.path, "size": self._spill.size, "whole": self._spill.size == self.size}

    def call(self, offset, limit=PAGE):
        """The call that reads a page of this channel, as text."""
        return f"output.read({self.name!r}, offset={offset}, limit={limit})"

    def _bytes(self, start, end):
        """The bytes of a range, from memory where they are there."""
        head, tail = self._head, self._tail or b""
        behind = self.size - len(tail)  # the offset of the tail
        in_file = self._spill.size if self._spill is not None else 0
        if start >= behind and end > len(head):
            return bytes(tail[start - behind:end - behind])
        if end > self._kept():
            raise self._lost(start, end, self._kept())
        data = bytes(head[start:end])
        if (at := start + len(data)) < min(end, in_file):
            read = self._spill.read(at, min(end, in_file))
            if read is None:
                raise OutputLost(f"the file {self._spill.path} with this output is missing or shorter than it was; "
                                 f"{self._rest(start, len(head))}", len(head))
            data += read
        if (at := start + len(data)) < end:
            data += tail[at - behind:end - behind]
        return data

    def _lost(self, start, end, kept):
        return OutputLost(f"bytes {max(start, kept)} to {end} of {self.name} are not kept; {self._rest(start, kept)}", kept)

    def _rest(self, start, kept):
        at = start if kept - start >= PAGE_LEAST else 0
        return f"the first {kept} bytes are: {self.call(at, min(kept - at, PAGE))}"

    def _preview(self, n, lines):
        wanted = n if lines is None else lines
        if type(wanted) is not int or not 0 <= wanted <= PAGE:
            raise ValueError(f"a preview has 0 to {PAGE} characters or lines: for more use {self.recovery}")
        return wanted

    def _too_far(self, which, lines):
        what = "characters" if lines is None else "lines"
        return ValueError(f"so many {what} are more than the {which} {PAGE} bytes: use {self.recovery}")


class CellCapture(Capture):
    """The channel of a cell: valid UTF-8 throughout, shown live, and with the cell's images."""

    def __init__(self, cell, spill_dir=None, spill_at=CELL_SPILL_AT):
        super().__init__(cell, spill_dir, spill_at)
        self.cell = cell
        self.images = []        # {media, data (bytes), name?}
        self.image_errors = []  # what a person must know of images that are not there
        self._live = bytearray()
        self._shown_at = 0.0
        self._bytes_decoder = None

    @property
    def recovery(self):
        return self.call("...")

    def add_bytes(self, data):
        """Take bytes of unknown encoding after the text that waits."""
        with self._lock:
            self._drain()
            if self._bytes_decoder is None:
                self._bytes_decoder = codecs.getincrementaldecoder("utf-8")("replace")
            self._add(self._bytes_decoder.decode(data).encode())

    def add_image(self, media, data, name=None):
        """Take an image for the result; False when the cell has no room for it or has ended."""
        with self._lock:
            taken = sum(len(i["data"]) for i in self.images)
            if self.ended or len(self.images) >= IMAGES or taken + len(data) > IMAGE_BYTES:
                return False
            self.images.append({"media": media, "data": data, **({} if name is None else {"name": name})})
            return True

    def attachments(self):
        """The fields `images` and `image_errors` of the cell's done, as far as there are some."""
        fields = {}
        if self.images:
            from binascii import b2a_base64

            fields["images"] = [{**i, "data": b2a_base64(i["data"], newline=False).decode()} for i in self.images]
        if self.image_errors:
            fields["image_errors"] = list(self.image_errors)
        return fields

    def take_live(self):
        """(offset, text) of at most 64 KiB that was not shown yet, or None."""
        with self._lock:
            self._drain()
            if not self._live:
                return None
            data = bytes(head_of(self._live, OUTPUT_TEXT))
            offset = self.size - len(self._live)
            del self._live[:len(data)]
            self._shown_at = monotonic()
            return offset, data.decode()

    def due(self):
        """Whether a flush may show output at once: the last piece is old enough."""
        return monotonic() - self._shown_at >= _FLUSH_SECONDS

    def pending(self):
        """Whether live output waits."""
        return bool(self.chunks or self._live)

    def result(self):
        """The output object of the cell's done; the channel has ended then."""
        with self._lock:
            self._drain()
            if self._bytes_decoder is not None:
                self._add(self._bytes_decoder.decode(b"", True).encode())
                self._bytes_decoder = None
            out = self.preview()
            self._live.clear()  # done has it
            self.close()
            return out

    def preview(self):
        """The output so far as the object that done and backgrounded carry."""
        with self._lock:
            self._drain()
            head = head_of(self._head, HEAD)
            tail = b""
            if self.size > HEAD:
                source = self._head if self._tail is None else self._tail
                tail = tail_of(source, min(TAIL, self.size - len(head)))
            out = {"head": head.decode(), "tail": tail.decode(), "size": self.size}
            note = self.spill_note()
            if note is not None:
                out["spill"] = note
            return out

    def keep(self, text):
        """Append text to what is kept, without showing it live."""
        with self._lock:
            self._drain()
            super()._add(text.encode("utf-8", "backslashreplace"))

    def _add(self, data):
        super()._add(data)
        if len(data) > _LIVE_KEPT:
            self._live.clear()
        self._live += tail_of(data, _LIVE_KEPT)
        if len(self._live) > _LIVE_KEPT:
            self._live = tail_of(self._live, _LIVE_KEPT)

    def _skip(self, count):
        super()._skip(count)
        self._live.clear()
        self._bytes_decoder = None


class Channels:
    """The channels of one kernel: of running cells and jobs, of the newest finished ones, and of native code."""

    def __init__(self, directory=None):
        self.directory = directory  # of the files; None: nothing is spilled
        self.native = Capture("native", directory)
        self.native.recovery = self.native.call("...")
        self._cells = {}
        self._jobs = {}
        self._lock = threading.RLock()  # a finalizer may start a job while it is held

    def open_cell(self, name):
        """A new channel for a cell that runs from now on."""
        return self._keep(self._cells, CELLS_FINISHED, CellCapture(name, self.directory))

    def open_job(self, name):
        """A new channel for a job that runs from now on."""
        return self._keep(self._jobs, JOBS_FINISHED, Capture(name, self.directory))

    def get(self, name):
        """The channel of a cell, a job, or "native"; None when it is not kept."""
        return self.cell(name) or self.job(name) or (self.native if name == "native" else None)

    def drain_native(self, native, running):
        """Give what came through the descriptors (soma_output.Native) to the one running cell (list of captures); with
        several, or none, nobody knows whose it is: then it goes to the channel "native"."""
        native.drain(running[0] if len(running) == 1 else self.native)

    def answer_cell_read(self, frame):
        """The fields that answer a cell_read. ValueError, OutputLost, OutputUnknown. Any thread."""
        capture = self.cell(frame["cell"])
        if capture is None:
            raise OutputUnknown(f"the output of cell {frame['cell']} is not kept here")
        return {"page": capture.page(frame.get("offset"), frame["limit"])}

    def cell(self, name):
        return self._cells.get(name)

    def job(self, name):
        return self._jobs.get(name)

    def _keep(self, kept, most, capture):
        def ended(capture):
            with self._lock:
                if kept.get(capture.name) is not capture:
                    return
                kept[capture.name] = kept.pop(capture.name)  # the newest of those that have ended
                over = [n for n, c in kept.items() if c.ended][:-most]
                for name in over:
                    del kept[name]

        capture.on_end = ended
        with self._lock:
            kept[capture.name] = capture
        return capture
