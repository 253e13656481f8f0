"""Keeps linear algebra on one thread.

Matrices of some hundred rows gain nothing from more, and OpenBLAS's waiting threads spin: they slow everything else
down on a busy machine, the load client first of all. Does nothing where the library is another one.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)
ASKED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def use_one_thread() -> int:
    """Set every OpenBLAS of this process to one thread, unless the environment asks for a number; return how many."""
    if any(name in os.environ for name in ASKED):
        return 0
    count = 0
    for path in _loaded_libraries():
        library = ctypes.CDLL(path)
        for name in SETTERS:
            setter = getattr(library, name, None)
            if setter is not None:
                setter(ctypes.c_int(1))
                count += 1
                break
    return count


def _loaded_libraries() -> list[str]:
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[-1].strip() for line in maps.splitlines() if "openblas" in line}
    return sorted(p for p in paths if p.startswith("/"))
