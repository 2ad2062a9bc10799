"""What cells can do with run() and jobs."""
import os

from room import RoomCase


class Handles(RoomCase):
    # P-125: run() gives a handle at once; awaiting it gives the same handle, whose repr is what a model needs to see
    def test_handle(self):
        done = self.cell("j = run('echo one; echo two >&2; exit 3', env={'A': 'x'})\nbefore = (j.exit_code, j.id)\nawait j")
        first, *rest = done["value"].split("\n")
        self.assertRegex(first, r"^<job j1 exit_code=3, ran \d+\.\d s, 8 bytes of output: echo one; echo two >&2; exit 3>$")
        self.assertEqual(rest, ["one", "two"])
        self.assertEqual(self.ok("before"), (None, "j1"))
        self.assertEqual(self.ok("j.poll(), j.exit_code, j.head(3), j.tail(lines=1), j.read(), j.timed_out, await j is j"),
                         (3, 3, "one", "two\n", "one\ntwo\n", False, True))

    # P-125: what a cell may give: arguments without a shell, folder, environment, input
    def test_options(self):
        self.ok("os.makedirs('sub')\nwith open('in.txt', 'w') as f: f.write('from a file')\nfrom pathlib import Path")
        for code, want in (
                ("run(['printf', '%s', 'a b; $HOME'])", "a b; $HOME"),
                ("run('pwd', cwd='sub')", os.path.join(self.k.workspace, "sub") + "\n"),
                ("run('echo $A$B', env={'A': 'x', 'B': None})", "x\n"),
                ("run('cat', stdin='é')", "é"),
                ("run('cat', stdin=b'bytes')", "bytes"),
                ("run('cat', stdin=Path('in.txt'))", "from a file"),
                ("run('cat')", ""),
                ("run('[[ $- != *i* ]] && echo $0')", "/bin/bash\n"),
        ):
            with self.subTest(code):
                self.assertEqual(self.ok(f"j = await {code}\nj.read()"), want)
                self.assertEqual(self.ok("j.exit_code"), 0)

    # P-032, P-125: what makes no sense is refused before anything starts; a timeout is seconds, at most a day
    def test_refused(self):
        for code, kind, word in (
                ("run('')", "ValueError", "empty"), ("run([])", "ValueError", "empty"), ("run(3)", "TypeError", "int"),
                ("run('a\\0b')", "ValueError", "NUL"), ("run('true', timeout=0)", "ValueError", "86400"),
                ("run('true', timeout=86401)", "ValueError", "a day"), ("run('true', timeout='5')", "ValueError", "seconds"),
                ("run('true', timeout=float('nan'))", "ValueError", "seconds"),
                ("run('true', stdin=5)", "TypeError", "stdin"), ("run('true', stdin=True)", "TypeError", "stdin"),
                ("run('true', cwd='nowhere')", "NotADirectoryError", "nowhere"),
                ("run('true', env={'A=B': 'x'})", "ValueError", "A=B"), ("run('true', env={'A': 1})", "TypeError", "A"),
                ("run(['no-such-program'])", "FileNotFoundError", "without a shell"),
                ("run(['/etc/passwd'])", "PermissionError", "Permission denied"),
                ("run('x' * 3_000_000)", "OSError", "too long"),
                ("run('cat', stdin=__import__('pathlib').Path('.'))", "IsADirectoryError", "folder"),
                ("import asyncio\nawait asyncio.to_thread(run, 'true')", "RuntimeError", "main thread"),
                ("jobs['j1']", "KeyError", "no job j1"),
                ("run('true').stop(grace=-1)", "ValueError", "grace"),
        ):
            with self.subTest(code):
                self.fails(code, kind, word)
        self.assertEqual(self.ok("len(await asyncio.gather(run('true', timeout=86400)))"), 1)
        self.assertEqual([f["job"] for f in self.frames("job_start")], ["j1", "j2"])

    # P-125: who takes a handle for another library's, or a cell for a shell, is told what is here
    def test_other_names(self):
        for code, kind, word in (
                ("(await run('true')).stdout", "AttributeError", "job.read()"), ("run('true').returncode", "AttributeError", "job.exit_code"),
                ("run('true').nothing", "AttributeError", "no 'nothing'"), ("run('true', shell=True)", "TypeError", "run() got")):
            with self.subTest(code):
                self.fails(code, kind, word)
        self.assertEqual(self.ok("j = await run('true')\nhasattr(j, 'stdout'), getattr(j, 'x', 5)"), (False, 5))
        self.assertIn("await run('command')", self.cell("!ls")["error"]["traceback"])

    # P-208: an unsuccessful command never reports 0
    def test_exit_codes(self):
        for command, code in (("no-such-program-here", 127), ("/etc/passwd", 126), ("kill -SEGV $$", -11), ("exit 255", 255),
                              ("false &\nwait $!", 1), ("exec sh -c 'exit 5'", 5)):
            with self.subTest(command):
                self.assertEqual(self.ok(f"(await run({command!r})).exit_code"), code)
        self.assertIn("exit_code=-11 (SIGSEGV)", self.cell("await run('kill -SEGV $$')")["value"])

    # P-208: a cell that ignores SIGCHLD loses no exit code; one that waits for our child itself makes it unknown, not 0
    def test_exit_code_is_kept_or_unknown(self):
        self.assertEqual(self.ok("signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n(await run('exit 3')).exit_code"), 3)
        done = self.cell("j = run('exit 3')\nos.waitpid(j.pid, 0)\nawait j")
        self.assertIn("exit_code unknown", done["value"])
        self.assertIsNone(self.ok("j.exit_code"))
        self.assertNotIn("exit_code", self.end_of("j2"))

    # P-125: code that polls in a loop of its own, without letting ours run, gets there too
    def test_polling(self):
        self.assertEqual(self.ok("j = run('head -c 3000000 /dev/zero')\nwhile j.poll() is None: time.sleep(0.001)\nj.exit_code, j.size"),
                         (0, 3_000_000))
        self.assertEqual(self.ok("j = run('sleep 60')\na = await j.wait(0.05)\nb = j.poll()\nj.stop()\na, b, await j.wait(30)"),
                         (None, None, -15))

    # P-125: `jobs` has those that run and those that ended, the newest first
    def test_list(self):
        self.assertEqual(self.cell("jobs")["value"], "no jobs")
        self.ok("a = await run('exit 4')\nb = run('sleep 60', service=True)\nc = run('echo hello\\nsleep 60', timeout=50)")
        self.assertRegex(self.cell("jobs")["value"],
                         r"^j3  running, \d+\.\d s, \d bytes: echo hello\nj2  running, service, .*: sleep 60\nj1  exit_code=4, .*: exit 4$")
        self.assertEqual(self.ok("[j.id for j in jobs], len(jobs), jobs['j1'] is a, 'j2' in jobs, 'j9' in jobs"),
                         (["j3", "j2", "j1"], 3, True, True, False))
        self.assertRegex(self.cell("b")["value"], r"^<job j2 running for \d+\.\d s, 0 bytes of output so far: sleep 60>$")

    # P-130: a plugin's own job is in no list while it runs
    def test_internal(self):
        self.ok("j = api.jobs.start('sleep 600', listed=False)")
        self.assertEqual(self.cell("jobs")["value"], "no jobs")
        self.assertEqual(self.ok("j.state, len(jobs), j.id in jobs, api.jobs.of_cell(j.cell), api.jobs.rows()"), ("running", 0, False, [], []))
        self.ok("j.stop()\nawait j")

    # P-059, P-125: the end of a long output is shown, and how to read the rest
    def test_long_output(self):
        value = self.cell("await run('seq 100000')")["value"]
        self.assertLess(len(value), 5000)
        self.assertTrue(value.endswith("99999\n100000"), value[-30:])
        self.assertIn("bytes before this: job.read(offset=0, limit=65536), job.head(lines=20), job.save(path))", value)
        self.assertEqual(self.ok("j = jobs['j1']\np = j.read(offset=6, limit=8)\nq = j.read(offset=588_890)\n"
                                 "str(p), p.offset, p.next_offset, p.size, p.running, str(q), q.next_offset"),
                         ("4\n5\n6\n7\n", 6, 14, 588_895, False, "0000\n", None))
        self.assertEqual(self.ok("len(j.read())"), 588_895)


