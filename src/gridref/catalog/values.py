"""Values, dtypes, encodings and records as strict JSON, and damage found while reading them.

Values that JSON has are written as they are. Every other value is an object with one member, whose
name begins with ``$``. A record is a dataclass: its fields say what is written and read. The format
is specified in ``docs/catalog-format.md``.
"""

from __future__ import annotations

import base64
import json
import math
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

import numpy as np
from numpy.lib import format as npy_format

from gridref.errors import (
    CatalogCorruptError,
    CatalogError,
    InvalidRequestError,
    NotRepresentableError,
    Place,
    ReadError,
)
from gridref.model.encoding import Codec, EdgePolicy, Encoding, Unpacking, element_bytes
from gridref.model.zarr_metadata import (
    data_type_from_json,
    data_type_to_json,
    fill_value_from_json,
    fill_value_to_json,
)
from gridref.secrets import without_secrets

# Errors of a damaged catalog


@contextmanager
def refusing_damage(part: str, place: Place) -> Iterator[None]:
    """Make a `CatalogCorruptError` of any error but those of catalogs and of reading them.

    A catalog may come from anywhere, and its members may be of any type, depth and size: what
    Python raises for them (`RecursionError`, `MemoryError`, `OverflowError`, ...) says nothing.

    Parameters
    ----------
    part
        The part that is looked at, like ``"the description of an array"``.
    """
    try:
        yield
    except (CatalogError, ReadError):
        raise
    except Exception as error:
        shown = without_secrets(f"{type(error).__name__}: {error}")[:500]
        raise CatalogCorruptError(
            f"{part} is damaged ({shown}): build the catalog again", place
        ) from error


# Values, dtypes and encodings as strict JSON, exact both ways


def value_to_json(value: Any) -> Any:
    """The JSON form of an attribute's value.

    Raises
    ------
    InvalidRequestError
        For a value that is none of: None, bool, int, float, complex, str, bytes, numpy scalar or
        array, or list, tuple or dict of these.
    """
    if isinstance(value, np.ndarray | np.generic):
        return _numpy_to_json(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, complex):
        return {"$complex": [value_to_json(value.real), value_to_json(value.imag)]}
    if isinstance(value, bytes):
        return {"$bytes": _base64(value)}
    if isinstance(value, list):
        return [value_to_json(item) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [value_to_json(item) for item in value]}
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        members = {name: value_to_json(item) for name, item in value.items()}
        return {"$dict": members} if any(name[:1] == "$" for name in members) else members
    raise InvalidRequestError(f"a catalog cannot hold a value of type {type(value).__name__}")


def value_from_json(document: Any) -> Any:
    """The value of a JSON form.

    Raises
    ------
    ValueError, KeyError, TypeError
        If the form is not one that `value_to_json` makes.
    """
    if isinstance(document, list):
        return [value_from_json(item) for item in document]
    if not isinstance(document, Mapping):
        return document
    tag = next(iter(document)) if len(document) == 1 else ""
    if tag[:1] != "$":
        return {name: value_from_json(item) for name, item in document.items()}
    return _READERS[tag](document[tag])


