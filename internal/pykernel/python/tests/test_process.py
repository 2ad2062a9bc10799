"""The process around the kernel: arguments, files, lock, token, socket, session, death."""
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

from tests.client import BUNDLE, TOKEN, Closed, Connection, KernelCase


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


class Start(KernelCase):
    # P-001
    def test_own_session_and_group(self):
        k, c = self.attached()
        self.assertEqual(os.getsid(k.process.pid), k.process.pid)
        self.assertEqual(os.getpgid(k.process.pid), k.process.pid)
        self.assertEqual((c.hello["pid"], c.hello["pgid"]), (k.process.pid, k.process.pid))
        with open(f"/proc/{k.process.pid}/stat") as f:
            self.assertEqual(c.hello["leader"], f.read().rpartition(")")[2].split()[19])
        for fd in (0, 1, 2):  # nothing of the starter's
            self.assertNotIn("pipe:", os.readlink(f"/proc/{k.process.pid}/fd/{fd}"))

    # P-002, P-003, P-204
    def test_files_are_private(self):
        k, _ = self.attached()
        for name in ("kernel.sock", "lock", "kernel.log", "native"):
            self.assertEqual(mode(os.path.join(k.dir, name)), 0o600, name)

    # P-002: bound relative to the directory, so a path beyond a socket address works
    def test_long_path(self):
        root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, root)
        deep = os.path.join(root, *["d" * 50] * 4, "k1")
        k = self.kernel(directory=deep).listening()
        self.assertGreater(len(os.path.join(deep, "kernel.sock")), 200)
        self.assertEqual(k.attach().run("c", "1+1")["value"], "2")

    # P-002: the working directory is still the workspace after the bind
    def test_working_directory(self):
        k, c = self.attached()
        self.assertEqual(c.run("c", "import os; os.getcwd()")["value"], repr(os.path.realpath(k.workspace)))

    # P-004, I-53: the token is in no argument list and no environment, and stdin is empty afterwards
    def test_token_is_not_visible(self):
        k, c = self.attached()
        for name in ("cmdline", "environ"):
            with open(f"/proc/{k.process.pid}/{name}", "rb") as f:
                self.assertNotIn(TOKEN.encode(), f.read())
        self.assertEqual(c.run("c", "import sys; sys.stdin.read()")["value"], "''")
        self.assertNotIn(TOKEN, k.log())

    # P-004
    def test_no_token(self):
        for token in (None, ""):
            k = self.kernel(token=token)
            self.assertEqual(k.wait(), 6)
            self.assertTrue(k.lock_is_free())

    # P-004: the token line has a bound
    def test_endless_token(self):
        self.assertEqual(self.kernel(token="a" * 300).wait(), 6)

    # P-004: a second process for the same directory exits 5 and leaves the first alone
    def test_lock(self):
        k, c = self.attached()
        self.assertFalse(k.lock_is_free())
        second = self.kernel(directory=k.dir)
        self.assertEqual(second.wait(), 5)
        self.assertEqual(c.run("c", "1+1")["value"], "2")

    # P-004: after a kill the lock is free and the same directory can be used again, old socket and all
    def test_again_in_the_same_directory(self):
        k, c = self.attached()
        os.kill(k.process.pid, signal.SIGKILL)
        k.wait()
        self.assertTrue(k.lock_is_free())
        self.assertTrue(os.path.exists(os.path.join(k.dir, "kernel.sock")))
        again = self.kernel(directory=k.dir).listening()
        self.assertEqual(again.attach().run("c", "1+1")["value"], "2")

    # P-004
    def test_no_socket(self):
        root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, root)
        os.makedirs(os.path.join(root, "k1", "kernel.sock"))  # a directory cannot be replaced by a socket
        k = self.kernel(directory=os.path.join(root, "k1"))
        self.assertEqual(k.wait(), 3)
        self.assertIn("cannot listen", k.log())

    # P-118: bad arguments
    def test_usage(self):
        for arguments in ([], ["--run", "relative", "--bundle", "0f"], ["--run", "/nowhere/at/all", "--bundle", "0f"],
                          ["--run", "/tmp", "--other", "0f"]):
            p = subprocess.run([sys.executable, "-I", "-S", BUNDLE + "/soma_kernel.py", *arguments],
                               stdin=subprocess.DEVNULL, capture_output=True)
            self.assertEqual(p.returncode, 2, arguments)
            self.assertTrue(p.stderr.startswith(b"soma: "), p.stderr)

    # P-119: the executor's byte code and that of every other module is cached beside the sources
    def test_byte_code_is_cached(self):
        root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, root)
        bundle = os.path.join(root, "b")
        shutil.copytree(BUNDLE, bundle, ignore=shutil.ignore_patterns("tests", "__pycache__"))
        self.kernel(bundle=bundle).listening().attach().run("c", "1+1")
        cached = {n.split(".")[0] for n in os.listdir(os.path.join(bundle, "__pycache__"))}
        sources = {n[:-3] for n in os.listdir(bundle) if n.endswith(".py")}
        self.assertEqual(cached, sources - {"soma_kernel", "soma_complete"})
        stamp = os.stat(os.path.join(bundle, "__pycache__")).st_mtime_ns
        self.kernel(bundle=bundle).listening().attach().run("c", "1+1")
        self.assertEqual(os.stat(os.path.join(bundle, "__pycache__")).st_mtime_ns, stamp)

    # P-201: a workspace full of files named like modules breaks neither the start nor the standard library
    def test_hostile_workspace(self):
        root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, root)
        for name in ("random", "json", "asyncio", "socket", "site", "sitecustomize", "traceback", "soma_wire"):
            with open(os.path.join(root, name + ".py"), "w") as f:
                f.write("raise RuntimeError('the workspace shadows the standard library')\n")
        with open(os.path.join(root, "mine.py"), "w") as f:
            f.write("x = 42\n")
        k, c = self.attached(workspace=root)
        done = c.run("c", "import random, json, sys, traceback, mine\n(mine.x, json.dumps(1), sys.path[-1])")
        self.assertEqual(done.get("value"), repr((42, "1", os.path.realpath(root))), done)
        self.assertIn("ZeroDivisionError", c.run("d", "1/0")["error"]["traceback"])

    # P-201: packages that `site` would have found are found
    def test_site_paths(self):
        expected = subprocess.run([sys.executable, "-c", "import site; print(site.getsitepackages())"],
                                  capture_output=True, text=True, check=True).stdout.strip()
        _, c = self.attached()
        done = c.run("c", f"import sys, os\n[p for p in {expected} if os.path.isdir(p) and p not in sys.path]")
        self.assertEqual(done["value"], "[]")


    # P-201: the interpreter of a virtual environment brings that environment's packages
    def test_virtual_environment(self):
        root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, root)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True)
        lib = subprocess.run([root + "/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                             capture_output=True, text=True, check=True).stdout.strip()
        with open(os.path.join(lib, "only_here.py"), "w") as f:
            f.write("x = 1\n")
        _, c = self.attached(python=root + "/bin/python")
        self.assertEqual(c.run("c", "import only_here, sys; (only_here.x, sys.prefix)").get("value"), repr((1, root)))


class Failure(KernelCase):
    def broken(self, name, old, new):
        root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, root)
        bundle = os.path.join(root, "b")
        shutil.copytree(BUNDLE, bundle, ignore=shutil.ignore_patterns("tests", "__pycache__"))
        path = os.path.join(bundle, name)
        with open(path) as f:
            text = f.read()
        self.assertIn(old, text)
        with open(path, "w") as f:
            f.write(text.replace(old, new, 1))
        return self.kernel(bundle=bundle)

    # P-107: a start that fails after the socket stands is told over the link and in the log
    def test_startup_error(self):
        k = self.broken("soma_process.py", "    import site\n", "    raise OSError('no site today')\n").listening()
        c = k.attach()
        self.assertIn("no site today", c.frame_of("startup_error")["error"])
        self.assertEqual(k.wait(), 1)
        self.assertIn("OSError: no site today", k.log())

    # P-003, P-107: one that fails before leaves its traceback in kernel.log
    def test_early_error(self):
        k = self.broken("soma_link.py", "import select\n", "import no_such_module\n")
        self.assertEqual(k.wait(), 1)
        self.assertIn("No module named 'no_such_module'", k.log())

    # P-003
    def test_signals_are_noticed(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            k, _ = self.attached()
            os.kill(k.process.pid, number)
            self.assertEqual(k.wait(), -number)
            self.assertIn(f"received {number.name}", k.log())

    # P-003
    def test_fatal_error_is_noticed(self):
        k, c = self.attached()
        c.execute("c", "import ctypes; ctypes.string_at(0)")
        self.assertEqual(k.wait(), -signal.SIGSEGV)
        self.assertIn("Fatal Python error: Segmentation fault", k.log())


class Children(KernelCase):
    # P-004: a forked child keeps neither the lock nor the socket, and its print is the cell's
    def test_forked_child(self):
        k, c = self.attached()
        done = c.run("c", "import os\nr, w = os.pipe()\nready, tell = os.pipe()\npid = os.fork()\n"
                          "if pid == 0:\n    os.close(w)\n    print('from the child')\n    os.write(tell, b'x')\n"
                          "    os.read(r, 1)\n    os._exit(0)\nos.read(ready, 1)\n"
                          "import asyncio\nloop = asyncio.get_running_loop()\n"
                          "(pid, [os.fstat(s.fileno()).st_ino for s in (loop._ssock, loop._csock)])")
        child, wake_up = eval(done["value"])
        self.assertIn("from the child", done["output"]["head"])
        links = [os.readlink(f"/proc/{child}/fd/{fd}") for fd in os.listdir(f"/proc/{child}/fd")]
        self.assertEqual([x for x in links if "socket:" in x], [f"socket:[{n}]" for n in wake_up])
        self.assertFalse([x for x in links if x.endswith("/lock")], links)
        os.kill(k.process.pid, signal.SIGKILL)
        k.wait()
        self.assertTrue(k.lock_is_free())
        with self.assertRaises(ConnectionRefusedError):
            Connection(k)

    # P-201: a child that comes back from the cell ends instead of becoming a second kernel
    def test_child_that_returns(self):
        _, c = self.attached()
        done = c.run("c", "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\npid != 0")
        self.assertEqual(done["value"], "True")
        self.assertEqual(c.run("d", "1+1")["value"], "2")

    # P-011: os._exit in a cell ends the connection between units
    def test_os_exit(self):
        k, c = self.attached()
        c.execute("c", "print('x' * 100000, flush=True)\nimport os; os._exit(7)")
        with self.assertRaises(Closed):
            c.done("c")
        self.assertEqual(k.wait(), 7)
