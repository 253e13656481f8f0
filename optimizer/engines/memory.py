"""Tells the kinds of GPU memory shortage apart: by the frames of the traceback, the stage of the log, the numbers.

The same words want opposite remedies: a KV cache that does not fit wants a larger memory fraction, a graph capture or
a running server wants a smaller one, weights want neither.
"""

from __future__ import annotations

import re

from optimizer.engines.base import Phase
from optimizer.engines.causes import COMMON_OOM, Stage
from optimizer.engines.evidence import Event, Walk
from optimizer.engines.numbers import NUMBER, as_float

LABEL_STAGE = {
    "oom_weights": Stage.WEIGHTS,
    "oom_kv_cache": Stage.KV_CACHE,
    "oom_cuda_graph_capture": Stage.GRAPHS,
    "oom_runtime": Stage.SERVING,
}

_FRAMES: tuple[tuple[Stage, re.Pattern[str]], ...] = (
    (
        Stage.GRAPHS,
        re.compile(
            r"graph_runner|cuda_graph|cudagraph|capture_model|in capture|capture_one|init_cuda_graph|piecewise|"
            r"capture cuda graph"
        ),
    ),
    (
        Stage.KV_CACHE,
        re.compile(
            r"memory_pool|mem_cache/|init_memory_pool|allocate_kv|initialize_kv|initialize_from_config|"
            r"kv_cache_utils|cache_engine|in _allocate_kv|kv_cache_configurator|init_kv"
        ),
    ),
    (
        Stage.WEIGHTS,
        re.compile(
            r"model_loader|create_weights|in load_model|load_weights|weight_utils|process_weights|"
            r"initialize_model|in get_model|linear weights"
        ),
    ),
    (
        Stage.SERVING,
        re.compile(
            r"event_loop|run_batch|execute_model|engine_(?:step|loop)|"
            r"in forward\b|forward_(?:batch|step|thread|extend|decode)|"
            r"in sample|profile_run|_dummy_run|"
            r"dummy_sampler|busy_loop|warming up sampler"
        ),
    ),
)
_FRAME = re.compile(r'^\s*(?:\S+ )*?\s*file "|^\s{2,}\S|^\s*\^+|^\s*traceback|^\s*return |^\s*self\.|^error |^\(|^\[')
LOOK_BACK, LOOK_AHEAD = 80, 40
_AFTER_CAPTURE = re.compile(r"allocated in private pools \(e\.g\., cuda graphs\)")
"""The allocator counts captured graphs: capturing was over, unless frames or stages say otherwise."""

_UNIT = r"\s*(gib|mib|kib|gb|mb|bytes)"
_CAPACITY = re.compile(rf"total capacity of ({NUMBER}){_UNIT}|({NUMBER}){_UNIT} total capacity")
_FREE = re.compile(rf"of which ({NUMBER}){_UNIT} is free|({NUMBER}){_UNIT} free")
_OWN = re.compile(rf"this process has ({NUMBER}){_UNIT} memory in use|({NUMBER}){_UNIT} already allocated")
_EACH = re.compile(rf"process \d+ has ({NUMBER}){_UNIT} memory in use")
_BY_TORCH = re.compile(rf"({NUMBER}){_UNIT} is allocated by pytorch")
_SCALE = {"gib": 2.0**30, "gb": 1e9, "mib": 2.0**20, "mb": 1e6, "kib": 2.0**10, "bytes": 1.0}
LONGEST_MESSAGE = 6
"""Lines that a terminal makes of the allocator's message, which tears words and numbers apart."""
FOREIGN_SHARE = 0.4
"""Share of the used memory that others must hold before they are blamed."""


def label_of(stage: Stage) -> str:
    """Return the label of an out-of-memory text in a stage, when the card is this server's own."""
    return COMMON_OOM[Stage.WEIGHTS if stage is Stage.INIT else stage]


def stage_of(found: Walk, event: Event, phase: Phase | None) -> Stage:
    """Say in which stage memory ran out: by the frames around it, else by the log, else by what the caller knows."""
    own = event.line.text.lower()
    text = own + "\n" + _frames(found, event)
    by_frames = next((stage for stage, pattern in _FRAMES if pattern.search(text)), Stage.UNKNOWN)
    if by_frames is not Stage.UNKNOWN and not (
        by_frames is Stage.SERVING and event.stage in (Stage.KV_CACHE, Stage.GRAPHS)
    ):
        return by_frames
    if event.stage is not Stage.UNKNOWN:
        return event.stage
    if (found.alive_at and found.alive_at[0] < event.index) or _AFTER_CAPTURE.search(own):
        return Stage.SERVING
    return Stage.SERVING if phase in ("runtime", "benchmark") else by_frames


def _frames(found: Walk, event: Event) -> str:
    """Return the traceback that a line belongs to: the frames above it, or below where the message comes first."""
    lines = found.lines
    above: list[str] = []
    for index in range(event.index - 1, max(-1, event.index - LOOK_BACK), -1):
        lower = lines[index].text.lower()
        if not _FRAME.match(lower) and 'file "' not in lower:
            break
        above.append(lower)
        if "traceback" in lower:
            break
    if any('file "' in line for line in above):
        return "\n".join(above)
    below = [line.text.lower() for line in lines[event.index + 1 : event.index + LOOK_AHEAD]]
    return "\n".join(line for line in below if 'file "' in line)


def held_by_others(found: Walk, event: Event) -> str:
    """Return one line naming the foreign share when others hold the card, by the numbers of the text; else empty."""
    pieces = [line.text.lower() for line in found.lines[event.index : event.index + LONGEST_MESSAGE]]
    text = " ".join(pieces)
    if event.stage is Stage.INIT and stage_of(found, event, None) is Stage.INIT and _OWN.search(text) is None:
        return "the card was full before this server loaded anything"
    return _foreign_share(text) or _foreign_share("".join(pieces))


def _foreign_share(text: str) -> str:
    capacity, free = _bytes(_CAPACITY, text), _bytes(_FREE, text)
    own = _bytes(_OWN, text) or _own_among(text)
    if capacity is None or free is None or own is None or capacity <= 0:
        return ""
    used = capacity - free
    foreign = used - own
    if used <= 0 or foreign < FOREIGN_SHARE * used or foreign < 0.1 * capacity:
        return ""
    return f"other processes hold {foreign / 2**30:.1f} of {capacity / 2**30:.1f} GiB of this GPU"


def _own_among(text: str) -> float | None:
    """Return what this server holds where torch lists several processes without saying which one is it (containers)."""
    by_torch = _bytes(_BY_TORCH, text)
    each = [value for found in _EACH.finditer(text) if (value := _bytes(_EACH, found.group())) is not None]
    if by_torch is None or len(each) < 2:
        return None
    return min((value for value in each if value >= by_torch), default=None)


def _bytes(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    if found is None:
        return None
    pair = [group for group in found.groups() if group]
    value = as_float(pair[0]) if len(pair) == 2 else None
    return None if value is None else value * _SCALE[pair[1]]
