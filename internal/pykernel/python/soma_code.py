"""The code of a cell: compiled, run, its value and its errors as text. Keeps nothing of what it ran.
"""
import builtins
import linecache
import sys
import warnings
from _ast import Expr, Expression, PyCF_ALLOW_TOP_LEVEL_AWAIT, PyCF_ONLY_AST

import soma_output
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


def compile_cell(cell, source):
    """(body, last) code objects of a cell: last is its final expression; either may be None."""
    name = file_name(cell)
    _remember(cell, source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = compile(source, name, "exec", PyCF_ONLY_AST | PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
        last = None
        if tree.body and isinstance(tree.body[-1], Expr):
            last = Expression(tree.body.pop().value)
            last = compile(last, name, "eval", PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
        body = None
        if tree.body:
            body = compile(tree, name, "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
    return body, last


async def run_cell(cell, source, namespace):
    """Run a cell in the namespace; the bounded repr of its final expression, or None."""
    body, last = compile_cell(cell, source)
    if soma_output.deferred:
        soma_output.raise_deferred()
    if body is not None:
        running = eval(body, namespace)
        if body.co_flags & _COROUTINE:
            await running
    if last is None:
        return None
    value = eval(last, namespace)
    if last.co_flags & _COROUTINE:
        value = await value
    if value is None:
        return None
    text = repr(value)
    del value
    return bounded(text, VALUE)


def clean(text):
    """The text with lone surrogates escaped, so that it can be sent."""
    return text.encode("utf-8", "backslashreplace").decode()


def bounded(text, limit):
    """The text within limit bytes; a mark at its end says how much it was."""
    if len(text) * 4 <= limit:
        return clean(text)
    size = len(text.encode("utf-8", "backslashreplace"))
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
    return {"type": bounded(name, 1024), "message": bounded(message, MESSAGE), "traceback": traceback_of(failure)}


def traceback_of(failure):
    """The traceback of an exception: the person's frames, file <cell>, at most 64 KiB."""
    import traceback

    try:
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


def new_namespace():
    """The names of the cells: the dictionary of a fresh module that is `__main__`, so that pickle finds them."""
    module = type(sys)("__main__")
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    return module.__dict__
