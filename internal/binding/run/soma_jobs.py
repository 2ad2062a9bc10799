"""The book of jobs: those that run, the newest that ended, what the daemon is told and asks about them."""
import os
import signal
import stat
import threading
from contextvars import copy_context

import soma_spawn as spawn
from soma_capture import Capture
from soma_job import GRACE_SECONDS, TIMEOUT_MOST, Job

LIVE_MOST = 100          # each of them is in every list
ENDED_KEPT = 64
ROWS_MOST = 100
STDIN_MOST = 64 << 20    # bytes
_TICK_BYTES = 256 << 10  # read from all jobs in one round of the loop
_READ_LEAST = 4 << 10
_CLEANUP_GRACE = 1.0
_LOOK_SECONDS = 0.05


class Book:
    """All jobs of one kernel. The loop's thread only, but for beside()."""

    def __init__(self, api):
        self.loop = api.loop
        self.live = {}     # id -> Job
        self.ended = {}    # id -> Job, of those that are listed, the newest last
        self._api = api
        self._count = 0
        self._leaving = False
        self._thread = threading.get_ident()
        self._mark = os.environ.get(spawn.MARK)
        with api.supervising():
            self._context = copy_context()

    # --- starting ---

    def start(self, command, *, stdin=None, timeout=None, service=False, cwd=None, env=None, listed=True):
        """Start a command; its handle. ValueError or TypeError for what makes no sense, OSError when it cannot start,
        RuntimeError over the bound. listed=False is for plugins: in no list, nobody is woken."""
        self.check_thread("run()")
        argv, shown = spawn.arguments(command)
        _check_timeout(timeout)
        if len(self.live) >= LIVE_MOST:
            raise RuntimeError(f"{LIVE_MOST} jobs run already: wait for some or stop some before starting another")
        if cwd is not None:
            cwd = os.path.abspath(os.path.expanduser(cwd))
            if not os.path.isdir(cwd):
                raise NotADirectoryError(f"cwd is not a folder: {cwd}")
        variables = spawn.environment(env, self._mark)
        source, data = _source(stdin)
        with self.whole():  # a process is never without its job
            try:
                process = spawn.start(argv, source, cwd, variables, self._api.spawning())
            except OSError as e:
                raise OSError(e.errno, _why(e, argv, isinstance(command, str))) from None
            finally:
                if source is not None and source is not True:
                    os.close(source)
            self._count += 1
            job = Job(self, f"j{self._count}", process, shown, bool(service), listed, self._api.cell())
            self.live[job.id] = job
            self._api.send("job_start", self._start_fields(job))
            job.begin(timeout)
            if data is not None:
                job.feed(data)
            return job

    @staticmethod
    def _start_fields(job):
        fields = {"job": job.id, "pid": job.pid, "pgid": job.pid, "leader": job.leader, "command": job.command,
                  "service": job.service or not job.listed, "started_at": job.started_at}
        if job.cell is not None:
            fields["cell"] = job.cell
        return fields

    # --- what jobs use ---

    def check_thread(self, what):
        if not self.on_thread():
            raise RuntimeError(f"{what} works on the main thread only: call it from the cell, not from a thread")

    def on_thread(self):
        return threading.get_ident() == self._thread

    def quiet(self, call, *args):
        """Call loop.add_reader and its like so that the callback is not part of the cell that runs now."""
        return self._context.run(call, *args)

    def whole(self):
        """A context manager: no interrupt of a cell falls into what is within."""
        return self._api.supervising()

    def soon(self, callback):
        self._api.post(callback)

    def in_cell(self):
        return self._api.cell() is not None

    def share(self):
        """Bytes that one job may take in this round of the loop."""
        return max(_READ_LEAST, _TICK_BYTES // max(len(self.live), 1))

    def open_output(self, name, listed):
        return self._api.channels.open_job(name) if listed else Capture(name, self._api.channels.directory)

    def has_ended(self, job):
        self.live.pop(job.id, None)
        if not job.listed:
            return
        self.ended[job.id] = job
        while len(self.ended) > ENDED_KEPT:
            self.ended.pop(next(iter(self.ended))).forget_output()

    def report_end(self, job, wake, tail):
        if self._leaving and job.is_stopping():
            return  # with the kernel: its owner knows which jobs ran until then
        fields = {"job": job.id, "state": "exited", "timed_out": job.timed_out, "ended_at": job.ended_at, "bytes": job.size,
                  "service": job.service or not job.listed, "command": job.command, "wake": wake, "tail": tail}
        row = job.row()
        for name in ("cell", "exit_code"):
            if name in row:
                fields[name] = row[name]
        self._api.send("job", fields)

    def seen(self, job):
        self._api.seen(job=job.id)

    # --- what the kernel asks ---

    def get(self, name):
        job = self.live.get(name)
        return job if job is not None and job.listed else self.ended.get(name)

    def jobs(self):
        """All that are listed, the newest first."""
        all_ = [j for j in self.live.values() if j.listed] + list(self.ended.values())
        return sorted(all_, key=lambda j: int(j.id[1:]), reverse=True)

    def rows(self):
        return [job.row() for job in self.jobs()[:ROWS_MOST]]

    def page(self, name, offset, limit):
        job = self.get(name)
        return None if job is None else job.page(offset, limit)

    def stop(self, name):
        """What ends when the job has, or None for one that is not known. Its owner is told as of any other end."""
        job = self.get(name)
        if job is None:
            return None
        job.begin_stop(GRACE_SECONDS)
        return self._stopped(job)

    async def _stopped(self, job):
        if job.id in self.live:
            await job.over()

    def of_cell(self, cell):
        return [{"id": j.id, "command": j.command, "service": j.service, "started": j.started_at}
                for j in self.live.values() if j.listed and j.cell == cell]

    def holds(self):
        return bool(self.live)

    def beside(self):
        """Do for the jobs what must not wait while a cell holds the loop. The watch thread."""
        for job in list(self.live.values()):
            job.beside()

    async def clean_up(self):
        """End all groups, those too that have outlived their job."""
        import asyncio

        self._leaving = True
        left = [job for job in self.ended.values() if job.outlived()]
        for job in [*self.live.values(), *left]:
            job.begin_stop(_CLEANUP_GRACE)
        until = self.loop.time() + _CLEANUP_GRACE
        while left and self.loop.time() < until:
            left = [job for job in left if spawn.group_is_ours(job.pid)]
            await asyncio.sleep(_LOOK_SECONDS)
        for job in left:
            spawn.signal_group(job.pid, signal.SIGKILL)
        for job in list(self.live.values()):
            await job.over()


class Jobs:
    """All jobs that run and the newest 64 that ended, the newest first: jobs["j3"], `for job in jobs`, len(jobs)."""

    def __init__(self, book):
        self._book = book

    def __getitem__(self, name):
        job = self._book.get(name)
        if job is None:
            raise KeyError(f"no job {name}: those that run and the {ENDED_KEPT} that ended last are kept")
        return job

    def __contains__(self, name):
        return self._book.get(name) is not None

    def __iter__(self):
        return iter(self._book.jobs())

    def __len__(self):
        return len(self._book.jobs())

    def __repr__(self):
        lines = []
        for job in self._book.jobs()[:ROWS_MOST]:
            how = "running" if job.state != "exited" else job.ending()
            lines.append(f"{job.id}  {how}{', service' if job.service else ''}, {job.duration:.1f} s, {job.size} bytes: "
                         f"{job.command.partition(chr(10))[0][:80]}")
        return "\n".join(lines) or "no jobs"


def _check_timeout(timeout):
    if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout <= TIMEOUT_MOST):
        raise ValueError(f"timeout is seconds, more than 0 and at most {TIMEOUT_MOST:.0f} (a day), or None")