class Processes(RoomCase):
    # P-208: the job has ended when its own process has, though a child keeps the pipe; stopping ends that child too
    def test_child_keeps_the_pipe(self):
        self.ok("began = time.monotonic()\nj = await run('sleep 600 & echo $!; exit 4')\ntook = time.monotonic() - began")
        self.assertEqual(self.ok("j.exit_code, 0.9 < took < 5, state_of(int(j.read()))"), (4, True, "S"))
        self.assertIn("job.stop() ends them", self.cell("j")["value"])
        self.assertTrue(self.ok("await j.stop()\nawait until(lambda: state_of(int(j.read())) in ('', 'Z'))"))
        self.assertNotIn("job.stop()", self.cell("j")["value"])

    # P-208: what a child writes within the second after the end still belongs to the job
    def test_output_after_the_end(self):
        self.assertEqual(self.ok("j = await run('(sleep 0.2; echo late) & echo early')\nj.read()"), "early\nlate\n")

    # P-208: stopping ends the whole group, by force if it must, and once
    def test_stop(self):
        self.ok("j = run('sleep 600 & echo $!; wait')\nawait until(lambda: j.size)")
        self.assertEqual(self.ok("await j.stop()\nj.exit_code, await until(lambda: state_of(int(j.read())) in ('', 'Z'))"),
                         (-15, True))
        self.assertEqual(self.ok("await j.stop()\nawait j.stop()\nj.exit_code"), -15)
        self.ok("j = run('trap \"\" TERM; echo up; while :; do sleep 1; done')\nawait until(lambda: j.size)")
        self.assertEqual(self.ok("began = time.monotonic()\nj.stop(grace=0.3)\nawait j.stop()\nj.exit_code, 0.3 <= time.monotonic() - began < 5"),
                         (-9, True))
        # the leader goes at once, a child ignores the signal and has no pipe: it is ended all the same
        self.ok("j = run('(trap \"\" TERM; exec >/dev/null 2>&1; while :; do sleep 1; done) & echo $!; wait')\nawait until(lambda: j.size)")
        self.assertEqual(self.ok("await j.stop(grace=30)\nj.exit_code, await until(lambda: state_of(int(j.read())) in ('', 'Z'))"),
                         (-15, True))

    # P-208: the gentle signal goes to the whole group
    def test_stop_is_gentle(self):
        self.ok("j = run('(trap \"echo bye; exit 0\" TERM; echo up; while :; do sleep 0.01; done) & wait')\nawait until(lambda: j.size)")
        self.assertEqual(self.ok("await j.stop(grace=30)\nj.tail(lines=1), j.exit_code"), ("bye\n", -15))

    # P-032: at its timeout a job is stopped
    def test_timeout(self):
        value = self.cell("j = run('echo begun; sleep 600', timeout=0.3)\nawait j")["value"]
        self.assertRegex(value, r"^<job j1 exit_code=-15 \(SIGTERM\), timed out, ran .*\nbegun$")
        self.assertEqual(self.ok("j.timed_out, j.exit_code"), (True, -15))
        self.assertEqual(self.ok("(await run('echo x', timeout=0.5)).timed_out"), False)

    # P-032, P-042: a job outlives the cell that waits for it, be it interrupted or at its deadline
    def test_outlives_its_cell(self):
        self.c.execute("i", "a = run('sleep 600')\nprint('up', flush=True)\nawait a")
        self.c.printed("i", "up")
        self.c.frame("interrupt", cell="i")
        self.assertEqual(self.c.done("i")["status"], "interrupted")
        self.assertEqual(self.cell("b = run('sleep 600')\nawait b", timeout_ms=300)["status"], "timed_out")
        self.assertEqual(self.ok("a.poll(), b.poll(), state_of(a.pid), [j.id for j in jobs]"), (None, None, "S", ["j2", "j1"]))
        self.assertEqual(self.ok("a.stop(); b.stop()\n(await a).exit_code, (await b).exit_code"), (-15, -15))

    # P-042: an interrupt that comes while output of a job is taken ends the cell's code and not the job's callbacks
    def test_interrupt_spares_what_follows_a_job(self):
        self.ok("j = run('yes')")
        for i in range(5):
            self.c.execute(f"i{i}", "print('up', flush=True)\nwhile True: await asyncio.sleep(0)")
            self.c.printed(f"i{i}", "up")
            self.c.frame("interrupt", cell=f"i{i}")
            self.assertEqual(self.c.done(f"i{i}")["status"], "interrupted")
        self.assertEqual(self.ok("before = j.size\nawait until(lambda: j.size > before), (await j.stop()).exit_code"), (True, -15))
        self.assertEqual(self.ok("api.cell() is None, api.jobs.quiet(api.cell)"), (False, None))

    # P-125: a job starts with default signals, none blocked, with the machine's limits, the kernel's mark and no open file of it
    def test_clean_start(self):
        self.ok("""
            import resource
            signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, hard))
            j = await run('grep -E "^Sig(Blk|Ign)" /proc/self/status; ulimit -S -d; ls /proc/self/fd | wc -w; ps -o pgid= -p $$; echo $$; echo $SOMA_KERNEL', env={'SOMA_KERNEL': None})
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
            """)
        blocked, ignored, data, files, group, pid, mark = self.ok("j.read()").split("\n")[:7]
        self.assertEqual(mark, "k7")
        self.assertEqual((blocked, ignored), ("SigBlk:\t" + "0" * 16, "SigIgn:\t" + "0" * 16))
        self.assertEqual(data, self.ok("'unlimited' if hard == -1 else str(hard // 1024)"))
        self.assertEqual(int(files), 4)
        self.assertEqual(group.strip(), pid)
        self.assertEqual(self.ok("resource.getrlimit(resource.RLIMIT_DATA)[0], signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN"),
                         (1 << 30, True))

    # P-125: descriptors that a cell has closed are no trap
    def test_closed_streams(self):
        self.assertEqual(self.ok("os.close(0)\nj = await run('cat; echo out', stdin='in ')\nj.read()"), "in out\n")
        self.ok("os.close(1); os.close(2)\nj = run('sleep 0.1; wc -c', stdin=b'x' * 100_000)\nfds = j._out, j._handle, j._stdin._fd")
        self.assertGreater(min(self.ok("fds")), 2)
        self.assertEqual(self.ok("(await j).read(), j.exit_code"), ("100000\n", 0))


