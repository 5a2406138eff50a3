"""Small wrong changes to functions: what tests should notice. Pure."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import CodeType

__all__ = ["Mutant", "function_codes", "mutants_of", "mutated_code"]

Function = ast.FunctionDef | ast.AsyncFunctionDef

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
OPPOSITES = [
    ("min", "max"),
    ("any", "all"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("floor", "ceil"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
]
NAMES = {one: other for pair in OPPOSITES for one, other in (pair, pair[::-1])}


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes
    ----------
    path
        The module, relative to `src/gridref`.
    number
        Its place among the module's mutants.
    function
        Qualified name of the function of the module or class that holds the change.
    first_line
        Where that function's code starts: with its decorators.
    lines
        First and last line of what is changed.
    before, after
        The statement, or the head of a compound one, as `ast.unparse` writes it.
    """

    path: str
    number: int
    function: str
    first_line: int
    lines: tuple[int, int]
    before: str
    after: str


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    """All mutants of a module's functions.

    Messages are left alone (f-strings and what is raised), and so are annotations, defaults,
    docstrings, and what asserts what always holds: `assert`, and the `strict` of `zip`; also what
    nobody can tell: a ``copy=False``, and which negative number ``reshape`` gets.

    Parameters
    ----------
    path
        The module, relative to `src/gridref`.
    source
        Its text.
    """
    for number, site in enumerate(_sites(ast.parse(source))):
        before = _head(site.statement)
        kind, fields = type(site.node), dict(site.node.__dict__)
        site.change()
        after = _head(site.statement)
        site.node.__class__ = kind
        site.node.__dict__.clear()
        site.node.__dict__.update(fields)
        first, last = site.node.lineno, site.node.end_lineno
        yield Mutant(
            path,
            number,
            site.function,
            site.first_line,
            (first, first if hasattr(site.node, "body") else last or first),
            before,
            after,
        )


def mutated_code(mutant: Mutant, source: str, filename: str) -> CodeType | None:
    """The function with the change; None if that does not compile, or changes its closure."""
    key = (mutant.function, mutant.first_line)
    original = function_codes(compile(source, filename, "exec", dont_inherit=True))[key]
    tree = ast.parse(source)
    next(islice(_sites(tree), mutant.number, None)).change()
    try:
        code = function_codes(compile(tree, filename, "exec", dont_inherit=True))[key]
    except (SyntaxError, ValueError):
        return None
    return code if code.co_freevars == original.co_freevars else None


def function_codes(code: CodeType, prefix: str = "") -> dict[tuple[str, int], CodeType]:
    """The functions of a module and its classes, by qualified name and first line."""
    found = {}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            name = f"{prefix}{inner.co_name}"
            if inner.co_name.startswith("<generic parameters of "):
                found |= function_codes(inner, prefix)
            # Bodies of classes have no fast locals; functions have them.
            elif inner.co_flags & 0x2:
                found[name, inner.co_firstlineno] = inner
            else:
                found |= function_codes(inner, f"{name}.")
    return found


@dataclass(frozen=True)
class _Site:
    function: str
    first_line: int
    statement: ast.stmt
    node: ast.AST
    change: Callable[[], None]


def _sites(tree: ast.Module) -> Iterator[_Site]:
    for name, function in _functions(tree):
        if function.name in _SHOWN_ONLY:
            continue
        first_line = min([function.lineno, *(node.lineno for node in function.decorator_list)])
        for statement in _statements(function.body):
            for node, change in _changes(statement):
                yield _Site(name, first_line, statement, node, change)


_SHOWN_ONLY = ("__repr__", "_repr_html_")
"""Methods that people look at while they work, and nothing depends on."""


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Functions of a module and its classes; those inside functions belong to the outer one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.stmt):
            yield from _functions(node, prefix)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, field, []))
        for part in [*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]:
            yield from _statements(part.body)


def _head(statement: ast.stmt) -> str:
    """The text of a statement without the block below it."""
    lines = ast.unparse(statement).splitlines()
    return lines[0] if hasattr(statement, "body") else "\n".join(lines)


Change = tuple[ast.AST, Callable[[], None]]


def _changes(statement: ast.stmt) -> Iterator[Change]:
    """Changes of one statement, not of the statements inside it: a node, and what changes it."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Assert():
            return
        case ast.Raise():
            yield _deleted(statement)
            return
        case ast.Expr(value=ast.Constant()):
            return
        case ast.Expr() | ast.AugAssign() | ast.Continue() | ast.Break():
            yield _deleted(statement)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield _deleted(statement)
        case ast.Return(value=value) if not (value is None or _is_false(value)):
            yield _with(statement, value=ast.Constant(None))
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call() as test):
            yield _with(statement, test=ast.UnaryOp(ast.Not(), test))
    if isinstance(statement, ast.AugAssign) and type(statement.op) in OPERATORS:
        yield _with(statement, op=OPERATORS[type(statement.op)]())
    for node in _expressions(statement):
        yield from _of_expression(node)


def _expressions(node: ast.AST) -> Iterator[ast.expr | ast.Slice]:
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "ctx"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.stmt | ast.JoinedStr | ast.excepthandler | ast.match_case):
                continue
            if isinstance(child, ast.keyword) and ast.unparse(child) in _UNSEEN:
                continue
            if isinstance(child, ast.expr):
                yield child
            if isinstance(child, ast.AST) and not _is_unknown_length(child, node):
                yield from _expressions(child)


_UNSEEN = ("strict=True", "strict=False", "copy=False", "numthreads=1")
"""Arguments that assert what always holds, or only save time."""


def _is_unknown_length(node: ast.AST, parent: ast.AST) -> bool:
    """Whether it is the -1 of ``reshape(-1)``: numpy takes any negative number for it."""
    is_reshape = isinstance(parent, ast.Call) and ast.unparse(parent.func).endswith("reshape")
    return is_reshape and isinstance(node, ast.UnaryOp) and ast.unparse(node) == "-1"


def _of_expression(node: ast.expr) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=[op, *rest]):
            for other in COMPARISONS[type(op)]:
                yield _with(node, ops=[other(), *rest])
        case ast.BoolOp(op=op):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            yield _with(node, op=OPERATORS[type(op)]())
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub(), operand=operand):
            yield _becoming(node, operand)
        case ast.IfExp(body=body, orelse=orelse):
            yield _with(node, body=orelse, orelse=body)
        case ast.Constant(value=bool(value)):
            yield _with(node, value=not value)
        case ast.Constant(value=int(value)):
            yield _with(node, value=value + 1)
            yield _with(node, value=value - 1)
        case ast.Name(id=name) if name in NAMES:
            yield _with(node, id=NAMES[name])
        case ast.Attribute(attr=name) if name in NAMES:
            yield _with(node, attr=NAMES[name])
        case ast.Slice(lower=lower, upper=upper):
            if lower is not None:
                yield _with(node, lower=None)
            if upper is not None:
                yield _with(node, upper=None)


def _with(node: ast.AST, **fields: object) -> Change:
    def change() -> None:
        for name, value in fields.items():
            setattr(node, name, value)
        ast.fix_missing_locations(node)

    return node, change


def _becoming(node: ast.AST, other: ast.AST) -> Change:
    def change() -> None:
        node.__class__ = type(other)
        node.__dict__.update(other.__dict__)

    return node, change


def _deleted(statement: ast.stmt) -> Change:
    return _becoming(statement, ast.Pass())


def _is_false(node: ast.expr) -> bool:
    """Whether it is None, or is taken as None is."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)
