"""Bytes -> ndarray: one decoder for each codec name."""

from __future__ import annotations

from gridref.codecs.encode import encode_chunk
from gridref.codecs.pipeline import decode_chunk
from gridref.codecs.registry import decodable, why_not
from gridref.codecs.unpacking import unpack

__all__ = ["decodable", "decode_chunk", "encode_chunk", "unpack", "why_not"]
