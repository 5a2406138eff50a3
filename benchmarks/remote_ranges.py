"""Our requests by fsspec and aiohttp against obstore's: ``python -m benchmarks.remote_ranges``.

A server in another process answers each request 25 ms late. Both ask for the same bytes with at
most 64 requests in flight, compare them with the file's, and look at the version of the file in
every answer. Wall time, and processor time of this process, which is what a client costs.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.door import slow_server
from gridref.io.remote import RemoteFiles

N_RANGES, RANGE_BYTES = 731, 100_000
N_FILES, HEAD_BYTES = 300, 16_384
IN_FLIGHT = 64
RANGES_AT_ONCE = 4

type Work = Callable[[], list[bytes]]


def obstore_ranges(url: str, paths: Sequence[str], starts: Sequence[int], length: int) -> Work:
    """A `get` for each: `get_ranges` does not say which version of the file it read."""
    import obstore

    store = obstore.store.HTTPStore.from_url(url, client_options={"allow_http": True})

    async def one(limit: asyncio.Semaphore, path: str, start: int) -> bytes:
        async with limit:
            options = {"range": (start, start + length)}
            result = await obstore.get_async(store, path, options=options)  # type: ignore[arg-type]
            assert result.meta["e_tag"]
            return bytes(await result.bytes_async())

    async def together() -> list[bytes]:
        limit = asyncio.Semaphore(IN_FLIGHT)
        wanted = zip(paths, starts, strict=True)
        return list(await asyncio.gather(*(one(limit, path, start) for path, start in wanted)))

    return lambda: asyncio.run(together())


def compared(works: dict[str, Work], expected: list[bytes], n: int = 5) -> None:
    """Print the least seconds of some runs of each, in turn."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(n):
        for name, work in works.items():
            start, used = time.perf_counter(), time.process_time()
            found = work()
            times[name].append((time.perf_counter() - start, time.process_time() - used))
            if found != expected:
                raise SystemExit(f"{name} read wrong bytes")
    for name, pairs in times.items():
        wall, cpu = (min(column) for column in zip(*pairs, strict=True))
        print(f"{name}: {wall:.2f} s, {cpu:.2f} s of processor time", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        content = np.random.default_rng(0).bytes(N_RANGES * RANGE_BYTES)
        (folder / "one.bin").write_bytes(content)
        names = [f"{number}.bin" for number in range(N_FILES)]
        for number, each in enumerate(names):
            (folder / each).write_bytes(content[number * HEAD_BYTES :][: 4 * HEAD_BYTES])
        with slow_server(folder) as url:
            starts = list(range(0, len(content), RANGE_BYTES))
            print(f"{N_RANGES} ranges of {RANGE_BYTES} bytes of one file")
            expected = [content[start : start + RANGE_BYTES] for start in starts]
            compared(
                {
                    "gridref": lambda: our_ranges(f"{url}/one.bin", starts),
                    "obstore": obstore_ranges(url, ["one.bin"] * N_RANGES, starts, RANGE_BYTES),
                },
                expected,
            )
            print(f"the first {HEAD_BYTES} bytes of {N_FILES} files")
            expected = [content[i * HEAD_BYTES :][:HEAD_BYTES] for i in range(N_FILES)]
            compared(
                {
                    "gridref": lambda: our_heads([f"{url}/{each}" for each in names]),
                    "obstore": obstore_ranges(url, names, [0] * N_FILES, HEAD_BYTES),
                },
                expected,
            )


def our_ranges(url: str, starts: Sequence[int]) -> list[bytes]:
    """As `Reader` asks: in threads, some ranges each."""
    files = RemoteFiles()
    parts = [starts[at : at + RANGES_AT_ONCE] for at in range(0, len(starts), RANGES_AT_ONCE)]
    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        found = threads.map(
            lambda part: files.fetch(url, part, [start + RANGE_BYTES for start in part]), parts
        )
        return [bytes(one) for several in found for one in several]


def our_heads(urls: Sequence[str]) -> list[bytes]:
    """As scanning many files asks: a thread a file."""
    files = RemoteFiles()
    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        begun = threads.map(lambda url: files.begin(url, [0], [HEAD_BYTES]), urls)
        return [part for _, (part,) in begun]


if __name__ == "__main__":
    main()
