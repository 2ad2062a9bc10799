"""Completion of names and attributes. Runs no code of a person: values are found where they lie, properties are not asked."""
import keyword
import re
from types import ModuleType

from soma_wire import NAMES

_PATH = re.compile(r"((?:[^\W\d]\w*\s*\.\s*)*)([^\W\d]\w*)?\Z")
_NOTHING = object()


def complete(text, cursor, names):
    """(names, start): what can stand in text from start to cursor (characters), at most 200. ValueError for a bad cursor.

    For an empty text these are the names that the cells have made themselves.
    """
    if not 0 <= cursor <= len(text):
        raise ValueError(f"cursor {cursor} is not within the text of {len(text)} characters")
    if not text:
        return sorted(n for n in list(names.namespace) if type(n) is str and not n.startswith("_"))[:NAMES], 0
    line = text[:cursor].rpartition("\n")[2]
    found = _PATH.search(line)
    path, begun = found.group(1), found.group(2) or ""
    start = cursor - len(begun)
    before = line[:found.start()].rstrip()
    if not path and not begun or before.endswith(".") or (before[-1:].isalnum() and not line[:found.start()].endswith(" ")):
        return [], start
    space = {**names.known(), **names.namespace}
    if not path:
        candidates = [*space, *keyword.kwlist]
    else:
        parts = [part.strip() for part in path.split(".")[:-1]]
        value = space.get(parts[0], _NOTHING)
        for part in parts[1:]:
            value = _attribute(value, part)
        candidates = [] if value is _NOTHING else _attributes(value)
    kept = {n for n in candidates if type(n) is str and n.startswith(begun) and n.isidentifier()
            and (begun.startswith("_") or not n.startswith("_"))}
    return sorted(kept)[:NAMES], start


def _mro(cls):
    return type.__getattribute__(cls, "__mro__")


def _is(value, cls):
    """isinstance() that asks nobody."""
    return cls in _mro(type(value))


def _own(value):
    """The value's own attributes, or {}: read past what its class may have put in the way."""
    base = ModuleType if _is(value, ModuleType) else type if _is(value, type) else object
    try:
        found = base.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if _is(found, dict) or base is type else {}


def _classes(value):
    """The classes where attributes of a value are found after its own; a class has those of its bases."""
    return (*_mro(value), *_mro(type(value))) if _is(value, type) else _mro(type(value))


def _attributes(value):
    return {*_own(value), *(name for cls in _classes(value) for name in list(_own(cls)))}


def _attribute(value, name):
    if value is _NOTHING:
        return _NOTHING
    if not _is(value, type) and name in _own(value):
        return _own(value)[name]
    for cls in _classes(value):
        found = _own(cls).get(name, _NOTHING)
        if found is not _NOTHING:
            asked = any("__get__" in _own(c) for c in _mro(type(found)))
            plain = callable(found) and not any(_is(found, c) for c in (staticmethod, classmethod, property))
            return found if plain or not asked else _NOTHING
    return _NOTHING
