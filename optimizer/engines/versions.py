"""Versions as engines print them, made comparable.

Decides the order of `0.4.9.post6`, `0.5.12` and llama.cpp's `b10068`; what a version can do is in the flag tables.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

_POST = re.compile(r"(?:post|rev)\D?(\d+)")
UNRELEASED = (10**9, 0, 0, 0, 0)
"""A name without numbers (`main`, `nightly`) is newer than every release."""
_NUMBERS = re.compile(r"\d+")


@functools.lru_cache(maxsize=512)
def version_key(text: str) -> tuple[int, ...]:
    """Return a tuple that sorts like the version; local parts (`+cpu`) and commit hashes are ignored."""
    head = re.split(r"[+\-]", text.strip().lstrip("vb"), maxsplit=1)[0]
    post = _POST.search(head)
    base = head[: post.start()] if post else head
    if not any(c.isdigit() for c in base):
        return UNRELEASED
    numbers = tuple(int(n) for n in _NUMBERS.findall(base))[:4]
    return (*(numbers + (0,) * (4 - len(numbers))), int(post.group(1)) if post else 0)


def nearest_known(version: str | None, known: Sequence[str]) -> str:
    """Return the newest known version that is not newer than `version` (the oldest when all are; None: newest)."""
    if version is None:
        return known[-1]
    key = version_key(version)
    older = [v for v in known if version_key(v) <= key]
    return older[-1] if older else known[0]
