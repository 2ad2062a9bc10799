"""A small daemon side for tests: starts a kernel process and talks protocol 1 with it. Waits on frames and exits only."""
import atexit
import fcntl
import glob
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

import soma_wire

BUNDLE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROTOCOL = os.path.abspath(os.path.join(BUNDLE, "../../../protocol/pykernel"))
TOKEN = "5f" * 32
PATIENCE = 15.0


def load(name):
    with open(os.path.join(PROTOCOL, name), encoding="utf-8") as f:
        return json.load(f)


class Closed(Exception):
    """The kernel cut the connection."""


class Connection:
    """One connection to a kernel; every unit that arrives is checked against the frame table."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        directory = os.open(kernel.dir, os.O_PATH)
        try:
            self.sock.connect(f"/proc/self/fd/{directory}/kernel.sock")
        except OSError:
            self.sock.close()
            raise
        finally:
            os.close(directory)
        self.seen = []        # every unit, oldest first
        self.last = 0         # highest frame number seen here
        self.hello = None

    def send_raw(self, data):
        self.sock.sendall(data)

    def send(self, value):
        self.send_raw(soma_wire.unit(json.dumps(value).encode()))

    def recv(self):
        header = self._exactly(4)
        value = json.loads(self._exactly(struct.unpack(">I", header)[0]))
        shape = soma_wire.shape("kernel", value)
        assert shape != "malformed", value
        if shape == "frame":
            assert value["seq"] > self.last, (value, self.last)
            self.last = value["seq"]
            if not self.kernel.hold_acks:
                try:
                    self.send({"ack": self.last})
                except OSError:
                    pass  # it has closed; what it wrote before can still be read
        self.seen.append(value)
        return value

    def _exactly(self, n):
        data = b""
        while len(data) < n:
            try:
                piece = self.sock.recv(n - len(data))
            except (ConnectionResetError, BrokenPipeError):
                piece = b""
            if not piece:
                raise Closed
            data += piece
        return data

    def attach(self, **changes):
        """Send an attach; the answer (hello or refused) is returned."""
        fields = {"kernel": self.kernel.id, "token": TOKEN, "ack": 0, "grace": 600, "lease": 1, "protocol": 1}
        fields.update(changes)
        self.send({"attach": fields})
        self.last = fields["ack"]
        answer = self.recv()
        self.hello = answer.get("hello")
        return answer

    def frame(self, kind, **fields):
        """Send a sequenced frame under the kernel's next number."""
        self.kernel.sent += 1
        self.send({"seq": self.kernel.sent, "ack": 0, "frame": {"type": kind, **fields}})

    def execute(self, cell, code, timeout_ms=600_000):
        self.frame("execute", cell=cell, code=code, timeout_ms=timeout_ms)

    def until(self, wanted):
        """Read until a unit for which wanted(unit) is true; that unit."""
        while True:
            value = self.recv()
            if wanted(value):
                return value

    def frame_of(self, kind, **fields):
        """Read until a frame of that type with those fields; the frame."""
        def fits(v):
            f = v.get("frame", {})
            return f.get("type") == kind and all(f.get(k) == x for k, x in fields.items())
        return self.until(fits)["frame"]

    def done(self, cell):
        return self.frame_of("done", cell=cell)

    def run(self, cell, code, timeout_ms=600_000):
        self.execute(cell, code, timeout_ms)
        return self.done(cell)

    def printed(self, cell, text):
        """Read until the live output of a cell contains text."""
        seen = ""
        while text not in seen:
            value = self.until(lambda v: v.get("output", {}).get("cell") == cell)
            seen += value["output"]["text"]

    def ping(self, number=1):
        self.send({"ping": number})
        return self.until(lambda v: "pong" in v)["pong"]

    def acked(self, number):
        """Read until the kernel has acknowledged number."""
        self.until(lambda v: v.get("ack", -1) >= number)

    def closed(self):
        """Read until the kernel cuts the connection."""
        try:
            while True:
                self.recv()
        except Closed:
            return True

    def close(self):
        self.sock.close()


