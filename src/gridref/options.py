"""Options of public calls: one check of their names and values for every call and dataclass."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, TypeAliasType, Union, get_args, get_origin, get_type_hints

from gridref.errors import InvalidRequestError, Message, Option


def near_names(name: str, known: Collection[str]) -> str:
    """What a name may have been meant for: ``": did you mean 'join'?"``, or all known names."""
    return did_you_mean(name, known) or f"; there are {', '.join(sorted(known))}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Up to three names that are like one that is unknown; empty if none is."""
    near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)
    return f": did you mean {' or '.join(map(repr, near))}?" if near else ""


@functools.cache
def choices_of(options: Any) -> dict[str, tuple[str, ...]]:
    """The values that the fields of a dataclass can have that are a ``Literal`` or an enum."""
    choices = {name: _members(hint) for name, hint in _hints(options).items()}
    return {name: members for name, members in choices.items() if members}


def check_choices(options: Any) -> None:
    """Check each field of a frozen dataclass that is one of some choices; texts become members.

    Raises
    ------
    InvalidRequestError
        Naming the choices.
    """
    kind: Any = type(options)
    for name, choices in choices_of(kind).items():
        value = getattr(options, name)
        check_choice(name, value, choices)
        object.__setattr__(options, name, choices[choices.index(value)])


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Check that an option is one of some texts."""
    if isinstance(value, str) and value in choices:
        return
    allowed = ", ".join(repr(str(choice)) for choice in choices)
    near = difflib.get_close_matches(str(value), choices, n=1)
    hint = f": did you mean {str(near[0])!r}?" if near else ""
    raise InvalidRequestError(Message(Option(name, value), f" is none of {allowed}{hint}"))


def bytes_of(name: str, value: int | str) -> int:
    """A size in bytes: a number, or a text like ``"2GB"``, ``"500 MB"`` or ``"1.5GiB"``."""
    found = _SIZE.fullmatch(str(value))
    n_bytes = 0
    if found is not None:
        factor = (1024 if found[3] else 1000) ** " kmgt".index((found[2] or " ").lower())
        n_bytes = int(float(found[1]) * factor)
    if n_bytes < 1:
        raise InvalidRequestError(
            Message(Option(name, value), " is not a size: write 500MB, 2GB or 2GiB")
        )
    return n_bytes


_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt])?(i)?b?\s*", re.IGNORECASE)


def check_type(name: str, value: Any, hint: Any) -> None:
    """Check that an option is of the type that its annotation says, as far as that is plain.

    Plain are texts, numbers, truth values, None, and lists and mappings of these.
    """
    if not _is_of(value, hint):
        wanted = _any_of(hint)
        shown = repr(value) if len(repr(value)) <= _SHOWN else f"{repr(value)[:_SHOWN]}..."
        raise InvalidRequestError(f"{name} must be {wanted}, got {shown}")


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The types of a union; of any other type, itself."""
    if isinstance(hint, TypeAliasType):
        return _alternatives(hint.__value__)
    if get_origin(hint) in (Union, UnionType):
        return tuple(each for one in get_args(hint) for each in _alternatives(one))
    return (hint,)


def _is_of(value: Any, hint: Any) -> bool:
    kind: Any = type(value)
    if kind in _PLAIN:
        return _are_of(kind, hint)
    return any(_is_one(value, each) for each in _alternatives(hint))


@functools.cache
def _are_of(kind: type, hint: Any) -> bool:
    """Whether values of a plain type are of another; told once, as options are checked often."""
    return any(_is_one(kind(), each) for each in _alternatives(hint))


