"""Starts the OS process of a job and speaks of processes to the system: its group, its start time, how it ended.

Knows no job and no loop. What a job needs of the standard library beyond the kernel's own is imported at the first start.
"""
import _signal
import fcntl
import os

SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh")
SHOWN = 4096             # characters of a command that anyone is told
PIPE_BYTES = 256 << 10   # wished for; the system may give less
MARK = "SOMA_KERNEL"
_LIFTED = ("RLIMIT_DATA", "RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_FSIZE")  # what a kernel may hold lower for itself


def shell():
    """The shell of commands that are text: bash if there is one."""
    for path in SHELLS:
        if os.access(path, os.X_OK):
            return path
    return SHELLS[-1]


def arguments(command):
    """(argv, shown): text is a command line for the shell, a list or tuple is the arguments themselves."""
    if isinstance(command, str):
        if not command.strip():
            raise ValueError("the command is empty")
        argv, shown = [shell(), "-c", command], command[:SHOWN]
    elif isinstance(command, (list, tuple)):
        argv = [os.fspath(part) for part in command]
        if not argv or not argv[0]:
            raise ValueError("the command is empty")
        shown = _joined(argv)
    else:
        raise TypeError(f"a command is text for the shell or a list of arguments, not {type(command).__name__}")
    if any((b"\0" if isinstance(part, bytes) else "\0") in part for part in argv):
        raise ValueError("a command cannot hold a NUL character")
    return argv, shown


def _joined(argv):
    import shlex

    parts, left = [], SHOWN
    for part in argv:
        if left <= 0:
            break
        if isinstance(part, bytes):
            part = os.fsdecode(part[:left])
        parts.append(shlex.quote(part[:left]))
        left -= len(parts[-1]) + 1
    return " ".join(parts)[:SHOWN]


def environment(extra, mark):
    """The environment of a job: the kernel's, with changes (None takes a name away); the kernel's mark stays in it."""
    env = dict(os.environ)
    for name, value in (extra or {}).items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ValueError(f"bad name of an environment variable: {name!r}")
        if value is None:
            env.pop(name, None)
        elif isinstance(value, (str, os.PathLike)):
            env[name] = os.fspath(value)
        else:
            raise TypeError(f"the value of {name} is text or None, not {type(value).__name__}")
    if mark is not None:
        env[MARK] = mark
    return env


class Process:
    """A started process, leader of its own group. The descriptors belong to who holds it."""

    __slots__ = ("pid", "leader", "handle", "output", "stdin")

    def __init__(self, pid, output, stdin):
        self.pid = pid
        self.output = output   # descriptor to read what it writes; does not block
        self.stdin = stdin     # descriptor to write its input, or None; does not block
        self.leader = start_time(pid)
        self.handle = None     # pidfd; None where there is none to have
        try:
            handle = [os.pidfd_open(pid)]
        except (OSError, AttributeError):
            return
        try:
            _above_streams(handle, 0)
        except OSError:
            os.close(handle[0])
            return
        self.handle = handle[0]


def start(argv, stdin, cwd, env, door):
    """Start a process. stdin: None (nothing to read), a descriptor to read from, or True (a pipe).
    OSError or ValueError when it cannot be; door is entered for the moment of the start."""
    opened = []
    try:
        read, write = _pipe(opened)
        source = feed = None
        if stdin is True:
            source, feed = _pipe(opened)
        elif stdin is not None:
            source = stdin
        _widen(read)
        pid = _fork(argv, source, write, cwd, env, door)
    except BaseException:
        for fd in opened:
            os.close(fd)
        raise
    os.close(write)
    os.set_blocking(read, False)
    if feed is not None:
        os.close(source)
        os.set_blocking(feed, False)
    return Process(pid, read, feed)


def _pipe(opened):
    """(read end, write end) of a new pipe, added to opened; never in the place of a standard stream that a cell closed."""
    opened += os.pipe()
    for i in (-2, -1):
        _above_streams(opened, i)
    return opened[-2:]


def _above_streams(opened, i):
    """Give a descriptor of a list another number where it took the place of a standard stream."""
    low = opened[i]
    if low <= 2:
        opened[i] = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)
        os.close(low)


def _widen(fd):
    try:
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except (OSError, AttributeError):
        pass  # a user's pipes together are bounded


def pipe_size(fd):
    try:
        return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
    except (OSError, AttributeError):
        return 64 << 10


def _fork(argv, stdin, output, cwd, env, door):
    import subprocess

    if _signal.getsignal(_signal.SIGCHLD) == _signal.SIG_IGN:
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # ignored, it would lose how processes end
    with door, _Clean():
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL if stdin is None else stdin, stdout=output, stderr=output,
                                   cwd=cwd, env=env, process_group=0)
    process.returncode = 0  # we wait for it; subprocess is not to
    return process.pid


class _Clean:
    """While inside, a process that is started begins with default signals and with the machine's limits."""

    def __enter__(self):
        import resource

        self._limits = []
        for name in _LIFTED:
            which = getattr(resource, name)
            soft, hard = resource.getrlimit(which)
            if soft != hard:
                try:
                    resource.setrlimit(which, (hard, hard))
                except (OSError, ValueError):
                    continue
                self._limits.append((which, (soft, hard)))
        # A handler of any kind becomes the default in the new process; to ignore is inherited.
        self._ignored = [s for s in range(1, 32) if s not in (_signal.SIGPIPE, _signal.SIGXFSZ)
                         and _signal.getsignal(s) == _signal.SIG_IGN]
        for s in self._ignored:
            _signal.signal(s, _nothing)
        self._mask = _signal.pthread_sigmask(_signal.SIG_SETMASK, ())

    def __exit__(self, *_):
        import resource

        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._mask)
        for s in self._ignored:
            _signal.signal(s, _signal.SIG_IGN)
        for which, limits in self._limits:
            resource.setrlimit(which, limits)


def _nothing(_number, _frame):
    pass


def start_time(pid):
    """Field 22 of the process's stat as text: with the pid it names the process; "" where that cannot be read."""
    try:
        return _stat(pid)[19].decode()
    except (OSError, IndexError):
        return ""


def _stat(pid):
    with open(f"/proc/{pid}/stat", "rb", 0) as f:
        return f.read(4096).rpartition(b")")[2].split()


RUNNING, UNKNOWN = object(), object()


def ended(pid):
    """RUNNING, or how a child ended: its exit status, -N for signal N, UNKNOWN when another has waited for it."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return UNKNOWN
    return RUNNING if found == 0 else os.waitstatus_to_exitcode(status)


def group_lives(group):
    """Whether a group whose leader was waited for has members."""
    try:
        os.killpg(group, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def signal_group(group, number):
    try:
        os.killpg(group, number)
    except OSError:
        pass  # nobody is left, or nobody that we may signal


def group_is_ours(group):
    """Whether a group has members that were started in this kernel's session: its number may be another's by now."""
    session = os.getsid(0)
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = _stat(name)
                if int(fields[2]) == group and int(fields[3]) == session:
                    return True
            except (OSError, IndexError, ValueError):
                continue
    return False