def attributes_from_json(document: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes, each value in a JSON form; names may be any, also those of tags."""
    return {name: value_from_json(value) for name, value in document.items()}


def _complex_from_json(parts: Any) -> complex:
    real, imag = map(value_from_json, parts)
    return complex(real, imag)


def _numpy_to_json(value: np.ndarray[Any, Any] | np.generic) -> dict[str, Any]:
    """Numbers and text as lists where that is exact and short, else the raw bytes."""
    dtype = value.dtype
    if dtype.hasobject and dtype.kind not in "OT":
        raise InvalidRequestError(f"a catalog cannot hold a value of dtype {dtype}")
    body: dict[str, Any] = {"dtype": _descr_of(dtype)}
    if isinstance(value, np.ndarray):
        body["shape"] = list(value.shape)
    if dtype.kind == "O":
        body["value"] = value_to_json(value.tolist())
    elif dtype.kind in "TU" or (dtype.kind in "biuf" and _is_plain(value)):
        body["value"] = value.tolist()
    else:
        body["raw"] = _base64(element_bytes(value, dtype) if dtype.itemsize else b"")
    return {"$numpy": body}


def _is_plain(value: np.ndarray[Any, Any] | np.generic) -> bool:
    if value.size > 64 or value.dtype.itemsize > 8:
        return False
    return value.dtype.kind != "f" or bool(np.isfinite(value).all())


def _numpy_from_json(body: Mapping[str, Any]) -> Any:
    dtype = _dtype_of(body["dtype"])
    shape = tuple(body.get("shape", ()))
    if dtype == np.dtype("S0") and "shape" not in body:
        return np.bytes_(b"")
    if "raw" in body:
        raw = base64.b64decode(body["raw"], validate=True)
        array = np.zeros(shape, dtype)
        if len(raw) != array.nbytes:
            raise ValueError(f"{len(raw)} bytes for an array of {array.nbytes}")
        if array.nbytes:
            array = np.frombuffer(raw, dtype).reshape(shape).copy()
    elif dtype.kind == "O":
        array = np.empty(math.prod(shape), object)
        array[:] = _flat(value_from_json(body["value"]), len(shape))
        array = array.reshape(shape)
    else:
        array = np.array(body["value"], dtype).reshape(shape)
    if "shape" in body:
        return array
    scalar = array[()]
    return np.str_(body["value"]) if dtype.kind == "U" else scalar


def _flat(nested: Any, depth: int) -> list[Any]:
    """The elements of lists nested `depth` deep."""
    elements = [nested]
    for _ in range(depth):
        elements = [inner for element in elements for inner in element]
    return elements


_READERS: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$complex": _complex_from_json,
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$tuple": lambda items: tuple(map(value_from_json, items)),
    "$dict": lambda members: {name: value_from_json(item) for name, item in members.items()},
    "$numpy": _numpy_from_json,
}


def dtype_to_json(dtype: np.dtype[Any]) -> Any:
    """The Zarr v3 data type where that is exact, else numpy's own description of the dtype."""
    try:
        document = data_type_to_json(dtype)
        if data_type_from_json(document) == dtype:
            return document
    except (InvalidRequestError, NotRepresentableError):
        pass  # Zarr has no such data type
    if dtype.hasobject and dtype.kind != "T":
        raise InvalidRequestError(f"a catalog cannot hold elements of dtype {dtype}")
    return {"name": "numpy", "configuration": {"descr": _descr_of(dtype)}}


def dtype_from_json(document: Any) -> np.dtype[Any]:
    """The dtype of its JSON form."""
    if isinstance(document, Mapping):
        _refuse_others(document, _DATA_TYPE_MEMBERS)
    if isinstance(document, Mapping) and document["name"] == "numpy":
        return _dtype_of(document["configuration"]["descr"])
    return data_type_from_json(document)


def _descr_of(dtype: np.dtype[Any]) -> Any:
    """Numpy's description, as in ``.npy`` files; ``"T"`` for variable-length strings."""
    if dtype.kind == "T":
        return "T"
    with warnings.catch_warnings():
        # What h5py hangs on dtypes as metadata says nothing about the elements.
        warnings.simplefilter("ignore", UserWarning)
        try:
            return npy_format.dtype_to_descr(dtype)
        except ValueError:
            return _layout_of(dtype)


def _layout_of(dtype: np.dtype[Any]) -> Any:
    """Numpy's other description, with offsets: for fields that overlap or are out of order."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": _layout_of(base), "shape": list(shape)}
    if dtype.names is None or dtype.fields is None:
        return dtype.str
    members = [dtype.fields[name] for name in dtype.names]
    return {
        "names": list(dtype.names),
        "formats": [_layout_of(member[0]) for member in members],
        "offsets": [member[1] for member in members],
        "itemsize": dtype.itemsize,
    }


def _dtype_of(descr: Any) -> np.dtype[Any]:
    if descr == "T":
        return np.dtype(np.dtypes.StringDType())
    if isinstance(descr, Mapping) and "base" in descr:
        return np.dtype((_dtype_of(descr["base"]), tuple(descr["shape"])))
    if isinstance(descr, Mapping):
        members: Any = {**descr, "formats": [_dtype_of(member) for member in descr["formats"]]}
        structure: np.dtype[Any] = np.dtype(members)
        return structure
    return npy_format.descr_to_dtype(_descr_from_json(descr))


def _descr_from_json(descr: Any) -> Any:
    """Lists of lists become the lists of tuples that numpy wants."""
    if isinstance(descr, str):
        return descr
    return [
        (field[0], _descr_from_json(field[1]), *(tuple(shape) for shape in field[2:]))
        for field in descr
    ]


def scalar_to_json(value: Any, dtype: np.dtype[Any]) -> Any:
    """The JSON form of a fill value: Zarr's where that is exact, else the element's raw bytes."""
    if dtype.kind == "T":
        return str(value)
    exact = element_bytes(value, dtype)
    try:
        document = fill_value_to_json(value, dtype)
        json.dumps(document, allow_nan=False)
        if element_bytes(fill_value_from_json(document, dtype), dtype) == exact:
            return document
    except (InvalidRequestError, NotRepresentableError, TypeError, ValueError, KeyError):
        pass  # not in the form that Zarr has for it
    return {"$raw": _base64(exact)}


def scalar_from_json(document: Any, dtype: np.dtype[Any]) -> Any:
    """The fill value of its JSON form."""
    if isinstance(document, Mapping) and "$raw" in document:
        return np.frombuffer(base64.b64decode(document["$raw"], validate=True), dtype)[0]
    return fill_value_from_json(document, dtype)


def encoding_to_json(encoding: Encoding) -> dict[str, Any]:
    """The JSON form of an encoding; what is at its default is left out."""
    document: dict[str, Any] = {
        "chunk_shape": list(encoding.chunk_shape),
        "data_type": dtype_to_json(encoding.dtype),
        "codecs": [_codec_to_json(codec) for codec in encoding.codecs],
        "edge": str(encoding.edge),
    }
    if encoding.prefix:
        document["prefix"] = _base64(encoding.prefix)
    if encoding.fill is not None:
        document["fill"] = _base64(encoding.fill)
    if encoding.unpacking is not None:
        document["unpacking"] = value_to_json(vars(encoding.unpacking))
    return document


def encoding_from_json(document: Mapping[str, Any]) -> Encoding:
    """The encoding of its JSON form."""
    _refuse_others(document, _ENCODING_MEMBERS)
    fill, unpacking = document.get("fill"), document.get("unpacking")
    return Encoding(
        tuple(map(_length, document["chunk_shape"])),
        dtype_from_json(document["data_type"]),
        tuple(_codec_from_json(codec) for codec in document["codecs"]),
        EdgePolicy(document["edge"]),
        base64.b64decode(document.get("prefix", ""), validate=True),
        None if fill is None else base64.b64decode(fill, validate=True),
        None if unpacking is None else Unpacking(**value_from_json(unpacking)),
    )


def _codec_to_json(codec: Codec) -> dict[str, Any]:
    document = codec.to_json()
    try:
        json.dumps(document, allow_nan=False)
    except ValueError:
        return {"name": codec.name, "configuration_json": codec.configuration_json}
    if Codec.from_json(document) == codec:
        return document
    return {"name": codec.name, "configuration_json": codec.configuration_json}


def _codec_from_json(document: Mapping[str, Any]) -> Codec:
    _refuse_others(document, _CODEC_MEMBERS)
    if not isinstance(document["name"], str):
        raise ValueError(f"a codec is called {document['name']!r}")
    if "configuration_json" in document:
        if "configuration" in document:
            raise ValueError("a codec has two configurations")
        if not isinstance(json.loads(document["configuration_json"]), dict):
            raise ValueError(f"the configuration of a codec is {document['configuration_json']!r}")
        return Codec(document["name"], document["configuration_json"])
    return Codec.from_json(document)


def _length(value: Any) -> int:
    if type(value) is not int or value >= 2**63:
        raise ValueError(f"the length of a chunk is {value!r}")
    return value


_ENCODING_MEMBERS = frozenset(
    {"chunk_shape", "data_type", "codecs", "edge", "prefix", "fill", "unpacking"}
)
_CODEC_MEMBERS = frozenset({"name", "configuration", "configuration_json"})
_DATA_TYPE_MEMBERS = frozenset({"name", "configuration"})


def _refuse_others(document: Mapping[str, Any], members: frozenset[str]) -> None:
    """Refuse members that are not known: to pass over one is to decode otherwise than was meant."""
    others = set(document) - members
    if others:
        raise ValueError(f"there is no member {', '.join(sorted(map(repr, others)))}")


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


# Records: dataclasses whose fields are the members of their JSON form

UNLESS_EMPTY = {"unless empty": True}
"""Metadata of a field that is not written while it is empty."""


def record_to_json(record: Any) -> dict[str, Any]:
    """The JSON form of a record: its fields by name, in their order."""
    return {
        name: _written(value)
        for name, is_left_out in _members(cast("Hashable", type(record)))
        if (value := getattr(record, name)) or not is_left_out
    }


@cache
def _members(kind: Any) -> list[tuple[str, bool]]:
    """The fields of a record, and whether they are left out while they are empty."""
    return [(each.name, each.metadata == UNLESS_EMPTY) for each in fields(kind)]


def _written(value: Any) -> Any:
    if isinstance(value, int | str | None):
        return value
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Encoding):
        return encoding_to_json(value)
    if is_dataclass(value):
        return record_to_json(value)
    if isinstance(value, tuple):
        return [_written(each) for each in value]
    if isinstance(value, bytes):
        return _base64(value)
    if isinstance(value, Mapping):
        return {name: _written(each) for name, each in value.items()}
    return value


def record_from_json[R](kind: type[R], document: Mapping[str, Any]) -> R:
    """The record of its JSON form; members that it does not have are passed over.

    Raises
    ------
    KeyError, ValueError, TypeError
        If a member is missing that is always written, or is of another type than its field.
    """
    key = cast("Hashable", kind)
    readers = _readers(key)
    return kind(
        **{
            name: readers[name](document[name])
            for name, is_left_out in _members(key)
            if name in document or not is_left_out
        }
    )


@cache
def _readers(kind: Any) -> Mapping[str, Callable[[Any], Any]]:
    """What reads each field of a record."""
    generic = {p.__name__: p for base in kind.__mro__ for p in getattr(base, "__type_params__", ())}
    hints = get_type_hints(kind, localns=generic, include_extras=True)
    return {each.name: _reader(hints[each.name]) for each in fields(kind)}


def _reader(kind: Any) -> Callable[[Any], Any]:
    """What reads values of a type; values of types that are not known stay as they are.

    Numbers count from 0 on, or from the least one that an annotation has.
    """
    kind = getattr(kind, "__value__", kind)
    origin, inner = get_origin(kind), get_args(kind)
    if kind in (int, bool, str):
        return partial(_scalar, kind)
    if origin is Annotated:
        return partial(_scalar, inner[0], least=inner[1])
    if kind is bytes:
        return partial(base64.b64decode, validate=True)
    if kind is Encoding:
        return encoding_from_json
    if hasattr(kind, "from_json"):
        read: Callable[[Any], Any] = kind.from_json
        return read
    if is_dataclass(kind):
        return partial(record_from_json, cast("type", kind))
    if origin is tuple:
        return partial(_tuple, [_reader(each) for each in inner if each is not ...])
    if origin is Mapping:
        return partial(_mapping, _reader(inner[1]))
    if len(inner) == 2 and inner[1] is type(None):
        return partial(_if_any, _reader(inner[0]))
    return lambda document: document


def _scalar(kind: type, document: Any, least: int = 0) -> Any:
    """A text or a number; refuses numbers that only equal one, like 2.0."""
    is_one = type(document) is kind
    if not is_one or (kind is int and not least <= document < 2**63):
        raise ValueError(f"there is {document!r} in place of a value of type {kind.__name__}")
    return document


def _tuple(readers: Sequence[Callable[[Any], Any]], document: Any) -> tuple[Any, ...]:
    """A list of values of one type, or of as many types."""
    if not isinstance(document, list):
        raise ValueError(f"there is {document!r} in place of a list")
    if len(readers) == 1:
        return tuple(map(readers[0], document))
    return tuple(read(each) for read, each in zip(readers, document, strict=True))


def _mapping(read: Callable[[Any], Any], document: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name): read(value) for name, value in document.items()}


def _if_any(read: Callable[[Any], Any], document: Any) -> Any:
    return None if document is None else read(document)
