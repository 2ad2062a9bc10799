"""The OS process of a python kernel before it can talk: session, log, lock, token, socket, death notices.

Everything here runs once, on the only thread there is. Exit statuses are those of SPEC.md, section 5.
"""
import fcntl
import os
import socket
import sys

ENDED, FAILED, USAGE, NO_SOCKET, LOCKED, NO_TOKEN = 0, 1, 2, 3, 5, 6
_TOKEN_LINE = 257


class Place:
    """The run directory: its path, the id that is its name, and whether it is still there."""

    def __init__(self, path):
        self.path = path
        self.id = os.path.basename(path)
        self._identity = self._look()

    def _look(self):
        found = os.stat(self.path)
        return found.st_dev, found.st_ino

    def file(self, name):
        return self.path + "/" + name

    def gone(self):
        try:
            return self._look() != self._identity
        except OSError:
            return True


def fail(status, text):
    """End the process with a line in the log (or on the early stderr)."""
    try:
        os.write(2, ("soma: " + text + "\n").encode("utf-8", "replace"))
    except OSError:
        pass
    os._exit(status)


_USAGE = "usage: soma_kernel.py --run ABSOLUTE_DIR --bundle HEX [--output ABSOLUTE_DIR] [--modules NAME,NAME]"


def arguments(argv):
    """(Place, bundle digest, output directory or None, module names); ends the process when they are something else."""
    given = dict(zip(argv[::2], argv[1::2]))
    output = given.get("--output")
    if (len(argv) != 2 * len(given) or not {"--run", "--bundle"} <= set(given)
            or not set(given) <= {"--run", "--bundle", "--output", "--modules"}
            or not given["--run"].startswith("/") or not (output is None or output.startswith("/"))):
        fail(USAGE, _USAGE)
    modules = [name for name in given.get("--modules", "").split(",") if name]
    if not all(name.isidentifier() for name in modules):
        fail(USAGE, _USAGE)
    try:
        return Place(given["--run"].rstrip("/")), given["--bundle"], output, modules
    except OSError as e:
        fail(USAGE, f"cannot use the run directory: {e}")


def leave_the_starter():
    """Become leader of an own session and process group, so that no signal of the starter's terminal arrives."""
    if os.getsid(0) != os.getpid():
        try:
            os.setsid()
        except PermissionError:
            fail(FAILED, "cannot make a session: started as the leader of a process group")


def open_log(place):
    """Send stderr to kernel.log and return a second descriptor on it, kept for death notices."""
    log = os.open(place.file("kernel.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 2)
    return log


def hold_lock(place):
    """Lock run/lock for life (exit 5 if another process has it). Returns the descriptor."""
    fd = os.open(place.file("lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        fail(LOCKED, "another process holds the lock")
    return fd


def read_token():
    """The one line of stdin, which is then /dev/null; exit 6 when there is none."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1) if len(line) < _TOKEN_LINE else b""
        if not piece:
            fail(NO_TOKEN, "no token on stdin")
        line += piece
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    token = line.strip()
    if not token:
        fail(NO_TOKEN, "no token on stdin")
    return token


def listen(place):
    """The listening socket, bound relative to the run directory (0600); exit 3 when it cannot be made."""
    back = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
    mask = os.umask(0o177)
    try:
        os.chdir(place.path)
        try:
            os.unlink("kernel.sock")
        except FileNotFoundError:
            pass
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind("kernel.sock")
        listener.listen(16)
        listener.setblocking(False)
    except OSError as e:
        fail(NO_SOCKET, f"cannot listen: {e}")
    finally:
        os.umask(mask)
        os.fchdir(back)
        os.close(back)
    return listener


def announce():
    """Close stdout: the owner's end of file says that the socket listens."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def start_time():
    """Field 22 of /proc/self/stat as text: with the pid it names this process; "" where there is no such file."""
    try:
        with open("/proc/self/stat", "rb", 0) as f:
            return f.read(4096).rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def notice_death(log):
    """Let fatal errors, SIGTERM and SIGHUP leave a line in kernel.log before they end the process."""
    import faulthandler
    import signal

    faulthandler.enable(file=log)

    def last_words(number, _frame):
        os.write(log, f"received {signal.Signals(number).name}\n".encode())
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, last_words)
    signal.signal(signal.SIGHUP, last_words)


def add_site_paths():
    """What `site` would have put on sys.path, then the workspace: last, so that its files shadow nothing."""
    import site

    site.main()
    if sys.prefix == sys.base_prefix:
        personal = site.getusersitepackages()
        if os.path.isdir(personal):
            site.addsitedir(personal)
    workspace = os.getcwd()
    sys.path[:] = [p for p in sys.path if p != workspace] + [workspace]
