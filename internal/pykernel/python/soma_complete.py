"""Completion of names and attributes. Runs no code of a person: values are found where they lie, properties are not asked."""
import keyword
import re
from types import ModuleType

from soma_wire import NAMES

_PATH = re.compile(r"((?:[^\W\d]\w*\s*\.\s*)*)([^\W\d]\w*)?\Z")
_NOTHING = object()


def complete(text, cursor, names):
    """(names, start): what can stand in text from start to cursor (characters), at most 200. ValueError for a bad cursor."""
    if not 0 <= cursor <= len(text):
        raise ValueError(f"cursor {cursor} is not within the text of {len(text)} characters")
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


def _own(value):
    """The value's own attributes, or {}: read past what its class may have put in the way."""
    try:
        if isinstance(value, ModuleType):
            return ModuleType.__getattribute__(value, "__dict__")
        if type.__instancecheck__(type, value):
            return type.__getattribute__(value, "__dict__")
        found = object.__getattribute__(value, "__dict__")
        return found if type(found) is dict else {}
    except AttributeError:
        return {}


def _classes(value):
    """The classes where attributes of a value are found after its own; a class has those of its bases."""
    if type.__instancecheck__(type, value):
        return (*type.__getattribute__(value, "__mro__"), *type.__getattribute__(type(value), "__mro__"))
    return type.__getattribute__(type(value), "__mro__")


def _attributes(value):
    return {*_own(value), *(name for cls in _classes(value) for name in list(_own(cls)))}


def _attribute(value, name):
    if value is _NOTHING:
        return _NOTHING
    own = _own(value)
    if name in own and not type.__instancecheck__(type, value):
        return own[name]
    for cls in _classes(value):
        found = _own(cls).get(name, _NOTHING)
        if found is not _NOTHING:
            asked = any("__get__" in _own(c) for c in _classes_of_class(found))
            plain = callable(found) and not isinstance(found, (staticmethod, classmethod, property))
            return found if plain or not asked else _NOTHING
    return _NOTHING


def _classes_of_class(value):
    return type.__getattribute__(type(value), "__mro__")
