"""The output directory: private files with what channels keep beyond their memory, for 14 days.

Knows no channel and takes no lock.
"""
import os

SPILL_LIMIT = 16 << 20
KEEP_SECONDS = 14 * 24 * 3600


class Spill:
    """The file with the first 16 MiB of a channel. Its channel calls it under its lock."""

    def __init__(self, directory, name):
        self.path = None
        self.size = 0       # bytes in it, all of them in their place
        self.works = True   # until a write fails: what is missing then is never made up for
        self._directory = directory
        self._name = name
        self._fd = None

    def add(self, at, data, before, ended):
        """Write data that has the offset at; the first time also what came before it. A failure ends only the spilling."""
        if not self.works or self.size >= SPILL_LIMIT:
            return
        try:
            if self.path is None:
                self._fd, self.path = new_file(self._directory, self._name)
                self._put(memoryview(before)[:at])
            elif self._fd is None:
                self._fd = above_streams(os.open(self.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
            if self.size != at:  # an exception of a signal handler has lost a piece
                raise OSError("a piece is missing")
            self._put(memoryview(data)[:SPILL_LIMIT - at])
        except OSError:
            self.works = False
        if ended or not self.works or self.size >= SPILL_LIMIT:
            self.close()

    def _put(self, data):
        while data:
            n = os.pwrite(self._fd, data, self.size)
            self.size += n
            data = data[n:]

    def close(self):
        """Close the writer."""
        fd, self._fd = self._fd, None
        if fd is not None:
            try:
                os.close(fd)
            except OSError:
                pass

    def read(self, start, end):
        """The bytes of a range within size, or None where the file is missing or too short."""
        try:
            fd = above_streams(os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
            try:
                data = os.pread(fd, end - start, start)
            finally:
                os.close(fd)
        except OSError:
            return None
        return data if len(data) == end - start else None


def new_file(directory, name, suffix=""):
    """(descriptor, path) of a new private file, named by the start of name and a hash of it; OSError."""
    from _blake2 import blake2b  # hashlib's own; hashlib itself loads OpenSSL

    os.makedirs(directory, 0o700, exist_ok=True)
    start = "".join(c if c.isascii() and c.isalnum() else "-" for c in name[:24])
    digest = blake2b(name.encode("utf-8", "backslashreplace"), digest_size=6, key=os.urandom(16)).hexdigest()
    path = f"{directory}/{start}-{digest}{suffix}"
    return above_streams(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)), path


def above_streams(fd):
    """The descriptor, moved if a cell has closed one of the standard streams and this took its place."""
    if fd > 2:
        return fd
    import fcntl

    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def write_all(fd, data):
    data = memoryview(data)
    while data:
        data = data[os.write(fd, data):]


def temporary():
    """The output directory of a kernel that was given none: in the temp directory, of this user alone; None without one."""
    directory = f"{os.environ.get('TMPDIR') or '/tmp'}/soma-output-{os.getuid()}"
    try:
        os.makedirs(directory, 0o700, exist_ok=True)
        found = os.lstat(directory)
    except OSError:
        return None
    private = found.st_uid == os.getuid() and found.st_mode & 0o170077 == 0o040000
    return directory if private else None


def prune(directory, now):
    """Remove the files of an output directory that nobody has written to for 14 days before now (seconds)."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    if entry.is_file(follow_symlinks=False) and now - entry.stat(follow_symlinks=False).st_mtime > KEEP_SECONDS:
                        os.unlink(entry.path)
                except OSError:
                    pass  # another kernel prunes too
    except OSError:
        pass


def prune_aside(directory):
    """prune() in a thread of its own."""
    import threading
    from time import time

    thread = threading.Thread(target=prune, args=(directory, time()), name="soma prune", daemon=True)
    thread.soma_inherit = False
    thread.start()