class Beside(RoomCase):
    # P-031, P-032: while a cell holds the loop a job's output is taken, so that it goes on, and its timeout ends it
    def test_cell_holds_the_loop(self):
        self.ok(r"""
            late = run('sleep 60', timeout=0.1)
            deaf = run("trap '' TERM; echo deaf; while :; do sleep 60; done")
            while 'deaf' not in deaf.tail(): await asyncio.sleep(0.01)
            j = run("head -c 1500000 /dev/zero | tr '\\0' x; touch written")
            None""")
        self.ok("while not os.path.exists('written'): pass")
        self.ok("while state_of(late.pid) not in ('Z', ''): pass")
        self.ok("deaf.stop(grace=0.1)\nwhile state_of(deaf.pid) not in ('Z', ''): pass")
        self.assertEqual(self.ok("await j\n(j.exit_code, j.size, j.read(1_499_990, 16))"), (0, 1_500_000, "x" * 10))
        self.assertEqual(self.ok("await late; await deaf\n(late.timed_out, late.exit_code, deaf.timed_out, deaf.exit_code)"),
                         (True, -15, False, -9))

    # P-202, P-208: an interrupt never falls between a process and its job: the daemon is told of all, and of their ends
    def test_interrupted_start(self):
        for i in range(5):
            self.c.execute(f"start{i}", "run('true'); print('on', flush=True)\nwhile True:\n    try: run('exec sleep 60').stop(0)\n"
                                        "    except RuntimeError: await asyncio.sleep(0.01)  # as many as may be run")
            self.c.printed(f"start{i}", "on")
            self.c.frame("interrupt", cell=f"start{i}")
            self.assertEqual(self.c.done(f"start{i}")["status"], "interrupted")
        self.ok("for j in jobs: j.stop(0)  # one may have been interrupted before its own")
        self.assertTrue(self.ok("await until(lambda: all(j.exit_code is not None for j in jobs))"))
        started = {f["job"] for f in self.frames("job_start")}
        self.assertTrue(started)
        self.assertEqual(started, {f["job"] for f in self.frames("job")})
        self.assertEqual(self.ok("open(f'/proc/self/task/{os.getpid()}/children').read()"), "")