def _source(stdin):
    """(what spawn.start takes as stdin, bytes to feed or None)."""
    if stdin is None or stdin is True:
        return stdin, None
    if isinstance(stdin, os.PathLike):
        return _open(os.path.expanduser(stdin)), None
    if isinstance(stdin, str):
        stdin = stdin.encode("utf-8", "surrogateescape")
    elif isinstance(stdin, (bytes, bytearray, memoryview)):
        stdin = bytes(stdin)
    else:
        raise TypeError(f"stdin is text, bytes or a Path, not {type(stdin).__name__}")
    if len(stdin) > STDIN_MOST:
        raise ValueError(f"stdin has {len(stdin)} bytes, more than {STDIN_MOST}: write a file and give its Path")
    return True, stdin


def _open(path):
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO without a writer would hold the loop
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.close(fd)
        raise IsADirectoryError(f"stdin is a folder: {path}")
    os.set_blocking(fd, True)
    return fd


def _why(e, argv, shell):
    import errno

    if e.errno in (errno.EMFILE, errno.ENFILE):
        return "cannot start the job: too many files are open in this kernel: close some, or wait for jobs to end"
    if e.errno == errno.E2BIG:
        return "cannot start the job: the command is too long: give the long part as stdin= or in a file"
    if e.errno == errno.EAGAIN:
        return "cannot start the job: this user has too many processes"
    if e.errno == errno.ENOENT and not shell:
        return f"cannot start {os.fsdecode(argv[0])!r}: no such program (a list is run without a shell)"
    return f"cannot start {os.fsdecode(argv[0])!r}: {e.strerror}"
