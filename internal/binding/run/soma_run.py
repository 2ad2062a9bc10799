"""The names `run` and `jobs` of the cells: commands as OS processes that outlive their cell."""
from soma_jobs import Book, Jobs


def setup(api):
    book = api.jobs = Book(api)  # plugins start their own there, with listed=False

    def run(command, *, stdin=None, timeout=None, service=False, cwd=None, env=None):
        """Start a command as a job and return its handle at once; `await` it for its end.

        command: text for the shell, or a list: a program with its arguments. stdin: text, bytes or a Path (else empty).
        timeout: seconds, at most a day. service: its end wakes nobody. cwd: a folder. env: changes, None takes a name away.
        """
        if stdin is True:
            raise TypeError("stdin is text, bytes or a Path, not bool")
        return book.start(command, stdin=stdin, timeout=timeout, service=service, cwd=cwd, env=env)

    run.__qualname__ = "run"  # as errors name it
    api.provide("run", run)
    api.provide("jobs", Jobs(book))
    api.on_job_view(book.rows, book.page)
    api.on_job_stop(book.stop)
    api.on_cell_jobs(book.of_cell)
    api.holds(book.holds)
    api.on_watch(book.beside)
    api.on_cleanup(book.clean_up)