def _is_one(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; what is not plain is left to those who take it."""
    if hint in _PLAIN:
        is_truth = isinstance(value, bool) or type(value).__name__ == "bool"
        return is_truth if hint is bool else not is_truth and isinstance(value, _PLAIN[hint])
    kind, members = get_origin(hint) or hint, get_args(hint)
    if kind is Literal:
        return isinstance(value, str)
    if is_dataclass(kind):
        return isinstance(value, kind)  # type: ignore[arg-type]
    if kind is os.PathLike:
        return isinstance(value, os.PathLike)
    if kind is Iterable:
        return isinstance(value, Iterable) and not isinstance(value, str | bytes)
    if kind is Sequence:
        listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return listed and all(_is_of(each, members[0]) for each in value)
    if kind is Mapping:
        return isinstance(value, Mapping) and all(
            _is_of(name, members[0]) and _is_of(each, members[1]) for name, each in value.items()
        )
    if kind is Callable and members[0] is not ...:
        return callable(value)
    return True


def _any_of(hint: Any) -> str:
    return " or ".join(dict.fromkeys(_said(each) for each in _alternatives(hint)))


def _said(hint: Any) -> str:
    kind, members = get_origin(hint) or hint, get_args(hint)
    if kind is Literal:
        return " or ".join(map(repr, members))
    if is_dataclass(kind):
        return f"{kind.__name__}(...)"  # type: ignore[union-attr]
    if kind in (Sequence, Iterable):
        several = len(_alternatives(members[0])) > 1
        return f"a list of {'those' if several else _MANY.get(members[0], members[0].__name__)}"
    if kind is Mapping:
        return "a mapping" if members[1] is Any else f"a mapping (each value {_any_of(members[1])})"
    if kind is Callable:
        return "a function"
    return _IN_WORDS.get(kind, getattr(kind, "__name__", str(kind)))


_MANY: Mapping[Any, str] = {str: "strings"}
_IN_WORDS: Mapping[Any, str] = {
    str: "a string",
    bool: "True or False",
    int: "an integer",
    float: "a number",
    type(None): "None",
}
_SHOWN = 100
"""Characters of a value that an error shows."""
_PLAIN: Mapping[Any, type] = {
    str: str,
    bool: bool,
    int: Integral,
    float: Real,
    type(None): type(None),
}
"""What values of plain types are instances of: numpy's too."""


def check_names(
    whose: str, given: Iterable[str], known: Collection[str], kind: str = "option"
) -> None:
    """Check that names, by default those of options, are known.

    Raises
    ------
    InvalidRequestError
        For the first that is not, with the names that are near.
    """
    for name in given:
        if name not in known:
            raise InvalidRequestError(f"{whose} has no {kind} {name!r}{near_names(name, known)}")


def refuses_unknown[T](options: type[T]) -> type[T]:
    """Make a dataclass of options refuse names that it does not have, and values of other types.

    Its objects remember which options were given: see `given_options`.
    """
    kind: Any = options
    plain = kind.__init__
    known = [option.name for option in _fields(options)]

    @functools.wraps(plain)
    def init(self: T, *args: Any, **given: Any) -> None:
        check_names(f"{options.__name__}()", given, known)
        hints = _hints(kind)
        for name, value in (*zip(hints, args, strict=False), *given.items()):
            check_type(name, value, hints[name])
        object.__setattr__(self, "_given", frozenset((*list(hints)[: len(args)], *given)))
        plain(self, *args, **given)

    kind.__init__ = init
    return options


def given_options(options: Any) -> dict[str, Any]:
    """The options that an object of options was made with, also those at their defaults."""
    given = vars(options)["_given"]
    return {name: value for name, value in option_values(options).items() if name in given}


def updated[T](options: T | None, given: T) -> T:
    """Options of a class, in which those that another object was made with take their places."""
    if options is None:
        return given
    return type(options)(**{**given_options(options), **given_options(given)})


def option_values(options: Any) -> dict[str, Any]:
    """All fields of an object of options, by name."""
    return {option.name: getattr(options, option.name) for option in _fields(type(options))}


def _is_default(option: Field[Any], value: Any) -> bool:
    plain = option.default
    if option.default_factory is not MISSING:
        plain = option.default_factory()
    return value is plain or (type(value) is type(plain) and bool(value == plain))


class Shown:
    """Shows an object of options as it was written: without those at their defaults."""

    def __repr__(self) -> str:
        kind: Any = type(self)
        values = [(option, getattr(self, option.name)) for option in _fields(kind) if option.repr]
        first = _fields(kind)[0]
        written = [
            repr(value)
            if option is first and isinstance(value, str)
            else f"{option.name}={value!r}"
            for option, value in values
            if not _is_default(option, value)
        ]
        return f"{kind.__name__}({', '.join(written)})"


def options_of(options: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `given` that are fields of a dataclass of options."""
    names = {option.name for option in _fields(options)}
    return {name: value for name, value in given.items() if name in names}


def verb[**P, R](
    *options: type,
    hidden: Collection[str] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function a public call: an option that it does not know is an error of ours.

    Parameters
    ----------
    *options
        Dataclasses whose fields the function's ``**`` parameter takes. They are shown in its
        signature.
    hidden
        Fields of `options` that the function takes no value for.

    Raises
    ------
    InvalidRequestError
        By the calls: for an unknown option, with the names that are near.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = _expanded(inspect.signature(function), options, hidden)
        known = set(signature.parameters)
        of_options = {name: hint for kind in options for name, hint in _hints(kind).items()}
        by_place = [p.name for p in signature.parameters.values() if p.kind in _BY_PLACE]

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            hints = {**of_options, **_hints_of(function)}
            if not kwargs.keys() <= known:
                _refuse_unknown(function, kwargs, known, hints)
            for name, value in (*zip(by_place, args, strict=False), *kwargs.items()):
                _check_argument(name, value, hints)
            return function(*args, **kwargs)

        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    return decorate


def _check_argument(name: str, value: Any, hints: Mapping[str, Any]) -> None:
    """Check the type of an argument; a text may be meant for another one."""
    try:
        check_type(name, value, hints.get(name, Any))
    except InvalidRequestError as error:
        for other, hint in hints.items():
            if any(value in get_args(each) for each in _literals(hint) if isinstance(value, str)):
                raise InvalidRequestError(f"{error}: write {other}={value!r}") from None
        raise


def _literals(hint: Any) -> list[Any]:
    return [each for each in _alternatives(hint) if get_origin(each) is Literal]


def _refuse_unknown(
    function: Any, given: Iterable[str], known: Collection[str], hints: Mapping[str, Any]
) -> None:
    """Refuse options that a function does not have; say which object takes one that it knows."""
    written: dict[str, str] = {}
    for parameter, hint in hints.items():
        if parameter not in known:
            continue
        kinds: list[Any] = [each for each in _alternatives(hint) if is_dataclass(each)]
        calls = {kind.__name__: f"{parameter}={kind.__name__}" for kind in kinds}
        written |= {name.lower(): f"{call}(...)" for name, call in calls.items()}
        for kind in kinds:
            for option in _fields(kind):
                call = f"{calls[kind.__name__]}({option.name}=...)"
                written.setdefault(option.name, call)
    if "concat_dim" in known:
        written["dim"] = "concat_dim=..., or layout=Stack(...) for a new dimension"
    for name in given:
        if name not in known and name in written:
            raise InvalidRequestError(
                f"{function.__name__}() has no option {name!r} of its own: write {written[name]}"
            )
        near = difflib.get_close_matches(name, written)
        check_names(f"{function.__name__}()", [name], {*known, *near})


_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _expanded(
    signature: inspect.Signature, options: Iterable[type], hidden: Collection[str]
) -> inspect.Signature:
    """A signature with the fields of dataclasses in the place of its ``**`` parameter."""
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    taken = {p.name for p in own} | {*hidden}
    added: dict[str, inspect.Parameter] = {}
    for kind in options:
        hints = _hints(kind)
        for option in _fields(kind):
            if option.name not in taken:
                added.setdefault(option.name, _parameter(option, hints[option.name]))
    return signature.replace(parameters=[*own, *added.values()])


def _parameter(option: Field[Any], hint: Any) -> inspect.Parameter:
    default = option.default
    if default is MISSING and option.default_factory is not MISSING:
        default = option.default_factory()
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=hint,
    )


@functools.cache
def _hints_of(function: Any) -> dict[str, Any]:
    """The types of a function's own parameters; none if some are known to type checkers only."""
    try:
        return get_type_hints(function)
    except NameError:
        return {}


@functools.cache
def _hints(options: Any) -> dict[str, Any]:
    """The types of the fields of a dataclass, in their order."""
    hints = get_type_hints(options)
    return {option.name: hints[option.name] for option in _fields(options)}


def _members(hint: Any) -> tuple[str, ...]:
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return tuple(hint)
    return get_args(hint) if get_origin(hint) is Literal else ()


def _fields(options: type) -> tuple[Field[Any], ...]:
    return fields(options)
