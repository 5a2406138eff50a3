"""All benchmarks, one after the other: ``python -m benchmarks [NAME ...]``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NAMES = sorted(
    path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_")
)


def main() -> int:
    unknown = set(sys.argv[1:]) - set(NAMES)
    if unknown:
        print(f"no benchmark {sorted(unknown)}; there are {NAMES}", file=sys.stderr)
        return 2
    failed = []
    for name in sys.argv[1:] or NAMES:
        print(f"\n=== {name} ===", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
