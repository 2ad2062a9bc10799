"""A binding of the tests: it sends what a test wants, and runs real process groups."""
import asyncio
import os


class Probe:
    def __init__(self, api):
        self.api = api
        self.stops = {}  # of jobs elsewhere: job -> what stopping it awaits
        api.on_job_view(self._rows, self._page)
        api.on_job_stop(self._stop)

    def start(self, job, *argv, service=False, **changes):
        import subprocess
        import time

        with self.api.spawning():
            p = subprocess.Popen(argv, start_new_session=True, stdin=subprocess.DEVNULL)
        with open(f"/proc/{p.pid}/stat") as f:
            leader = f.read().rpartition(")")[2].split()[19]
        frame = {"job": job, "pid": p.pid, "pgid": p.pid, "leader": leader, "command": " ".join(argv), "service": service,
                 "started_at": int(time.time() * 1000), **changes}
        self.api.send("job_start", frame)
        return p

    def end(self, job, p=None, wake=True, service=False, command="", **changes):
        import time

        code = p.wait() if p else 0
        frame = {"job": job, "state": "exited", "exit_code": code, "timed_out": False, "ended_at": int(time.time() * 1000),
                 "bytes": 3, "service": service, "command": command, "wake": wake, "tail": "end", **changes}
        self.api.send("job", frame)

    def watch(self, job, p, **changes):
        """Tell of the end of a job when it ends, whatever the cells do."""
        async def wait():
            while p.poll() is None:
                await asyncio.sleep(0.01)
            self.end(job, p, **changes)
        with self.api.supervising():
            self.task = asyncio.get_running_loop().create_task(wait())

    def _rows(self):
        return [{"id": "p1", "command": "probe", "state": "running", "timed_out": False, "service": False, "started_at": 1, "bytes": 4}]

    def _page(self, job, offset, limit):
        if job == "p1":
            return {"offset": offset or 0, "next_offset": 4, "size": 4, "running": True, "text": "page"[:limit]}

    def _stop(self, job):
        return self.stops.get(job)


def setup(api):
    api.provide("probe", Probe(api))
