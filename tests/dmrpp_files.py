"""A writer of DMR++ documents beside HDF5 files, after what h5py says of their chunks.

It writes what OPeNDAP's ``build_dmrpp`` does: elements of DAP4, and where the values are.
"""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import h5py
import numpy as np

NAMESPACES = (
    'xmlns="http://xml.opendap.org/ns/DAP/4.0#"'
    ' xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#" dapVersion="4.0" dmrVersion="1.0"'
)
TYPES = {
    "u1": "Byte",
    "i1": "Int8",
    "i2": "Int16",
    "u2": "UInt16",
    "i4": "Int32",
    "u4": "UInt32",
    "i8": "Int64",
    "u8": "UInt64",
    "f4": "Float32",
    "f8": "Float64",
}
FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 32015: "zstd"}
PADDINGS = {0: "null_term", 1: "null_pad", 2: "space_pad"}


def write_dmrpp(
    path: Path,
    *,
    href: str = "OPeNDAP_DMRpp_DATA_ACCESS_URL",
    version: bool = True,
    chunk_href: str = "",
    missing: frozenset[str] = frozenset(),
) -> Path:
    """Describe an HDF5 file in a document beside it.

    Parameters
    ----------
    href
        Address of the granule that the document gives.
    version
        Whether the document has a version, as those since 2021 have.
    chunk_href
        An address for each chunk.
    missing
        Names of datasets whose values are kept as the writer's missing data.
    """
    with h5py.File(path) as file:
        parts = _members(file, chunk_href, missing)
        stated = ' dmrpp:version="3.21.1"' if version else ""
        head = f'<Dataset {NAMESPACES} name="{path.name}" dmrpp:href="{href}"{stated}>'
        lines = ['<?xml version="1.0" encoding="ISO-8859-1"?>', head, *parts, "</Dataset>"]
    document = path.with_name(f"{path.name}.dmrpp")
    document.write_text("\n".join(lines), encoding="latin-1")
    return document


def _members(group: h5py.Group, chunk_href: str, missing: frozenset[str]) -> list[str]:
    lines = [
        f'<Dimension name="{name}" size="{each.size}"/>'
        for name, each in group.items()
        if isinstance(each, h5py.Dataset) and each.is_scale
    ]
    lines += _attributes(group)
    for name, each in group.items():
        if isinstance(each, h5py.Group):
            inner = _members(each, chunk_href, missing)
            lines += [f"<Group name={quoteattr(name)}>", *inner, "</Group>"]
        else:
            lines += _variable(name, each, chunk_href, name in missing)
    return lines


def _variable(name: str, dataset: h5py.Dataset, chunk_href: str, missing: bool) -> list[str]:
    dtype = dataset.dtype
    head: list[str] = []
    tag, inner = _tag_of(dataset)
    extra = ""
    if tag == "Enum":
        members = _members_of(dtype)
        consts = [f'<EnumConst name="{k}" value="{v}"/>' for k, v in members.items()]
        base = "Int8" if dtype.kind == "b" else TYPES[dtype.str[1:]]
        head = [f'<Enumeration name="{name}_t" basetype="{base}">', *consts, "</Enumeration>"]
        extra = f' enum="{name}_t"'
    lines = [*head, f"<{tag} name={quoteattr(name)}{extra}>", *inner]
    for axis, size in enumerate(dataset.shape):
        scales = dataset.dims[axis].values()
        path = scales[0].name if scales else dataset.name if dataset.is_scale else None
        lines.append(f'<Dim name="{path}"/>' if path else f'<Dim size="{size}"/>')
    lines += _attributes(dataset)
    if missing:
        raw = dataset[...].astype(dtype.newbyteorder("<")).tobytes()
        packed = raw if dataset.size == 1 else zlib.compress(raw)
        lines.append(_element("missingdata", packed))
    elif h5py.check_string_dtype(dtype) is not None and dtype.kind == "O":
        texts = [text.decode() for text in np.ravel(dataset[...])]
        lines.append(f"<dmrpp:vlsa>{''.join(map(_text, texts))}</dmrpp:vlsa>")
    else:
        lines += _storage(dataset, chunk_href)
    return [*lines, f"</{tag}>"]


def _members_of(dtype: Any) -> dict[str, int]:
    """Those of an enumeration; h5py keeps booleans as one."""
    return {"FALSE": 0, "TRUE": 1} if dtype.kind == "b" else h5py.check_enum_dtype(dtype) or {}


