"""The python kernel: boots, then runs the loop on the main thread until it is told or decides to end.

Threads: main (the asyncio loop and all cells), reader (soma_link), watch (soma_watch, only while cells run).
"""
import os
import sys
from _thread import get_ident
from collections import deque
from os import read, write
from time import monotonic, sleep

import soma_process as process
from soma_wire import ANSWERS

_NEVER_ATTACHED = 60.0   # seconds without a first attach
_END_SECONDS = 2.0       # from the decision to end
_CLEANUP_SECONDS = 2.0   # more, where bindings clean up
_STARTUP_SECONDS = 5.0   # to hand over a startup error
_FLUSH_SECONDS = 0.2
_LOOK_SECONDS = 1.0      # between two looks at the run directory
_MOMENT_SECONDS = 0.02   # a cell that ends within it is not watched
_TRIES = 3               # of a callback that raises


class Executor:
    """What the link tells, and when the process ends."""

    def __init__(self, place, bundle, loop, native, scale):
        from asyncio import Task, wait_for

        self._task, self._wait_for = Task, wait_for  # whatever a cell makes of the modules
        self._place = place
        self._loop = loop
        self._native = native
        self._scale = scale
        self._look_at = 0.0
        self._look_seconds = _LOOK_SECONDS / scale
        self._live_since = None
        self._leaving = None   # (exit status, deadline)
        self._inbox = deque()  # (callback, argument) for the loop
        self._tries = 0        # of the first of them
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        loop.add_reader(self._woken, self._take_inbox)
        self._reader = None    # the ident of the reader thread
        self._due = False      # it is to wake the loop
        self.cells = self.watch = self.calls = self.link = self.asks = self.api = self.rest = None
        self.ready = False
        self._clean = False    # the bindings have cleaned up
        self._identity = {"bundle": bundle, "pid": os.getpid(), "pgid": os.getpgid(0), "leader": process.start_time(),
                          "python": ".".join(map(str, sys.version_info[:3]))}

    # --- the link's events, on the reader thread ---

    def apply(self, frame):
        kind = frame["type"]
        if kind == "execute":
            if self._leaving is None:
                self.cells.execute(frame)
        elif kind == "reply":
            self.post(self.calls.answer, frame)
        elif kind == "interrupt":
            self.cells.interrupt(frame["cell"])
        elif kind == "shutdown":
            self.leave(process.ENDED)
        elif kind in ANSWERS:
            self.asks.take(frame)

    def hello_facts(self):
        live, finished = self.cells.names()
        return {**self._identity, **self.api.hello_facts(), "ready": self.ready, "cells": live, "finished": finished}

    def attached(self):
        self.calls.resend()

    def closing(self):
        return self._leaving is not None and self._leaving[0] == process.ENDED

    def unreachable(self):
        """Nobody can attach any more: nobody could end this process either."""
        process.open_log(self._place)  # a cell has closed descriptors that are not its own, perhaps all
        process.fail(process.FAILED, "descriptors of the kernel are closed: it cannot be reached any more")

    def tick(self):
        """Look at the clocks, then wake the loop if it has something to do; ms until the next look."""
        self._reader = get_ident()
        try:
            return self._look()
        finally:
            if self._due:
                self._due = False
                self._ring()

    def _look(self):
        now = monotonic()
        if self._leaving is not None:
            left = self._leaving[1] - now
            if left <= 0:
                os._exit(self._leaving[0])
            return int(left * 1000) + 1
        if now >= self._look_at:
            self._look_at = now + self._look_seconds
            if self._native.large():
                self.cells.drain()
            if self._place.gone():
                os._exit(process.ENDED)
            if self.ready:
                self.cells.rest(self.rest)
        wait = self.asks.tick()
        if self.cells.live and not self.watch.runs:
            if self._live_since is None:
                self._live_since = now
            elif now - self._live_since >= _MOMENT_SECONDS:
                self.watch.ensure()
            return int(_MOMENT_SECONDS * 1000)
        self._live_since = None
        if wait is not None:
            return int(wait * 1000)
        if self.link.attached() or self.cells.live or self.api.live_jobs():
            return int(self._look_seconds * 1000) + 1
        grace = _NEVER_ATTACHED if self.link.grace is None else self.link.grace
        left = grace / self._scale - (now - self.link.detached_at)
        if left <= 0:
            self.leave(process.ENDED)
            return 1
        return min(int(left * 1000), int(self._look_seconds * 1000)) + 1

    # --- the loop ---

    def post(self, callback, argument):
        """Run callback(argument) on the loop, in order; again if it was disturbed. Any thread."""
        self._inbox.append((callback, argument))
        if get_ident() == self._reader:
            self._due = True  # the last thing that it does before it waits again: the two do not fight for the interpreter
        else:
            self._ring()

    def _ring(self):
        try:
            write(self._wake, b"x")
        except BlockingIOError:
            pass
        except OSError:
            self.unreachable()

    def _take_inbox(self):
        try:
            read(self._woken, 4096)
        except BlockingIOError:
            pass
        try:
            while self._inbox:
                callback, argument = self._inbox[0]
                try:
                    callback(argument)
                except Exception as e:  # raised by a signal handler of a cell, or the callback is broken
                    self._tries += 1
                    if self._tries < _TRIES:
                        continue
                    self._loop.call_exception_handler({"message": f"{callback} has failed", "exception": e})
                self._tries = 0
                self._inbox.popleft()
        finally:
            self.kick()

    def kick(self):
        """Take the inbox once more if something is left in it. Any thread."""
        if self._inbox:
            self._ring()

    # --- ending ---

    def leave(self, status, seconds=_END_SECONDS):
        """End the process: interrupt what runs, let atexit run, all within some seconds."""
        if self._leaving is None:
            more = _CLEANUP_SECONDS if self.api.cleanups() else 0.0
            self._leaving = (status, monotonic() + seconds + more)
            self.cells.interrupt_all("shutdown")
            self.post(lambda _: self._task(self._clean_up(more), loop=self._loop), None)
            self.link.nudge()

    async def _clean_up(self, seconds):
        """Let the bindings end what they have begun; tell what they could not."""
        errors, until = [], monotonic() + seconds
        try:
            for handler in self.api.cleanups():
                try:
                    waiting = handler()
                    if waiting is not None:
                        await self._wait_for(waiting, max(until - monotonic(), 0))
                except BaseException as e:
                    errors.append(f"{getattr(handler, '__module__', '?')}: {type(e).__name__}: {e}"[:1024])
            if errors:
                self.api.send("cleanup", {"errors": errors})
        finally:
            self._clean = True
            self.stop_if_empty()

    def _may_end(self):
        return self._leaving is not None and self._clean and not self.cells.live

    def stop_if_empty(self):
        if self._may_end():
            self._loop.stop()

    def run(self):
        """Run the loop until it is time to end. What a person's callbacks and signal handlers raise ends only the
        round; the loop may then have lost one callback, so ours are taken from a list of our own."""
        while True:
            try:
                self.kick()
                self._loop.run_forever()
            except BaseException:
                self._check_loop()
                continue
            if self._may_end():
                return

    def _check_loop(self):
        """A loop whose descriptors are closed would fail for ever."""
        try:
            self._loop._selector.select(0)
        except (OSError, ValueError):
            self.unreachable()

    def finish(self):
        until = monotonic() + _FLUSH_SECONDS
        while not self.link.settled() and monotonic() < until:
            self.link.nudge()
            sleep(0.002)
        try:
            import atexit

            atexit._run_exitfuncs()
        finally:
            os._exit(self._leaving[0])

    def startup_failed(self, failure):
        """Hand the error to the daemon (and to kernel.log) and end with status 1."""
        import traceback
        import soma_wire

        text = "".join(traceback.format_exception(failure))
        os.write(2, text.encode("utf-8", "backslashreplace"))
        self.link.send(soma_wire.encode({"type": "startup_error", "error": text[-soma_wire.MESSAGE // 4:]}))
        until = monotonic() + _STARTUP_SECONDS
        while not self.link.acknowledged() and monotonic() < until:
            sleep(0.01)
        os._exit(process.FAILED)


def _scale():
    try:
        scale = float(os.environ.get("SOMA_TEST_TIME_SCALE", "1"))
    except ValueError:
        return 1.0
    return scale if scale > 0 else 1.0


def _in_children_forget(link, lock):
    """A forked child is no kernel: it must neither answer on the link nor keep the lock."""
    import signal
    import soma_output

    def forget():
        for fd in (lock, *link.descriptors()):
            try:
                os.close(fd)
            except OSError:
                pass
        soma_output.give_back()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    os.register_at_fork(after_in_child=forget)


def _set_up(modules, api):
    """Import each module of a binding and let it provide its names."""
    for name in modules:
        try:
            __import__(name).setup(api)
        except BaseException as e:
            e.add_note(f"while the module {name} was set up")
            raise


def main(argv):
    place, bundle, output, modules = process.arguments(argv)
    process.leave_the_starter()
    log = process.open_log(place)
    lock = process.hold_lock(place)
    token = process.read_token()
    listener = process.listen(place)
    process.announce()

    import asyncio

    import soma_api
    import soma_ask
    import soma_capture
    import soma_cells
    import soma_guard
    import soma_host
    import soma_link
    import soma_names
    import soma_output
    import soma_rest
    import soma_spill
    import soma_watch

    loop = asyncio.new_event_loop()
    scale = _scale()
    output = output or soma_spill.temporary()
    native = soma_output.Native(place.file("native"))
    channels = soma_capture.Channels(output)
    names = soma_names.Names()
    executor = Executor(place, bundle, loop, native, scale)
    link = executor.link = soma_link.Link(listener, place.id, token, scale, executor)
    calls = executor.calls = soma_host.install(link)
    asks = executor.asks = soma_ask.Asks(loop, executor.post, scale)
    api = executor.api = soma_api.Api(loop, executor.post, link, calls, asks, names, channels, os.getcwd(), place.path, output)
    cells = executor.cells = soma_cells.Cells(loop, executor.post, link, calls, native, place, names, channels, api)
    api.bind(cells)
    cells.on_empty = executor.stop_if_empty
    watch = executor.watch = soma_watch.Watch(cells, link, executor.kick, api.watched)
    rest = executor.rest = soma_rest.Rest(loop, link, api)
    _in_children_forget(link, lock)
    link.start()
    try:
        process.notice_death(log)
        process.add_site_paths()
        names.take_builtins()
        soma_output.install(native, watch.flush, watch.late)
        soma_guard.install(names)
        _set_up(modules, api)
        rest.baseline()
    except BaseException as e:
        executor.startup_failed(e)
    executor.ready = True
    link.send(b'{"type":"ready"}')
    if output is not None:
        soma_spill.prune_aside(output)
    executor.run()
    executor.finish()
