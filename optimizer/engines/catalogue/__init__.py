"""Causes that engines share, by where they come from. The order inside a file is the order of preference."""

from __future__ import annotations

from optimizer.engines.catalogue import general, gpu, host, libraries, models, packages, ranks
from optimizer.engines.causes import Cause

SYSTEM: tuple[Cause, ...] = (*host.CAUSES, *gpu.CAUSES, *libraries.CAUSES)
"""Texts of the operating system, its linker and CUDA: any program on the host can print them."""

PYTHON: tuple[Cause, ...] = (*packages.CAUSES, *models.CAUSES, *ranks.CAUSES, *general.CAUSES)
"""Texts of Python, torch, NCCL and Hugging Face: shared by the engines written in Python."""