def _tag_of(dataset: h5py.Dataset) -> tuple[str, list[str]]:
    dtype = dataset.dtype
    if _members_of(dtype):
        return "Enum", []
    if h5py.check_string_dtype(dtype) is not None:
        return "String", []
    if dtype.kind == "c":
        part = TYPES[f"f{dtype.itemsize // 2}"]
        return "Structure", [f'<{part} name="r"/>', f'<{part} name="i"/>']
    if dtype.names is None:
        return TYPES[dtype.newbyteorder("=").str[1:]], []
    members = []
    for field in dtype.names:
        base, shape = dtype[field].base, dtype[field].shape
        dims = "".join(f'<Dim size="{n}"/>' for n in shape)
        tag = TYPES[base.str[1:]]
        members.append(f'<{tag} name="{field}">{dims}</{tag}>')
    return "Structure", members


def _text(text: str) -> str:
    if len(text) < 30:
        return f"<v>{escape(text)}</v>"
    packed = base64.b64encode(zlib.compress(text.encode())).decode()
    return f'<v s="{len(text.encode())}">{packed}</v>'


def _element(name: str, raw: bytes) -> str:
    return f"<dmrpp:{name}>{base64.b64encode(raw).decode()}</dmrpp:{name}>"


def _storage(dataset: h5py.Dataset, chunk_href: str) -> list[str]:
    dtype, plist = dataset.dtype, dataset.id.get_create_plist()
    about = f' fillValue="{_fill(dataset)}"'
    filters = [plist.get_filter(n) for n in range(plist.get_nfilters())]
    if filters:
        about += f' compressionType="{" ".join(FILTERS[each[0]] for each in filters)}"'
    base = dtype[0].base if dtype.names else dtype
    if base.kind in "iufc" and base.itemsize > 1:
        about += f' byteOrder="{"BE" if base.byteorder == ">" else "LE"}"'
    if dtype.kind == "c":
        about += f' structOffset="{dtype.itemsize // 2} {dtype.itemsize}"'
    if dtype.names:
        starts = [dtype.fields[name][1] for name in dtype.names[1:]]
        about += f' structOffset="{" ".join(map(str, [*starts, dtype.itemsize]))}"'
    href = f" href={quoteattr(chunk_href)}" if chunk_href else ""
    chunks: list[str] = []
    after: list[str] = []
    if dataset.chunks:
        sizes = " ".join(map(str, dataset.chunks))
        chunks.append(f"<dmrpp:chunkDimensionSizes>{sizes}</dmrpp:chunkDimensionSizes>")
        for number in range(dataset.id.get_num_chunks()):
            info = dataset.id.get_chunk_info(number)
            place = ",".join(map(str, info.chunk_offset))
            mask = f' fm="{info.filter_mask}"' if info.filter_mask else ""
            chunks.append(
                f'<dmrpp:chunk offset="{info.byte_offset}" nBytes="{info.size}"'
                f' chunkPositionInArray="[{place}]"{mask}{href}/>'
            )
    elif plist.get_layout() == h5py.h5d.COMPACT:
        about = f' fillValue="{_fill(dataset)}"'
        after.append(_element("compact", dataset[...].astype(dtype).tobytes()))
    elif dataset.id.get_offset() is not None:
        n_bytes = dataset.id.get_storage_size()
        chunks.append(f'<dmrpp:chunk offset="{dataset.id.get_offset()}" nBytes="{n_bytes}"{href}/>')
    if dtype.kind == "S" and dataset.shape:
        padding = PADDINGS[dataset.id.get_type().get_strpad()]
        after.append(
            f'<dmrpp:FixedLengthStringArray string_length="{dtype.itemsize}" pad="{padding}"/>'
        )
    return [f"<dmrpp:chunks{about}>", *chunks, "</dmrpp:chunks>", *after]


def _fill(dataset: h5py.Dataset) -> str:
    """The fill value with six digits, as streams of C++ print it."""
    fill = dataset.fillvalue
    if dataset.dtype.names or dataset.dtype.kind == "c":
        return "0"
    if isinstance(fill, bytes):
        return escape(fill.decode("latin-1"))
    return f"{fill:g}" if np.asarray(fill).dtype.kind == "f" else str(int(fill))


def _attributes(owner: Any) -> list[str]:
    lines = []
    for name, value in owner.attrs.items():
        if name in ("DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME", "_Netcdf4Dimid"):
            continue
        if isinstance(value, str | bytes):
            tag, values = "String", [value if isinstance(value, str) else value.decode()]
        else:
            array = np.atleast_1d(value)
            tag = "String" if array.dtype.kind == "O" else TYPES[array.dtype.str[1:]]
            digits = {"f4": ".9g", "f8": ".17g"}.get(array.dtype.str[1:], "")
            values = [format(each, digits) for each in array]
        texts = "".join(f"<Value>{escape(each)}</Value>" for each in values)
        lines.append(f'<Attribute name={quoteattr(name)} type="{tag}">{texts}</Attribute>')
    return lines
