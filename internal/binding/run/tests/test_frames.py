"""What the daemon is told of jobs and may ask about them."""
import os

from room import RoomCase


class Told(RoomCase):
    # P-046: whose start is told: process, group, its leader's start time, the command
    def test_start_and_end(self):
        self.ok("j = await run('echo hello; exit 3')\nk = run(['sh', '-c', 'sleep 600', 'a b'], service=True)")
        start, end = self.frames("job_start")[0], self.end_of("j1")
        self.assertEqual({k: start[k] for k in ("job", "command", "service", "cell")},
                         {"job": "j1", "command": "echo hello; exit 3", "service": False, "cell": "c2"})
        self.assertEqual((start["pid"], start["pgid"]), (start["pid"], start["pid"]))
        self.assertEqual({k: end[k] for k in ("job", "cell", "state", "exit_code", "timed_out", "bytes", "service", "command", "tail")},
                         {"job": "j1", "cell": "c2", "state": "exited", "exit_code": 3, "timed_out": False, "bytes": 6,
                          "service": False, "command": "echo hello; exit 3", "tail": "hello\n"})
        self.assertLessEqual(start["started_at"], end["ended_at"])
        second = self.frames("job_start")[1]
        self.assertEqual((second["command"], second["service"]), ("sh -c 'sleep 600' 'a b'", True))
        self.assertEqual(second["leader"], self.ok("open(f'/proc/{k.pid}/stat').read().rpartition(')')[2].split()[19]"))

    # P-046, P-123: the jobs that run are told again in each hello, so that an owner that has forgotten all converges
    def test_hello(self):
        self.ok("a = run('sleep 600')\nb = run('sleep 600')\nc = await run('true')")
        c = self.k.connect()
        hello = c.attach(ack=self.c.last)["hello"]
        self.assertEqual([f["job"] for f in hello["jobs"]], ["j1", "j2"])
        self.assertEqual(hello["jobs"][0]["pid"], self.frames("job_start")[0]["pid"])
        self.c = c
        self.ok("a.stop()\nawait a")
        d = self.k.connect()
        self.assertEqual([f["job"] for f in d.attach(ack=c.last)["hello"]["jobs"]], ["j2"])
        self.c = d

    # P-046: a job that a cell has awaited is told as ended before the cell is
    def test_order(self):
        self.ok("await run('true')")
        order = [v["frame"]["type"] for v in self.c.seen if v.get("frame", {}).get("type") in ("job_start", "job", "done")]
        self.assertEqual(order, ["done", "job_start", "job", "done"])

    # P-123: frames that were not acknowledged come again, unchanged
    def test_resent(self):
        self.k.hold_acks = True
        self.ok("j = run('exit 3')\nawait j.over()\nawait asyncio.sleep(0)")
        self.end_of("j1")
        first = [(v["seq"], v["frame"]) for v in self.c.seen if v.get("frame", {}).get("type") in ("job_start", "job")]
        self.k.hold_acks = False
        c = self.k.connect()
        c.attach(ack=0)
        c.frame_of("job")
        again = [(v["seq"], v["frame"]) for v in c.seen if v.get("frame", {}).get("type") in ("job_start", "job")]
        self.assertEqual(first, again)
        self.c = c

    # P-130: of a long command 4,096 characters are told, without looking at the rest
    def test_long_command(self):
        self.ok("a = await run('true ' + 'é' * 9000)\nb = await run(['true'] + ['x y'] * 20000)")
        commands = [f["command"] for f in self.frames("job_start")]
        self.assertEqual(commands[0], "true " + "é" * 4091)
        self.assertEqual((len(commands[1]), commands[1][:16]), (4096, "true 'x y' 'x y'"))

    # P-053: who ends unread is to wake somebody; not so who was awaited, is a service, or was stopped by code
    def test_wake(self):
        for code, wake, then in (
                ("j = run('exit 1')", True, "await j.over()"),
                ("j = run('exit 1')\nawait j", False, ""),
                ("j = run('exit 1')\nawait asyncio.gather(j, run('true'))", False, ""),
                ("j = run('exit 1')\nawait asyncio.wait_for(j, 9)", False, ""),
                ("j = run('exit 1')\nwhile j.poll() is None: pass", False, ""),
                ("j = run('exit 1', service=True)", False, "await j.over()"),
                ("j = run('sleep 600')\nj.stop()", False, "await j.over()"),
                ("j = run('sleep 600', timeout=0.1)", True, "await j.over()"),
                ("j = run('echo x; sleep 0.1')\nawait until(lambda: j.size)\nj.read(0)\nj.head(); j.tail(); repr(j)", True, "await j.over()"),
                ("j = run('exit 1')\nt = asyncio.create_task(j.over())", True, "await t"),
        ):
            with self.subTest(code):
                self.ok(code)
                name = self.ok("j.id")
                self.ok(then)
                self.assertEqual(self.end_of(name)["wake"], wake)

    # P-053: a waiting cell that is interrupted has not read the end, which comes later
    def test_wake_after_an_interrupted_wait(self):
        self.c.execute("i", "j = run('sleep 600')\nprint('up', flush=True)\nawait j")
        self.c.printed("i", "up")
        self.c.frame("interrupt", cell="i")
        self.c.done("i")
        self.ok("os.kill(j.pid, signal.SIGKILL)")
        end = self.end_of("j1")
        self.assertEqual((end["wake"], end["exit_code"]), (True, -9))

    # P-053: a result that is read after its end is told as seen, once; looking at lists is no reading
    def test_seen(self):
        for read in ("j.exit_code", "j.poll()", "j.read()", "j.tail()", "j.head()", "j.save('x')", "j", "await j", "await j.wait(1)",
                     "await j.pipe('cat')"):
            with self.subTest(read):
                self.ok("j = run('echo x')\nawait j.over()")
                name = self.ok("j.id")
                self.end_of(name)
                self.ok("str(jobs), len(jobs), jobs[j.id] and None, j.size, j.state")
                self.assertTrue(self.ask("job_list")["ok"])
                self.assertTrue(self.ask("job_read", job=name, limit=100)["ok"])
                self.assertNotIn(name, [n for f in self.frames("seen") for n in f["jobs"]])
                self.cell(read)
                self.cell(read)
                self.ask("job_list")
                self.assertEqual([n for f in self.frames("seen") for n in f["jobs"] if n == name], [name])

    # P-047: what plugins report of jobs that are no OS process of this machine, and what the next hello says of them
    def test_reported_jobs(self):
        self.ok("api.report_jobs('probe', [{'id': 'r1', 'command': 'far', 'service': False, 'started': 5},"
                " {'id': 'r2', 'command': 'away', 'service': True, 'started': 6}])")
        frame = self.frames("jobs")[-1]
        self.assertEqual((frame["live"], frame["awaited"], [i["id"] for i in frame["items"]]), (2, 1, ["r1", "r2"]))
        hello = self.k.connect().attach(ack=self.c.last)["hello"]
        self.assertEqual((hello["external"], hello["awaited_external"], hello["external_jobs"]), (2, 1, frame["items"]))


