"""Run every benchmark, or those named: ``python -m benchmarks [name ...]``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main() -> None:
    modules = {path.stem for path in Path(__file__).parent.glob("*.py")}
    known = sorted(modules - {"__init__", "__main__", "common"})
    chosen = sys.argv[1:] or known
    if unknown := set(chosen) - set(known):
        sys.exit(f"unknown benchmark {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    for name in chosen:
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
