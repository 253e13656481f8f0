"""Many trials and many machines: `scale storage` (page queries, bytes per trial), `scale workers` (throughput).

python -m benchmarks scale storage|workers [options]
"""

from __future__ import annotations

import runpy
import sys

NAMES = ("storage", "workers")

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in ([], ["-h"], ["--help"]) else 2)
    name = sys.argv.pop(1)
    runpy.run_module(f"benchmarks.scale.{name}", run_name="__main__", alter_sys=True)
