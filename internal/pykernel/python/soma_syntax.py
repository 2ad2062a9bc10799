"""What the syntax tree of a cell says before it runs: whether it assigns a locked name, and which bindings it calls.

Only names of the cell's own scope (the globals) are judged: locals of functions, classes, lambdas and comprehensions are
a person's own. `from soma import NAME` is allowed: it gives the same object.
"""
from _ast import (
    AST, AsyncFunctionDef, Attribute, Call, ClassDef, DictComp, ExceptHandler, FunctionDef, GeneratorExp, Global, Import,
    ImportFrom, Lambda, ListComp, Load, MatchAs, MatchMapping, MatchStar, Name, SetComp)

from soma_names import refusal
from soma_wire import CALLS

_FUNCTIONS = (FunctionDef, AsyncFunctionDef)
_COMPREHENSIONS = (ListComp, SetComp, DictComp, GeneratorExp)
_BINDERS = (ExceptHandler, MatchAs, MatchStar)


def study(tree, locked):
    """The sorted dotted names of locked bindings that a tree calls, at most 64. SyntaxError where it assigns one."""
    calls = set()
    waiting = [(tree, True)]  # (node, whether it stands in the scope of the globals)
    while waiting:
        node, outer = waiting.pop()
        kind = type(node)
        inner = None
        if kind is Name:
            if outer and node.id in locked and type(node.ctx) is not Load:
                raise _error(node, node.id)
            continue
        if kind is Call:
            name = _dotted(node.func, locked)
            if name is not None:
                calls.add(name)
        elif kind in _FUNCTIONS or kind is ClassDef:
            if outer and node.name in locked:
                raise _error(node, node.name)
            inner = ("body", "type_params")
        elif kind is Lambda:
            inner = ("body",)
        elif kind in _COMPREHENSIONS:
            waiting += [(part, outer) for part in _comprehension(node)]
            continue
        elif kind is Global:
            for name in node.names:
                if name in locked:
                    raise _error(node, name)
        elif kind is Import or kind is ImportFrom:
            if outer:
                _check_import(node, locked)
        elif kind in _BINDERS:
            if outer and node.name in locked:
                raise _error(node, node.name)
        elif kind is MatchMapping and outer and node.rest in locked:
            raise _error(node, node.rest)
        for field in node._fields:
            part = getattr(node, field, None)
            scope = outer and (inner is None or field not in inner)
            if isinstance(part, AST):
                waiting.append((part, scope))
            elif type(part) is list:
                waiting += [(p, scope) for p in part if isinstance(p, AST)]
    return sorted(calls)[:CALLS]


def _comprehension(node):
    """The parts of a comprehension that are evaluated, without its targets (which are its own)."""
    parts = [node.key, node.value] if type(node) is DictComp else [node.elt]
    for generator in node.generators:
        parts += [generator.iter, *generator.ifs]
    return parts


def _check_import(node, locked):
    ours = type(node) is ImportFrom and node.module == "soma" and not node.level
    for alias in node.names:
        name = alias.asname or alias.name.partition(".")[0]
        if name in locked and not (ours and alias.name == name):
            raise _error(node, name)


def _dotted(func, locked):
    parts = []
    while type(func) is Attribute:
        parts.append(func.attr)
        func = func.value
    if type(func) is not Name or func.id not in locked:
        return None
    return ".".join([func.id, *reversed(parts)])


def _error(node, name):
    error = SyntaxError(refusal(name))
    error.lineno, error.offset = node.lineno, node.col_offset + 1
    error.end_lineno, error.end_offset = node.end_lineno, node.end_col_offset + 1
    return error
