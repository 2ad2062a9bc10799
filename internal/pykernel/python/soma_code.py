"""The code of a cell: compiled, run, its value and its errors as text. Keeps nothing of what it ran.
"""
import linecache
import warnings
from _ast import Expr, Expression, PyCF_ALLOW_TOP_LEVEL_AWAIT, PyCF_ONLY_AST
from sys import getrefcount
from types import CoroutineType

import soma_output
from soma_names import LockedName, refusal
from soma_syntax import study
from soma_wire import MESSAGE, TRACEBACK, VALUE

FILE = "<cell>"
_PREFIX = "<cell "
_COROUTINE = 0x80
_SOURCES_KEPT = 256
_HERE = __file__.rpartition("/")[0] + "/"
_SHOWN = {"soma_host.py"}  # kernel files that a person may see as the raiser

_sources = {}


def file_name(cell):
    """The file name of a cell's code objects; tracebacks show it as <cell>."""
    return f"{_PREFIX}{cell}>"


def is_cell_file(name):
    return name.startswith(_PREFIX)


def is_kernel_file(name):
    return name.startswith(_HERE)


def _remember(cell, source):
    name = file_name(cell)
    _sources[name] = None
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    while len(_sources) > _SOURCES_KEPT:
        old = next(iter(_sources))
        del _sources[old]
        linecache.cache.pop(old, None)


def compile_cell(cell, source, names, model=False):
    """(body, last, calls) of a cell: code objects, last is its final expression, either may be None; calls are the
    bindings that a model's cell calls. SyntaxError also where it assigns a locked name."""
    name = file_name(cell)
    _remember(cell, source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = compile(source, name, "exec", PyCF_ONLY_AST | PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
        except SyntaxError as e:
            if (e.text or "").lstrip()[:1] in ("!", "%") and "run" in names.locked:
                e.add_note("a cell is plain python; a shell command is: await run('command')")
            raise
        calls = []
        if model or any(locked in source for locked in names.locked):
            try:
                calls = study(tree, names.locked)
            except SyntaxError as e:
                e.filename, e.text = name, linecache.getline(name, e.lineno)
                raise
        last = None
        if tree.body and isinstance(tree.body[-1], Expr):
            last = Expression(tree.body.pop().value)
            last = compile(last, name, "eval", PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
        body = None
        if tree.body:
            body = compile(tree, name, "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
    return body, last, calls


async def run_code(body, last, names):
    """Run what compile_cell() gave; the value of its final expression itself. LockedName when it got past the lock."""
    value = None
    if body is not None:
        running = eval(body, names.namespace)
        if body.co_flags & _COROUTINE:
            await running
        _check(names)
    if last is not None:
        value = eval(last, names.namespace)
        if last.co_flags & _COROUTINE:
            value = await value
        _check(names)
    return value


def _check(names):
    spoiled = names.put_back()
    if spoiled is not None:
        raise LockedName(refusal(spoiled) + "; it was put back")


async def run_cell(cell, names):
    """Run a cell: its id, code and model say what; its calls are set. The bounded repr of its value, or None."""
    body, last, cell.calls = compile_cell(cell.id, cell.code, names, cell.model)
    names.put_back()  # what a task did between the cells is not this cell's doing
    if soma_output.deferred:
        soma_output.raise_deferred()
    value = await run_code(body, last, names)
    if value is None:
        return None
    text = repr(value)
    if type(value) is CoroutineType:
        text += " (it has not run: write await before the call)"
        if getrefcount(value) <= 2:
            value.close()  # nobody else can await it: no warning follows
    del value
    return bounded(text, VALUE)


def clean(text):
    """The text with lone surrogates escaped, so that it can be sent."""
    return text.encode("utf-8", "backslashreplace").decode()


def bounded(text, limit):
    """The text within limit bytes; a mark at its end says how much it was."""
    if len(text) * 4 <= limit:
        return clean(text)
    size = len(text) if text.isascii() else len(text.encode("utf-8", "backslashreplace"))
    if size <= limit:
        return clean(text)
    mark = f"… [cut, {size} bytes]"
    kept = text[:limit].encode("utf-8", "backslashreplace")[:limit - len(mark.encode())]
    return kept.decode("utf-8", "ignore") + mark


def _bounded_middle(text, limit):
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    mark = f"\n… [{len(data)} bytes, the middle is cut] …\n".encode()
    half = (limit - len(mark)) // 2
    return (data[:half] + mark + data[-half:]).decode("utf-8", "ignore")


def error_of(failure):
    """The error object of a done for an exception."""
    kind = type(failure)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(failure)
    except BaseException as e:
        message = f"<str() of the exception raised {type(e).__name__}>"
    if kind is TypeError and message.endswith("can't be used in 'await' expression"):
        failure.add_note("what was called has given its result already: leave the await away")
    if isinstance(failure, SyntaxError) and is_cell_file(failure.filename or ""):
        message = message.replace(failure.filename, FILE)
    return {"type": bounded(name, 1024), "message": bounded(message, MESSAGE), "traceback": traceback_of(failure)}


def traceback_of(failure):
    """The traceback of an exception: the person's frames, file <cell>, at most 64 KiB."""
    try:
        import traceback

        shown = traceback.TracebackException.from_exception(failure, compact=True)
        for part in _chain(shown):
            _cut_frames(part)
        return _bounded_middle("".join(shown.format()), TRACEBACK)
    except BaseException as e:  # an exception whose attributes or source lines raise
        return f"{type(failure).__name__} (its traceback cannot be shown: {type(e).__name__})\n"


def _chain(shown):
    waiting, seen = [shown], set()
    while waiting:
        part = waiting.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        waiting += [part.__cause__, part.__context__, *(getattr(part, "exceptions", None) or ())]


def _cut_frames(part):
    frames = part.stack
    last = len(frames) - 1
    kept = []
    for i, frame in enumerate(frames):
        name = frame.filename
        if is_kernel_file(name) and not (i == last and name[len(_HERE):] in _SHOWN):
            continue
        if is_cell_file(name):
            frame.filename = FILE
        kept.append(frame)
    frames[:] = kept
    if is_cell_file(getattr(part, "filename", None) or ""):  # a SyntaxError's own place
        part.filename = FILE
