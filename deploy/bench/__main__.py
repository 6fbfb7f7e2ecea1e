"""`python -m deploy.bench [--only NAME] [--reps N] [--json FILE]`: start everything, measure, print a table.

A figure that misses its aim is a verdict, not a failure: the exit code is 1 only when something broke.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path

import uvloop

from deploy.bench import processes, report
from deploy.bench.figures import FIGURES
from deploy.bench.lab import Lab
from deploy.bench.report import Row

MANY_FILES = 8192


async def measure(names: list[str], lab: Lab) -> tuple[list[Row], list[str]]:
    """Rows, and the names of figures that broke."""
    rows: list[Row] = []
    broken: list[str] = []
    for name in names:
        started = time.perf_counter()
        try:
            rows += await FIGURES[name](lab)
        except Exception:
            traceback.print_exc()
            broken.append(name)
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return rows, broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.bench", description="What the relay costs.")
    parser.add_argument("--only", action="append", choices=FIGURES, help="one figure; may be given again")
    parser.add_argument("--reps", type=int, default=3, help="runs of each side of a comparison (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run as JSON as well")
    parser.add_argument("--dir", type=Path, help="where databases are written (the system's temporary directory)")
    args = parser.parse_args()
    _allow_many_files()
    processes.pin(1)
    with (
        tempfile.TemporaryDirectory(prefix="talaria-bench-", dir=args.dir) as scratch,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        rows, broken = runner.run(measure(args.only or list(FIGURES), Lab(Path(scratch), args.reps)))
    print(f"{report.machine()}\n\n{report.table(rows)}")
    if args.json:
        found = {"machine": report.machine(), "rows": [row.as_json() for row in rows]}
        args.json.write_text(json.dumps(found, indent=1))
    if broken:
        print(f"broke: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


def _allow_many_files() -> None:
    """A thousand sockets and some more; the servers inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < MANY_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(MANY_FILES, hard), hard))


if __name__ == "__main__":
    sys.exit(main())
