"""The viewer's decoders, run by Node: what other encoders wrote comes back, byte for byte."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numcodecs import LZ4, Blosc, Fletcher32, Shuffle, Zstd

from tests.programs import WEB, npm_package, program

SCRIPT = """
import { readFileSync } from "node:fs";
import "./viewer/codecs/index.js";
import { registry } from "zarrita";

const found = [];
for (const [name, config, data] of JSON.parse(readFileSync(0, "utf8"))) {
  const codec = (await registry.get(name)()).fromConfig(config, { shape: [1] });
  const told = async () => Buffer.from(await codec.decode(new Uint8Array(Buffer.from(data, "base64")))).toString("base64");
  found.push(await told().catch((error) => `! ${error.message}`));
}
process.stdout.write(JSON.stringify(found));
"""  # noqa: E501


def decoded(cases: list[tuple[str, dict[str, Any], bytes]]) -> list[bytes | str]:
    """What the viewer makes of each codec's bytes; what is wrong with them in words."""
    node = program("node")
    npm_package("zarrita")
    npm_package("fzstd")
    told = json.dumps([(n, c, base64.b64encode(data).decode()) for n, c, data in cases])
    command = [node, "--input-type=module", "-e", SCRIPT]
    done = subprocess.run(command, cwd=WEB, input=told, capture_output=True, text=True, check=True)
    return [
        each if each.startswith("! ") else base64.b64decode(each)
        for each in json.loads(done.stdout)
    ]


def buffers() -> Iterator[tuple[int, bytes]]:
    """Sizes of elements and bytes: even and odd counts, runs, noise, far repeats, many blocks."""
    random = np.random.default_rng(4)
    for size in (1, 2, 3, 4, 8, 16, 17):
        for n in (1, 7, 8, 33, 1000, 9_001):
            noise = random.integers(0, 256, n * size, "u1")
            runs = np.repeat(noise[:: n // 5 + 1], n * size)[: n * size]
            yield size, noise.tobytes()
            yield size, runs.tobytes()
            yield size, (np.arange(n * size) // size * 37 % 251).astype("u1").tobytes()
    far = random.integers(0, 256, 60_000, "u1").tobytes()
    yield 4, far + far[:50_000] + bytes(9_000) + far


def test_every_buffer_comes_back() -> None:
    cases, expected = [], []
    for number, (size, data) in enumerate(buffers()):
        cname = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")[number % 5]
        for shuffle in (0, 1, 2):
            blosc = Blosc(cname, clevel=(1, 5, 9)[number % 3], shuffle=shuffle, typesize=size)
            cases.append(("blosc", {}, blosc.encode(data)))
        cases.append(
            ("numcodecs.shuffle", {"elementsize": size}, bytes(Shuffle(size).encode(data)))
        )
        cases.append(("numcodecs.lz4", {}, LZ4().encode(data)))
        cases.append(("zstd", {}, Zstd(3).encode(data)))
        cases.append(("numcodecs.fletcher32", {}, bytes(Fletcher32().encode(data))))
        expected += [data] * 7
    found = decoded(cases)
    wrong = [n for n, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b]
    assert not wrong, [(cases[n][0], len(expected[n]), found[n][:60]) for n in wrong[:9]]


DATA = (np.arange(9_000) // 7).astype("u2").tobytes()
ENCODERS = {
    "blosc": Blosc("lz4"),
    "numcodecs.lz4": LZ4(),
    "zstd": Zstd(),
    "numcodecs.fletcher32": Fletcher32(),
}


@pytest.fixture(scope="module")
def of_cut_off() -> dict[str, list[bytes | str]]:
    """What is made of bytes that end too early, by codec: one process of Node for all."""
    cases = [
        (name, {}, whole[:n])
        for name, encoder in ENCODERS.items()
        for whole in [bytes(encoder.encode(DATA))]
        for n in (len(whole) - 1, len(whole) // 2, 20)
    ]
    found = decoded(cases)
    return {name: found[3 * i : 3 * i + 3] for i, name in enumerate(ENCODERS)}


@pytest.mark.long
@pytest.mark.parametrize("codec", ENCODERS)
def test_what_is_cut_off_is_no_value(codec: str, of_cut_off: dict[str, list[bytes | str]]) -> None:
    found = of_cut_off[codec]
    assert len(found) == 3
    assert all(isinstance(each, str) or len(each) != len(DATA) for each in found), found
