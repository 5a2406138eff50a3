"""``zarr.json`` documents, read and written.

Sources: Zarr core specification v3; zarr-extensions (data types ``string``, ``struct``,
``null_terminated_bytes``, ``fixed_length_utf32``, ``raw_bytes``; chunk grid ``rectilinear``);
``FillValueCoder`` in ``xarray/backends/zarr.py`` and ``CFMaskCoder`` in
``xarray/coding/variables.py`` for the form of attributes.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridref.errors import InvalidRequestError, NotRepresentableError
from gridref.model.conventions import text_of
from gridref.model.encoding import Codec, element_bytes
from gridref.model.grid import ChunkGrid

_NUMBER_NAMES = {
    "?": "bool",
    **{code: np.dtype(code).name for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")},
    **{code: np.dtype(code).name for code in ("f2", "f4", "f8", "c8", "c16")},
}
_NUMBERS = {name: np.dtype(code) for code, name in _NUMBER_NAMES.items()}
_TIMES = {"M": "numpy.datetime64", "m": "numpy.timedelta64"}
_MEMBERS = frozenset(
    {
        *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding"),
        *("fill_value", "codecs", "attributes", "storage_transformers", "dimension_names"),
    }
)
"""Members of a document. Others may change what chunks mean, unless they say that they do not."""


@dataclass(frozen=True)
class ArrayMetadata:
    """The content of the ``zarr.json`` of an array.

    Attributes
    ----------
    dtype
        Dtype of the elements, in native byte order.
    grid
        Chunk grid, which includes the shape.
    codecs
        Codec chain.
    fill_value
        Scalar of `dtype`.
    dims
        Dimension names; None where there are none.
    attrs
        Attributes, JSON values.
    key_separator, key_prefix
        Chunk keys: ``c/0/1`` by default.
    """

    dtype: np.dtype[Any]
    grid: ChunkGrid
    codecs: tuple[Codec, ...]
    fill_value: Any
    dims: tuple[str | None, ...] | None
    attrs: Mapping[str, Any]
    key_separator: str = "/"
    key_prefix: str = "c"

    def to_json(self) -> dict[str, Any]:
        """The document. Attributes are taken as they are: see `attributes_to_json`."""
        document: dict[str, Any] = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.grid.shape),
            "data_type": data_type_to_json(self.dtype),
            "chunk_grid": self.grid.to_json(),
            "chunk_key_encoding": {
                "name": "default" if self.key_prefix else "v2",
                "configuration": {"separator": self.key_separator},
            },
            "fill_value": fill_value_to_json(self.fill_value, self.dtype),
            "codecs": [codec.to_json() for codec in self.codecs],
            "attributes": dict(self.attrs),
            "storage_transformers": [],
        }
        if self.dims is not None:
            document["dimension_names"] = list(self.dims)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ArrayMetadata:
        """Read a document.

        Raises
        ------
        InvalidRequestError
            If it is not Zarr v3, or uses an extension that gridref does not know.
        """
        if document.get("zarr_format") != 3 or document.get("node_type") != "array":
            raise InvalidRequestError("not the metadata of a Zarr v3 array")
        if document.get("storage_transformers"):
            raise InvalidRequestError("storage transformers are not supported")
        for name in document.keys() - _MEMBERS:
            value = document[name]
            if not isinstance(value, Mapping) or value.get("must_understand") is not False:
                raise InvalidRequestError(f"the member {name[:100]!r} of its metadata is not known")
        try:
            shape = integers_of(document["shape"])
            dtype = data_type_from_json(document["data_type"])
            keys = document.get("chunk_key_encoding", {"name": "default"})
            keys = {"name": keys} if isinstance(keys, str) else keys
            prefix = {"default": "c", "v2": ""}[keys["name"]]
            separator = keys.get("configuration", {}).get("separator", "/" if prefix else ".")
            check_separator(separator)
            dims = document.get("dimension_names")
            return cls(
                dtype,
                ChunkGrid.from_json(document["chunk_grid"], shape),
                tuple(Codec.from_json(codec) for codec in document["codecs"]),
                fill_value_from_json(document["fill_value"], dtype),
                None if dims is None else tuple(dims),
                dict(document.get("attributes") or {}),
                separator,
                prefix,
            )
        except (KeyError, OverflowError, TypeError, ValueError, struct.error) as error:
            if isinstance(error, InvalidRequestError):
                raise
            raise InvalidRequestError(f"bad Zarr array metadata: {error!r}") from error

    def chunk_key(self, coords: Sequence[int]) -> str:
        """Key of a chunk, like ``c/0/1``; ``c`` or ``0`` for a scalar."""
        parts = ([self.key_prefix] if self.key_prefix else []) + [str(k) for k in coords]
        return self.key_separator.join(parts) if parts else "0"


def integers_of(document: Any) -> list[int]:
    """A shape in JSON.

    Raises
    ------
    ValueError
        For anything but a list of integers.
    """
    if not isinstance(document, list | tuple) or not all(type(n) is int for n in document):
        raise ValueError(f"{document!r:.80} is no list of integers")
    return list(document)


def check_separator(separator: Any) -> None:
    """Refuse what Zarr does not have between the coords in chunk keys: no chunk would be found.

    Raises
    ------
    ValueError
        Saying what it is.
    """
    if separator not in (".", "/"):
        raise ValueError(f"chunk keys with {separator!r:.80} between the coords")


def group_document(
    attrs: Mapping[str, Any], consolidated: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """The ``zarr.json`` of a group.

    Parameters
    ----------
    attrs
        Attributes, JSON values.
    consolidated
        Documents of everything below, by path; None writes no consolidated metadata.
    """
    document: dict[str, Any] = {"zarr_format": 3, "node_type": "group", "attributes": dict(attrs)}
    if consolidated is not None:
        document["consolidated_metadata"] = {
            "kind": "inline",
            "must_understand": False,
            "metadata": dict(consolidated),
        }
    return document


def data_type_to_json(dtype: np.dtype[Any]) -> Any:
    """Zarr v3 data type of a dtype.

    Structured types that Zarr's ``struct`` cannot express (gaps, arrays as fields) become
    ``raw_bytes`` of the same size.

    Raises
    ------
    NotRepresentableError
        If Zarr has none.
    """
    kind = dtype.kind
    if kind == "T":
        return "string"
    if dtype.itemsize == 0:
        raise NotRepresentableError(f"Zarr has no data type of 0 bytes, as {dtype.str} is")
    if kind in "mM":
        unit, scale_factor = np.datetime_data(dtype)
        configuration = {"unit": unit, "scale_factor": scale_factor}
        return {"name": _TIMES[kind], "configuration": configuration}
    code = dtype.str[1:] if kind != "b" else "?"
    if code in _NUMBER_NAMES:
        return _NUMBER_NAMES[code]
    if kind == "S":
        return _sized("null_terminated_bytes", dtype.itemsize)
    if kind == "U":
        return _sized("fixed_length_utf32", dtype.itemsize)
    if kind == "V" and is_struct(dtype):
        assert dtype.names is not None
        assert dtype.fields is not None
        fields = [
            {"name": name, "data_type": data_type_to_json(dtype.fields[name][0])}
            for name in dtype.names
        ]
        return {"name": "struct", "configuration": {"fields": fields}}
    if kind == "V":
        return _sized("raw_bytes", dtype.itemsize)
    raise NotRepresentableError(f"Zarr has no data type for {dtype}")


def is_struct(dtype: np.dtype[Any]) -> bool:
    """Whether Zarr's ``struct`` can express a structured dtype: packed, no arrays as fields."""
    if dtype.names is None or dtype.fields is None:
        return False
    members = [dtype.fields[name] for name in dtype.names]
    packed = sum(member[0].itemsize for member in members) == dtype.itemsize
    ordered = [member[1] for member in members] == sorted(member[1] for member in members)
    plain = all(
        member[0].subdtype is None and (member[0].names is None or is_struct(member[0]))
        for member in members
    )
    return packed and ordered and plain and dtype.itemsize > 0