class Streams(RoomCase):
    # P-055, P-056: bytes come out as they came in
    def test_binary(self):
        self.ok("data = bytes(range(256)) * 5000\nj = await run('cat', stdin=data)\npath = j.save('copy.bin')")
        self.assertEqual(self.ok("path == os.path.abspath('copy.bin'), open(path, 'rb').read() == data, j.size"), (True, True, 1_280_000))
        self.assertEqual(self.ok("j = await run(['printf', r'\\303\\050x'])\nj.read()"), "\ufffd(x")

    # P-058, P-060: previews and whole files are exact or refused, and a refusal leaves the file that was there
    def test_refused_output(self):
        self.ok("j = run('seq 100000; sleep 600')\nawait until(lambda: j.size == 588_895)\nfrom pathlib import Path\nPath('f').write_text('old')")
        self.assertEqual(self.ok("j.head(3), j.head(lines=2), j.tail(2, lines=1), j.head(0), j.tail(lines=0)"),
                         ("1\n2", "1\n2\n", "100000\n", "", ""))
        for code in ("j.head(65537)", "j.tail(lines=65537)", "j.head(lines=50000)", "j.tail(-1)"):
            self.fails(code, "ValueError", "job.read(", "job.save(path)")
        self.fails("j.save('f')", "ValueError", "still runs")
        self.fails("j.read()", "ValueError", "still runs")
        self.fails("j.read(0, 3)", "ValueError", "4 to 65536")
        self.ok("await j.stop()\nbig = await run('seq 300000')\nos.unlink(big._capture.spill_note()['path'])")
        self.fails("big.save('f')", "soma_capture.OutputLost", "missing")
        self.assertEqual(self.ok("Path('f').read_text(), sorted(os.listdir('.')), j.save('f') == os.path.abspath('f'), os.path.getsize('f')"),
                         ("old", ["f"], True, 588_895))

    # P-056: a pipe gives all bytes from the first on, early or late, as long as they are kept
    def test_pipe(self):
        self.assertEqual(self.ok("j = run('printf é; sleep 0.1; seq 3')\nawait until(lambda: j.size)\nk = j.pipe('cat', '-n')\n(await k).read()"),
                         "     1\té1\n     2\t2\n     3\t3\n")
        self.assertEqual(self.ok("(await j.pipe('grep -c .')).read(), j.exit_code"), ("3\n", 0))
        self.ok("big = await run('seq 1000000')")   # on disk only, whole
        self.assertEqual(self.ok("(await big.pipe('tail -n 1')).read()"), "1000000\n")
        self.fails("j = run('seq 1000000; sleep 600')\nawait until(lambda: j.size > 2_000_000)\nj.pipe('cat')", "soma_capture.OutputLost", "pipe before")
        self.fails("j.pipe('cat', stdin='x')", "TypeError", "stdin")
        self.ok("await j.stop()")

    # P-125: .pipe("tee", path) is the way past what is kept; save refuses to write a part
    def test_more_than_is_kept(self):
        self.ok("j = run('head -c 20000000 /dev/zero')\nt = j.pipe('tee', 'all.bin')\nawait j\nawait t")
        self.assertEqual(self.ok("j.size, os.path.getsize('all.bin'), t.exit_code"), (20_000_000, 20_000_000, 0))
        self.fails("j.save('part.bin')", "soma_capture.OutputLost", "kept")
        self.fails("j.read()", "ValueError", "20000000 bytes")
        self.assertEqual(self.ok("os.path.exists('part.bin')"), False)

    # P-208: a pipe that is slower than the job loses nothing and holds little; one that ends early holds nothing up
    def test_slow_pipe(self):
        self.assertEqual(self.ok("""
            j = run('head -c 3000000 /dev/zero')
            k = j.pipe("while n=$(head -c 100000 | wc -c); [ $n -gt 0 ]; do t=$((t + n)); sleep 0.01; done; echo $t")
            (await k).read()"""), "3000000\n")
        self.assertEqual(self.ok("j = run('head -c 560000 /dev/zero')\nk = j.pipe('sleep 1.5; wc -c')\n(await k).read(), j.size"), ("560000\n", 560_000))
        self.assertTrue(self.ok("j = run('yes')\nk = j.pipe('sleep 600')\nawait until(lambda: j.size > 300_000)\nawait asyncio.sleep(0.2)\n"
                                "j.size < 2_000_000 and j.stop() and k.stop() and True"))
        self.assertEqual(self.ok("j = run('head -c 1500000 /dev/zero')\nk = j.pipe('head -c 5')\n(await k).size, (await j).exit_code"), (5, 0))

    # P-125: input that nobody reads holds nothing up and leaves no descriptor
    def test_input_that_is_not_read(self):
        self.ok("before = len(os.listdir('/proc/self/fd'))\nbig = b'x' * 10_000_000")
        self.assertEqual(self.ok("(await run('exec sleep 0.05', stdin=big)).exit_code"), 0)
        self.assertEqual(self.ok("(await run('exec <&-; sleep 0.05; exit 2', stdin=big)).exit_code"), 2)
        self.assertTrue(self.ok("j = run('exec <&-; echo up; sleep 600', stdin=big)\nawait until(lambda: j.size and not j._stdin.waiting)"))
        self.ok("await j.stop()")
        self.assertEqual(self.ok("(await run('wc -c', stdin=big)).read()"), "10000000\n")
        self.assertEqual(self.ok("left = await run('sleep 600 <&0 >/dev/null 2>&1 & exit 4', stdin=big)\nleft.exit_code"), 4)
        self.ok("from pathlib import Path\nPath('in').write_bytes(big)")
        self.assertEqual(self.ok("(await run('wc -c', stdin=Path('in'))).read()"), "10000000\n")
        self.assertEqual(self.ok("len(os.listdir('/proc/self/fd')) - before"), 0)
        self.fails("run('cat', stdin=bytes(70 << 20))", "ValueError", "give its Path")

    # P-055: a job that writes without end neither holds up the loop nor grows the kernel
    def test_flood(self):
        lag, seen, grown = self.ok("""
            def rss():
                with open('/proc/self/statm') as f: return int(f.read().split()[1]) * 4096
            j = run('yes')
            await until(lambda: j.size > 40_000_000)
            before, start, worst = rss(), j.size, 0
            for _ in range(300):
                at = time.monotonic()
                await asyncio.sleep(0)
                worst = max(worst, time.monotonic() - at)
            await until(lambda: j.size > start + 40_000_000)
            got = j.size - start
            await j.stop()
            worst, got, rss() - before""")
        self.assertLess(lag, 0.25)
        self.assertGreater(seen, 40_000_000)
        self.assertLess(grown, 8 << 20)

    # P-125: at most 100 jobs run at once; the next is refused and the others go on
    def test_many(self):
        self.ok("js = [run('read x; echo $x', stdin=f'{i}') for i in range(100)]")
        self.assertEqual(self.ok("await asyncio.gather(*js)\nlen(jobs), {j.exit_code for j in js}, all(j.read() == f'{int(j.id[1:]) - 1}\\n' for j in jobs)"),
                         (64, {0}, True))
        self.fails("gone = next(j for j in js if j.id not in jobs)\ngone.read()", "soma_capture.OutputLost", "not kept any more")
        self.assertEqual(self.ok("alone = api.jobs.share()\njs = [run('sleep 600') for _ in range(100)]\nalone, api.jobs.share()"), (262144, 4096))
        self.fails("run('true')", "RuntimeError", "100 jobs run already")
        self.ok("for j in js: j.stop()\nawait asyncio.gather(*js)")
        self.assertEqual(self.ok("(await run('echo again')).read(), len(os.listdir('/proc/self/fd')) < 40"), ("again\n", True))

    # P-125: without descriptors a job says so, leaks none and the next one starts
    def test_no_descriptors(self):
        self.ok("import resource\nlimits = resource.getrlimit(resource.RLIMIT_NOFILE)\nbefore = len(os.listdir('/proc/self/fd'))")
        for spare in range(6):
            done = self.cell(f"resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir('/proc/self/fd'))) + {spare}, limits[1]))\n"
                             "try:\n    j = run('echo x', stdin='y')\nfinally:\n    resource.setrlimit(resource.RLIMIT_NOFILE, limits)\nawait j")
            if done["status"] == "error":
                self.assertEqual(done["error"]["type"], "OSError")
                self.assertIn("too many files are open", done["error"]["message"])
        self.assertEqual(self.ok("(await run('echo x')).read(), len(os.listdir('/proc/self/fd')) - before"), ("x\n", 0))