class Kernel:
    def __init__(self, workspace=None, env=None, bundle=BUNDLE, options=(), scale=None, directory=None, token=TOKEN,
                 python=sys.executable, modules=(), output=None):
        """A started process. bundle: a folder with the kernel's modules and those of `modules` (see bundled())."""
        self.root = tempfile.mkdtemp(prefix="pk")
        self.dir = directory or os.path.join(self.root, "k1")
        os.makedirs(self.dir, mode=0o700, exist_ok=True)
        self.id = os.path.basename(self.dir)
        self.workspace = workspace or os.path.join(self.root, "workspace")
        os.makedirs(self.workspace, exist_ok=True)
        self.sent = 0
        self.hold_acks = False
        self.connections = []
        environment = {"PATH": os.environ["PATH"], "HOME": self.root, "LANG": "C.UTF-8", **(env or {})}
        if scale:
            environment["SOMA_TEST_TIME_SCALE"] = str(scale)
        self.stderr = open(os.path.join(self.root, "stderr"), "w+b")
        self.process = subprocess.Popen(
            [python, "-I", "-S", *options, os.path.join(bundle, "soma_kernel.py"), "--run", self.dir, "--bundle", "0f",
             "--output", output or os.path.join(self.root, "output"),
             *(["--modules", ",".join(modules)] if modules else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.stderr, cwd=self.workspace, env=environment)
        if token is not None:
            self.process.stdin.write(token.encode() + b"\n")
        self.process.stdin.close()

    def listening(self):
        """Wait for the end of stdout, which says that the socket listens."""
        assert self.process.stdout.read() == b""
        return self

    def connect(self):
        c = Connection(self)
        self.connections.append(c)
        return c

    def attach(self, **changes):
        """A new attached connection."""
        c = self.connect()
        answer = c.attach(**changes)
        assert "hello" in answer, answer
        return c

    def wait(self):
        """The exit status."""
        return self.process.wait(PATIENCE)

    def log(self):
        with open(os.path.join(self.dir, "kernel.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def lock_is_free(self):
        with open(os.path.join(self.dir, "lock"), "r+b") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
            return True

    def end(self):
        for c in self.connections:
            c.close()
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        self.stderr.close()
        shutil.rmtree(self.root, ignore_errors=True)


@atexit.register
def _end_spare():
    for k in KernelCase._spare:
        k.end()


def bundled(directory, *modules):
    """Fill a folder with links to the kernel's modules and to the module files of `modules`; the folder."""
    for path in [os.path.join(BUNDLE, name) for name in os.listdir(BUNDLE) if name.endswith(".py")] + list(modules):
        os.symlink(os.path.abspath(path), os.path.join(directory, os.path.basename(path)))
    cache = os.path.join(directory, "__pycache__")
    os.mkdir(cache)
    for path in [BUNDLE, *{os.path.dirname(os.path.abspath(m)) for m in modules}]:
        for compiled in glob.glob(path + "/__pycache__/*.pyc"):  # else each kernel would compile all of it
            os.symlink(compiled, os.path.join(cache, os.path.basename(compiled)))
    return directory


class KernelCase(unittest.TestCase):
    _spare = []  # one that starts while a test runs, for the next

    def kernel(self, **options):
        """A started kernel, ended with the test."""
        k = Kernel(**options) if options or not self._spare else self._spare.pop()
        if not self._spare and not options:
            self._spare.append(Kernel())
        self.addCleanup(k.end)
        return k

    def bundle(self, *modules):
        """A bundle of its own with these module files beside the kernel's, removed with the test."""
        directory = tempfile.mkdtemp(prefix="pkb")
        self.addCleanup(shutil.rmtree, directory)
        return bundled(directory, *modules)

    def module(self, name, text):
        """The path of a module file with that text, for bundle()."""
        directory = tempfile.mkdtemp(prefix="pkm")
        self.addCleanup(shutil.rmtree, directory)
        path = os.path.join(directory, name + ".py")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def attached(self, **options):
        """(kernel, attached connection) of a fresh kernel that is ready."""
        k = self.kernel(**options).listening()
        c = k.attach()
        c.frame_of("ready")
        return k, c
