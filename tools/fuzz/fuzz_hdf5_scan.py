"""Coverage-guided fuzzing of the HDF5 scanner with atheris (libFuzzer).

``python -m tools.fuzz.fuzz_hdf5_scan --minutes 10`` keeps a fuzzing process running under limits of
time and memory for each input, starts it again after every finding, and prints what was run.
``--scan-only`` leaves the comparison with h5py out, so that whatever hangs or dies is ours.
``--replay FILE ...`` tries single inputs, such as findings. Seeds are the small files of the shared
test data and of `tests.property.test_scan_hdf5_fuzz`. The corpus is kept from run to run.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MAX_INPUT_BYTES = 24_000
MAX_SECONDS_EACH = 20
MAX_RESIDENT_MIB = 2048
_MAX_ADDRESS_SPACE = 16 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz-hdf5"))
    parser.add_argument("--scan-only", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--replay", nargs="+", type=Path, metavar="FILE")
    options, rest = parser.parse_known_args()
    if options.child:
        fuzz([sys.argv[0], *rest], compared=not options.scan_only)
    elif options.replay:
        replay(options.replay, compared=not options.scan_only)
    else:
        supervise(options.folder, options.minutes, compared=not options.scan_only)


def fuzz(arguments: list[str], *, compared: bool) -> None:
    """Run libFuzzer in this process; it never returns."""
    import atheris

    with atheris.instrument_imports(include=["gridref.formats.hdf5"]):
        import gridref.formats.registry  # noqa: F401 - to be instrumented
    import hdf5plugin  # noqa: F401 - gives h5py more filters

    from tools.fuzz.hdf5_mutations import Mutator
    from tools.fuzz.hdf5_target import check

    resource.setrlimit(resource.RLIMIT_AS, (_MAX_ADDRESS_SPACE, _MAX_ADDRESS_SPACE))
    scratch = Path(tempfile.mkdtemp()) / "input.h5"
    mutator = Mutator()

    def one_input(data: bytes) -> None:
        scratch.write_bytes(data)
        check(scratch, compared=compared)

    atheris.Setup(
        arguments,
        one_input,
        custom_mutator=mutator,
        custom_crossover=mutator.crossed,
    )
    atheris.Fuzz()


def replay(paths: list[Path], *, compared: bool) -> None:
    """Try each file in a process of its own, and say how it went."""
    code = "import sys, hdf5plugin; from pathlib import Path; "
    code += "from tools.fuzz.hdf5_target import check; "
    code += f"print(check(Path(sys.argv[1]), compared={compared}))"
    for path in paths:
        command = [sys.executable, "-X", "faulthandler", "-c", code, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
        print(f"{path.name}: {done.returncode}: {lines[-1] if lines else ''}"[:400])


def supervise(folder: Path, minutes: float, *, compared: bool) -> None:
    """Fuzz for so long, whatever happens to the fuzzing process."""
    corpus, findings = folder / "corpus", folder / "findings"
    for needed in (corpus, findings):
        needed.mkdir(parents=True, exist_ok=True)
    write_seeds(corpus)
    stop = time.monotonic() + 60 * minutes
    n_inputs, coverage, runs = 0, (0, 0), 0
    while (left := int(stop - time.monotonic())) > 5:
        runs += 1
        text = run_child(corpus, findings, left, compared=compared)
        n_inputs += executed(text)
        coverage = max(coverage, covered(text))
        (folder / f"process-{runs}.log").write_text(text)
    summary = {
        "inputs": n_inputs,
        "processes": runs,
        "branches covered": coverage[0],
        "features": coverage[1],
        "corpus": sum(1 for _ in corpus.iterdir()),
        "findings": sorted(path.name for path in findings.iterdir()),
    }
    print(json.dumps(summary, indent=1))


def run_child(corpus: Path, findings: Path, seconds: int, *, compared: bool) -> str:
    """One fuzzing process, which ends with its first finding; its output."""
    command = [
        *(sys.executable, "-m", "tools.fuzz.fuzz_hdf5_scan", "--child", str(corpus)),
        *(() if compared else ("--scan-only",)),
        f"-artifact_prefix={findings}/",
        f"-max_total_time={seconds}",
        f"-max_len={MAX_INPUT_BYTES}",
        f"-timeout={MAX_SECONDS_EACH}",
        f"-rss_limit_mb={MAX_RESIDENT_MIB}",
        "-print_final_stats=1",
        "-len_control=0",
        "-reload=0",
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds + 60,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        return str(expired.stderr or "")
    return done.stdout + done.stderr


def executed(log: str) -> int:
    """How many inputs a libFuzzer log reports."""
    counts = [int(count) for count in re.findall(r"^#(\d+)\s", log, re.MULTILINE)]
    counts += [int(count) for count in re.findall(r"number_of_executed_units: (\d+)", log)]
    return max(counts, default=0)


def covered(log: str) -> tuple[int, int]:
    """Branches and features that a libFuzzer log reports."""
    found = re.findall(r"cov: (\d+) ft: (\d+)", log)
    return max(((int(branches), int(features)) for branches, features in found), default=(0, 0))


def write_seeds(corpus: Path) -> None:
    """Put the small real files into the corpus."""
    from tests.property.test_scan_hdf5_fuzz import intact
    from tests.shared_data import shared_data_folder

    for libver in ("earliest", "latest"):
        (corpus / f"seed-{libver}").write_bytes(intact(libver))
    folder = shared_data_folder()
    if not folder.is_dir():
        return
    for part in ("hdf5", "netcdf4", "families", "bad_input/hdf5"):
        for path in (folder / part).rglob("*"):
            is_small = path.is_file() and path.stat().st_size <= MAX_INPUT_BYTES
            if is_small and b"\x89HDF" in path.read_bytes():
                shutil.copyfile(path, corpus / f"seed-{path.name}")


if __name__ == "__main__":
    main()
