"""The name `show_image` of the cells: images beside a cell's result.

PNG, JPEG and WebP are told apart and measured by their structure; nothing is decoded.
"""
import os

from soma_capture import IMAGE_BYTES, IMAGES

EDGE = 8000  # pixels a side
_SUFFIX = {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp"}


class Text(str):
    """Text that is shown as it is where it is a cell's value."""

    __slots__ = ()
    __repr__ = str.__str__


def setup(api):
    def show_image(source, *more):
        """Show images beside this cell's result: each a path, or the bytes, of a PNG, JPEG or WebP image.

        Returns None, or where the cell has no room for all (4 images, 5 MiB) a text that names the files in which the
        rest was saved. ValueError for what is no whole image, has a side over 8000 pixels, or is over 5 MiB."""
        capture = api.capture()
        if capture is None or capture.ended:
            raise RuntimeError("no cell runs here whose result could take the image: call show_image() in a cell")
        images = [_load(s) for s in (source, *more)]  # all or none
        texts = []
        for media, data, name in images:
            if not capture.add_image(media, data, name):
                texts.append(_saved(_save(api.output_dir, media, data, name), name))
        capture.image_errors.extend(texts)
        return Text("\n".join(texts)) if texts else None

    show_image.__qualname__ = "show_image"  # as errors name it
    api.provide("show_image", show_image)


def _load(source):
    """(media, bytes, name or None) of one source."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        data, name = source, None
        size = len(memoryview(source).cast("B")) if isinstance(source, memoryview) else len(source)
        _check_size(size, "the image")
        data = bytes(source)
    elif isinstance(source, (str, os.PathLike)):
        path = os.path.abspath(os.path.expanduser(os.fsdecode(source)))  # like those of `files`
        name = os.path.basename(path)
        data = _read(path)
    else:
        raise TypeError(f"an image is a path or bytes, not {type(source).__name__}: write it to a file or a BytesIO first "
                        "(as PNG, JPEG or WebP)")
    media, width, height = measure(data, name or "the image")
    if max(width, height) > EDGE:
        raise ValueError(f"{name or 'the image'} is {width} × {height} pixels, a side has at most {EDGE}: make it smaller or crop it")
    return media, data, name


def _read(path):
    import stat

    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as f:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{path} is no file")
        _check_size(found.st_size, path)
        data = f.read(IMAGE_BYTES + 1)
    _check_size(len(data), path)
    return data


def _check_size(size, name):
    if size > IMAGE_BYTES:
        raise ValueError(f"{name} has {size} bytes, a cell shows at most {IMAGE_BYTES}: make it smaller, crop it, or save it as JPEG or WebP")


def _save(directory, media, data, name):
    """Write an image to a new private file; its path. OSError."""
    from soma_spill import new_file, write_all

    if directory is None:
        import tempfile

        directory = tempfile.mkdtemp(prefix="soma-output-")
    fd, path = new_file(directory, os.path.splitext(name or "image")[0], _SUFFIX[media])
    try:
        write_all(fd, data)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(fd)
    return path


def _saved(path, name):
    return (f"{name or 'an image'} is not shown: a cell shows at most {IMAGES} images, together {IMAGE_BYTES >> 20} MiB. "
            f"It is saved; in another cell: show_image({path!r})")


def measure(data, name):
    """(media type, width, height) of a whole image. ValueError naming it for anything else."""
    for media, start, look in (("image/png", b"\x89PNG\r\n\x1a\n", _png), ("image/jpeg", b"\xff\xd8\xff", _jpeg),
                               ("image/webp", b"RIFF", _webp)):
        if data.startswith(start):
            try:
                width, height = look(data)
            except IndexError:
                raise ValueError(f"{name} is cut short: {media} that lacks its end") from None
            except ValueError as e:
                raise ValueError(f"{name} is no valid {media}: {e}") from None
            if not (width and height):
                raise ValueError(f"{name} is no valid {media}: it has no pixels")
            return media, width, height
    raise ValueError(f"{name} is no PNG, JPEG or WebP image")


def _piece(data, at, n):
    """n bytes from at on; IndexError where the data ends before."""
    if at + n > len(data):
        raise IndexError
    return data[at:at + n]


def _png(data):
    from binascii import crc32

    at, size, pixels = 8, None, False
    view = memoryview(data)
    while True:
        length = int.from_bytes(_piece(data, at, 4), "big")
        kind = _piece(data, at + 4, 4)
        if not kind.isalpha():
            raise ValueError(f"a chunk has the name {kind!r}")
        check = int.from_bytes(_piece(data, at + 8 + length, 4), "big")
        if crc32(view[at + 4:at + 8 + length]) != check:
            raise ValueError(f"the checksum of its {kind.decode()} is wrong")
        if (kind == b"IHDR") != (size is None) or kind == b"IHDR" and length != 13:
            raise ValueError("its header is not where it should be")
        if kind == b"IHDR":
            size = int.from_bytes(data[at + 8:at + 12], "big"), int.from_bytes(data[at + 12:at + 16], "big")
        pixels = pixels or kind == b"IDAT"
        if kind == b"IEND":
            if not pixels:
                raise ValueError("it has no data")
            return size
        at += 12 + length


_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # start of frame, of any coding
_ALONE = frozenset((0x01, *range(0xD0, 0xD8)))                # markers without a segment


def _jpeg(data):
    at, size, scanned = 2, None, False
    while True:
        if _piece(data, at, 1) != b"\xff":
            raise ValueError("a segment does not begin with a marker")
        while (marker := _piece(data, at + 1, 1)[0]) == 0xFF:  # fill bytes
            at += 1
        at += 2
        if marker == 0xD9:
            if size is None or not scanned:
                raise ValueError("it has no data")
            return size
        if marker in _ALONE:
            continue
        length = int.from_bytes(_piece(data, at, 2), "big")
        if marker in (0, 0xD8) or length < 2:
            raise ValueError("a segment is broken")
        body = _piece(data, at + 2, length - 2)
        at += length
        if marker in _FRAMES:
            if len(body) < 6:
                raise ValueError("its frame is broken")
            size = int.from_bytes(body[3:5], "big"), int.from_bytes(body[1:3], "big")
        elif marker == 0xDA:
            if size is None:
                raise ValueError("data comes before its frame")
            scanned = True
            at = _end_of_scan(data, at)


def _end_of_scan(data, at):
    """Where the next marker after entropy-coded data is; stuffed bytes and restart markers belong to the data."""
    while (at := data.find(b"\xff", at)) >= 0:
        follows = _piece(data, at + 1, 1)[0]
        if follows == 0xFF:
            at += 1
        elif follows == 0 or 0xD0 <= follows <= 0xD7:
            at += 2
        else:
            return at
    raise IndexError


def _webp(data):
    length = int.from_bytes(_piece(data, 4, 4), "little")
    if _piece(data, 8, 4) != b"WEBP":
        raise ValueError("it is another RIFF file")
    end = len(_piece(data, 0, 8 + length))
    at, canvas, size = 12, None, None
    while at < end:
        kind = _piece(data, at, 4)
        n = int.from_bytes(_piece(data, at + 4, 4), "little")
        if at + 8 + n > end:
            raise ValueError("a chunk is longer than the file says")
        body = data[at + 8:at + 8 + n]
        if kind == b"VP8X" and at == 12 and n >= 10:
            canvas = _le24(body, 4) + 1, _le24(body, 7) + 1
        elif kind in (b"VP8 ", b"VP8L"):
            size = _vp8(body) if kind == b"VP8 " else _vp8l(body)
        elif kind == b"ANMF" and canvas:
            size = canvas
        at += 8 + n + n % 2
    if size is None:
        raise ValueError("it has no data")
    return canvas or size


def _le24(data, at):
    return int.from_bytes(data[at:at + 3], "little")


def _vp8(body):
    if len(body) < 10 or body[0] & 1 or body[3:6] != b"\x9d\x01\x2a":
        raise ValueError("its picture does not begin with a key frame")
    if (_le24(body, 0) >> 5) + 10 > len(body):
        raise ValueError("its picture is cut short")
    return int.from_bytes(body[6:8], "little") & 0x3FFF, int.from_bytes(body[8:10], "little") & 0x3FFF


def _vp8l(body):
    if len(body) < 6 or body[0] != 0x2F:
        raise ValueError("its picture has no header")
    bits = int.from_bytes(body[1:5], "little")
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