class Asked(RoomCase):
    # P-049: the book has what runs and the 64 newest that ended, the newest first
    def test_book(self):
        self.ok("live = run('sleep 600', service=True)\nfor i in range(70): await run(f'exit {i % 3}')")
        rows = self.ask("job_list")["jobs"]
        self.assertEqual([r["id"] for r in rows], [f"j{i}" for i in range(71, 7, -1)] + ["j1"])
        self.assertEqual({k: rows[0][k] for k in ("command", "state", "exit_code", "timed_out", "service", "bytes", "cell")},
                         {"command": "exit 0", "state": "exited", "exit_code": 0, "timed_out": False, "service": False, "bytes": 0, "cell": "c2"})
        self.assertLessEqual(rows[0]["started_at"], rows[0]["ended_at"])
        self.assertEqual((rows[-1]["state"], rows[-1]["service"]), ("running", True))
        self.assertNotIn("exit_code", rows[-1])
        self.assertNotIn("ended_at", rows[-1])
        self.assertEqual(self.ask("job_read", job="j2", limit=100)["code"], "job_not_found")

    # P-049: at most 100 rows
    def test_rows(self):
        self.ok("for i in range(50): await run('true')\njs = [run('sleep 600') for _ in range(80)]")
        rows = self.ask("job_list")["jobs"]
        self.assertEqual([r["id"] for r in rows], [f"j{i}" for i in range(130, 30, -1)])
        self.ok("for j in js: j.stop(0)\nawait asyncio.gather(*js)")

    # P-130: a plugin's own job has an owner for its group but is in no list and wakes nobody
    def test_internal(self):
        self.ok("j = api.jobs.start('echo x; exit 3', listed=False)\nawait j.over()")
        end = self.end_of("j1")
        self.assertEqual((self.frames("job_start")[0]["service"], end["service"], end["wake"], end["exit_code"]), (True, True, False, 3))
        self.assertEqual(self.ask("job_list")["jobs"], [])
        self.assertEqual(self.ask("job_read", job="j1", limit=100)["code"], "job_not_found")
        self.assertEqual(self.ok("len(jobs), j.read()"), (0, "x\n"))

    # P-050: pages by offset, the end without one
    def test_pages(self):
        self.ok("j = await run('seq 10000')")
        page = self.ask("job_read", job="j1", limit=4, offset=2)["page"]
        self.assertEqual(page, {"offset": 2, "next_offset": 6, "size": 48894, "running": False, "text": "2\n3\n"})
        self.assertTrue(self.ask("job_read", job="j1", limit=16384)["page"]["text"].endswith("9999\n10000\n"))
        self.assertEqual(self.ask("job_read", job="j1", limit=65536, offset=48894)["page"]["text"], "")
        for fields, code in (({"limit": 3}, "invalid"), ({"limit": 65537}, "invalid"), ({"limit": 4, "offset": -1}, "invalid"),
                             ({"limit": 4, "offset": 48895}, "invalid")):
            self.assertEqual(self.ask("job_read", job="j1", **fields)["code"], code, fields)
        self.assertEqual(self.ask("job_read", job="j7", limit=100)["code"], "job_not_found")

    # P-050: half a character of what still runs waits for the next page; read on from there, nothing is lost
    def test_half_a_character(self):
        self.ok("import os\nos.mkfifo('more')\nj = run(r\"printf 'a\\303'; cat more\")\nawait until(lambda: j.size == 2)")
        page = self.ask("job_read", job="j1", limit=100, offset=0)["page"]
        self.assertEqual((page["text"], page["next_offset"], page["running"]), ("a", 1, True))
        self.ok("with open('more', 'wb') as f: f.write(b'\\xa9!')\nawait j")
        page = self.ask("job_read", job="j1", limit=100, offset=1)["page"]
        self.assertEqual((page["text"], page["next_offset"], page["running"]), ("é!", 4, False))

    # P-050: what was not kept is said to be lost; the end can be read
    def test_lost(self):
        self.ok("j = await run('head -c 20000000 /dev/zero; echo end')")
        lost = self.ask("job_read", job="j1", limit=100, offset=17_000_000)
        self.assertEqual((lost["ok"], lost["code"]), (False, "output_lost"))
        self.assertIn("16777216", lost["error"])
        self.assertTrue(self.ask("job_read", job="j1", limit=100)["page"]["text"].endswith("end\n"))
        self.assertEqual(self.ask("job_read", job="j1", limit=100, offset=16_777_000)["page"]["next_offset"], 16_777_100)

    # P-050, P-051: a cell that holds the loop does not keep viewers from looking
    def test_view_beside_a_busy_cell(self):
        self.ok("j = run('echo up; sleep 600')\nawait until(lambda: j.size)")
        self.c.execute("busy", "while not os.path.exists('go'): pass")
        self.assertEqual([r["state"] for r in self.ask("job_list")["jobs"]], ["running"])
        self.assertEqual(self.ask("job_read", job="j1", limit=100)["page"]["text"], "up\n")
        with open(os.path.join(self.k.workspace, "go"), "w", encoding="utf-8"):
            pass
        self.c.done("busy")

    # P-025, P-052: a stop is answered once: when it has ended, or that it is not known; its owner is told of the end
    def test_stop(self):
        self.ok("j = run('trap \"\" TERM; echo up; while :; do sleep 1; done')\nk = await run('true')\nawait until(lambda: j.size)")
        answer = self.ask("job_stop", job="j1")
        self.assertEqual(answer, {"type": "job_stop", "id": answer["id"], "ok": True})
        end = self.end_of("j1")
        self.assertEqual((end["exit_code"], end["wake"]), (-9, True))
        self.assertTrue(self.ask("job_stop", job="j2")["ok"])
        self.assertEqual(self.ask("job_stop", job="j9")["code"], "job_not_found")
        self.ask("job_list")
        stops = self.frames("job_stop")
        self.assertEqual(len(stops), len({f["id"] for f in stops}))

    # P-043: which jobs a cell leaves running
    def test_of_a_cell(self):
        self.ok("a = run('sleep 600')\nb = run('sleep 600', service=True)\nc = await run('true')")
        self.ok("d = run('sleep 600')")
        self.assertEqual(self.ok("[(r['id'], r['command'], r['service']) for r in api.jobs.of_cell('c2')]"),
                         [("j1", "sleep 600", False), ("j2", "sleep 600", True)])


class Ending(RoomCase):
    # P-108: with the kernel all its jobs end, those too that ignore a signal and what outlived its job
    def test_shutdown(self):
        self.ends("""
            a = run('trap "" TERM; echo up; while :; do sleep 1; done')
            b = run('sleep 600')
            await until(lambda: a.size)
            a.pid, b.pid""")

    # P-053: their ends are no news of a job that has finished; one that had ended by itself is told
    def test_shutdown_tells_no_ends(self):
        self.ok("a = run('sleep 600')\nb = run('true')\nawait until(lambda: b.state == 'exited')")
        self.c.frame("shutdown")
        self.assertTrue(self.c.closed())
        self.k.wait()
        self.assertEqual([f["job"] for f in self.frames("job")], ["j2"])

    # P-108: and so does what has outlived its job
    def test_shutdown_ends_what_is_left(self):
        self.ends("c = await run('sleep 600 >/dev/null 2>&1 & echo $!')\n(int(c.read()),)")

    def ends(self, code):
        pids = self.ok(code)
        self.c.frame("shutdown")
        self.assertEqual(self.k.wait(), 0)
        for pid in pids:
            self.assertIn(state_of(pid), ("", "Z"))


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""