def packed_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype without gaps between the members of compounds, at any depth.

    Gaps belong to no member, so their content is undefined, and Zarr has no type with gaps.

    Examples
    --------
    >>> packed_dtype(np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"], "offsets": [0, 8]}))
    dtype([('a', 'u1'), ('b', '<f8')])
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((packed_dtype(base), shape))
    if dtype.names is None or dtype.fields is None:
        return dtype
    formats = [packed_dtype(dtype.fields[name][0]) for name in dtype.names]
    packed = np.dtype({"names": list(dtype.names), "formats": formats})
    return dtype if packed == dtype else packed


def data_type_from_json(document: Any) -> np.dtype[Any]:
    """Dtype of a Zarr v3 data type.

    Raises
    ------
    InvalidRequestError
        For a data type that gridref does not know.
    """
    name = document if isinstance(document, str) else document["name"]
    configuration = {} if isinstance(document, str) else document.get("configuration", {})
    if name in _NUMBERS:
        return _NUMBERS[name]
    if name in ("string", "variable_length_utf8"):
        return np.dtype(np.dtypes.StringDType())
    if name == "null_terminated_bytes":
        return np.dtype(f"S{configuration['length_bytes']}")
    if name == "fixed_length_utf32":
        return np.dtype(f"U{configuration['length_bytes'] // 4}")
    if name == "raw_bytes":
        return np.dtype(f"V{configuration['length_bytes']}")
    if name[:1] == "r" and name[1:].isdigit() and int(name[1:]) % 8 == 0:
        return np.dtype(f"V{int(name[1:]) // 8}")
    if name in ("struct", "structured"):
        fields = [
            (field["name"], data_type_from_json(field["data_type"]))
            if isinstance(field, Mapping)
            else (field[0], data_type_from_json(field[1]))
            for field in configuration["fields"]
        ]
        return np.dtype(fields)
    if name in _TIMES.values():
        code = "M8" if name == _TIMES["M"] else "m8"
        factor = configuration.get("scale_factor", 1)
        return np.dtype(f"{code}[{factor if factor != 1 else ''}{configuration['unit']}]")
    raise InvalidRequestError(f"unknown Zarr data type {name!r}")


def _sized(name: str, length_bytes: int) -> dict[str, Any]:
    return {"name": name, "configuration": {"length_bytes": length_bytes}}


def fill_value_to_json(value: Any, dtype: np.dtype[Any]) -> Any:
    """JSON form of a fill value. NaNs with a payload are written as hexadecimal bits."""
    kind = dtype.kind
    if kind == "b":
        return bool(value)
    if kind in "iu":
        return int(value)
    if kind == "f":
        return float_to_json(np.asarray(value, dtype)[()])
    if kind == "c":
        number = np.asarray(value, dtype)[()]
        return [float_to_json(number.real), float_to_json(number.imag)]
    if kind in "mM":
        count = np.asarray(value, dtype)
        return "NaT" if np.isnat(count) else int(count.view(np.int64))
    if kind in "UT":
        return str(value)
    if kind == "S":
        return base64.standard_b64encode(bytes(value)).decode()
    scalar = np.asarray(value, dtype)
    if dtype.names is not None and is_struct(dtype):
        return {name: fill_value_to_json(scalar[name][()], dtype[name]) for name in dtype.names}
    return base64.standard_b64encode(element_bytes(scalar, dtype)).decode()


def fill_value_from_json(document: Any, dtype: np.dtype[Any]) -> Any:
    """Scalar of `dtype` from its JSON form; None becomes zero."""
    kind = dtype.kind
    if document is None:
        return "" if kind == "T" else np.zeros((), dtype)[()]
    if kind == "T":
        return str(document)
    if kind in "biuUmM":
        return scalar_of(document, dtype)
    if kind == "f":
        return _float_from_json(document, dtype)
    if kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        real, imag = (_float_from_json(number, part) for number in document)
        return np.array([real, imag], part).view(dtype)[0]
    if kind == "S":
        return np.asarray(base64.standard_b64decode(document), dtype)[()]
    if isinstance(document, Mapping):
        assert dtype.names is not None
        return np.array(
            tuple(fill_value_from_json(document[name], dtype[name]) for name in dtype.names), dtype
        )[()]
    raw = base64.standard_b64decode(document) if isinstance(document, str) else bytes([*document])
    return np.frombuffer(raw, dtype)[0]


def scalar_of(document: Any, dtype: np.dtype[Any]) -> Any:
    """A scalar of `dtype` from a number or text of JSON.

    Raises
    ------
    ValueError
        For a list, and for a number that is none of `dtype`.
    """
    with np.errstate(invalid="ignore"):
        value = np.asarray(document, dtype)
    is_lost = isinstance(document, float) and dtype.kind in "biu" and value != document
    if value.ndim or is_lost or (isinstance(document, str) and dtype.kind == "b"):
        raise ValueError(f"the fill value {document!r:.80} is no {dtype}")
    return value[()]


def _float_from_json(document: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(document, str) and document.startswith("0x"):
        bits = int(document, 16).to_bytes(dtype.itemsize, "little")
        return np.frombuffer(bits, dtype.newbyteorder("<"))[0].astype(dtype)
    return np.asarray(float(document), dtype)[()]


# Attributes


def attributes_to_json(attrs: Mapping[str, Any], dtype: np.dtype[Any] | None) -> dict[str, Any]:
    """Attributes in the JSON form that xarray reads back from a Zarr v3 array.

    ``_FillValue`` takes xarray's own form (floats as base64 of the little-endian float64). xarray
    has none for text: there it becomes a ``missing_value``, which masks the same elements; of byte
    strings, which no JSON value equals, it is left out. A value that masks nothing is left out,
    too, like a text or a fraction as the fill value of integers. Strict JSON has no NaN:
    non-finite numbers become ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, and a
    ``missing_value`` of NaN, which adds nothing, is left out. No element equals such a text: an
    infinite ``missing_value`` of floats is written as ``_FillValue``, whose value it takes over.

    Parameters
    ----------
    attrs
        Attributes with numpy values.
    dtype
        Dtype of the array as the view shows it; None for a group.
    """
    if dtype is not None:
        attrs = _with_finite_missing(attrs, dtype)
    result = {
        name: attribute_from_numpy(value)
        for name, value in attrs.items()
        if not (name == "_FillValue" and dtype is not None)
        and not (name == "missing_value" and _is_nan(value))
    }
    if dtype is None or "_FillValue" not in attrs:
        return result
    fills = np.asarray(attrs["_FillValue"]).reshape(-1)
    if dtype.kind in "UT":
        result.setdefault("missing_value", attribute_from_numpy(attrs["_FillValue"]))
    elif dtype.kind in "biufc" and fills.dtype.kind in "biufc" and len(fills):
        fill = _reinterpreted(fills, dtype, text_of(attrs, "_Unsigned"))[0]
        if dtype.kind not in "iu" or float(fill.real).is_integer():
            result["_FillValue"] = _xarray_fill_value(fill, dtype)
    return result


def _with_finite_missing(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> Mapping[str, Any]:
    """The same missing values, without a ``missing_value`` that is infinite."""
    missing = np.asarray(attrs.get("missing_value")).reshape(-1)
    if dtype.kind not in "iuf" or missing.dtype.kind != "f" or np.isfinite(missing).all():
        return attrs
    rest = {name: value for name, value in attrs.items() if name != "missing_value"}
    fills = np.asarray(attrs.get("_FillValue", np.nan)).reshape(-1)[:1]
    if dtype.kind == "f" and fills.dtype.kind in "iuf":
        marks = np.concatenate([fills, missing]).astype(np.float64)
        infinite = np.unique(marks[np.isinf(marks)])
        if len(infinite) == 1:
            rest["_FillValue"], missing = infinite[0], marks
    finite = missing[np.isfinite(missing)]
    if len(finite):
        rest["missing_value"] = finite[0] if len(finite) == 1 else finite
    return rest if len(rest) > 0 and rest.keys() & {"missing_value", "_FillValue"} else attrs


def _reinterpreted(fills: NDArray[Any], dtype: np.dtype[Any], unsigned: object) -> NDArray[Any]:
    """Fill values with the sign of ``_Unsigned``: xarray casts them, and may not overflow."""
    if dtype.kind not in "iu" or fills.dtype.kind not in "iu":
        return fills
    if dtype.kind == "u" and unsigned == "false":
        return fills.astype(dtype).astype(f"i{dtype.itemsize}")
    return fills.astype(dtype) if dtype.kind == "i" and unsigned == "true" else fills


def attribute_from_numpy(value: Any) -> Any:
    """A strict JSON value of an attribute's numpy, str, bytes or list value."""
    if isinstance(value, np.ndarray):
        return attribute_from_numpy(value.tolist())
    if isinstance(value, np.generic):
        return attribute_from_numpy(value.item())
    if isinstance(value, list | tuple):
        return [attribute_from_numpy(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): attribute_from_numpy(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return (
            value.decode("utf-8", errors="surrogateescape")
            .encode("utf-8", errors="backslashreplace")
            .decode()
        )
    if isinstance(value, complex):
        return [attribute_from_numpy(value.real), attribute_from_numpy(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return float_to_json(np.float64(value))
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def float_to_json(value: Any) -> float | str:
    """A float as Zarr v3 writes it; NaNs with a payload as hexadecimal bits."""
    if math.isnan(value):
        bits = np.asarray(value).view(f"u{value.dtype.itemsize}")[()]
        plain = np.asarray(np.nan, value.dtype).view(bits.dtype)[()]
        return "NaN" if bits == plain else f"0x{int(bits):0{2 * value.dtype.itemsize}x}"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


def _is_nan(value: Any) -> bool:
    array = np.asarray(value)
    return bool(array.dtype.kind == "f" and np.isnan(array).all())


def _xarray_fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind in "iu":
        return int(value.real)

    def packed(number: float) -> str:
        return base64.standard_b64encode(struct.pack("<d", number)).decode()

    if dtype.kind == "c":
        return [packed(float(value.real)), packed(float(value.imag))]
    return packed(float(value.real))
