"""Reads numbers as servers of any locale print them (`1,234.5`, `175,88`, `85.7%`). Decides nothing else."""

from __future__ import annotations

import re

NUMBER = r"[-+]?\d+(?:[.,]\d+)*"
"""Pattern of a number; a comma or point belongs to it only when a digit follows."""

_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?")
MAX_DIGITS = 40
"""Longer runs of digits are damage, not a measurement."""


def as_float(text: str) -> float | None:
    """Read a decimal number with either decimal sign; None when it is none."""
    text = text.strip()
    if len(text) > MAX_DIGITS:
        return None
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    elif text.count(",") == 1 and "." not in text:
        text = text.replace(",", ".")
    elif "," in text and text.rfind(",") > text.rfind("."):
        text = text.replace(".", "").replace(",", ".")
    try:
        return float(text)
    except ValueError:
        return None


def as_int(text: str) -> int | None:
    """Read a whole number, with or without thousands separators; None when it is none."""
    text = text.strip()
    if len(text) > MAX_DIGITS:
        return None
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    try:
        return int(text)
    except ValueError:
        return None


def fraction(value: float) -> float:
    """Turn a percentage as printed into 0..1 without the noise of binary division."""
    return round(value / 100.0, 8)
