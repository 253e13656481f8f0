"""Lists the benchmark commands and runs one: every package under `benchmarks/` with a `__main__.py` is one."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent


def commands() -> dict[str, str]:
    """Return name and first docstring line of every benchmark."""
    found = {}
    for main in sorted(HERE.glob("*/__main__.py")):
        text = ast.get_docstring(ast.parse(main.read_text("utf-8"))) or ""
        found[main.parent.name] = text.splitlines()[0] if text else ""
    return found


def run() -> int:
    """List, or run one with the remaining arguments."""
    known = commands()
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("python -m benchmarks NAME [options]   (each has --help)\n")
        for name, text in known.items():
            print(f"  {name:12s} {text}")
        return 0
    name = sys.argv[1]
    if name not in known:
        print(f"no benchmark {name!r}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    sys.argv = [f"python -m benchmarks {name}", *sys.argv[2:]]
    runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(run())
