"""What the doctor finds on odd hosts, and that every finding says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from optimizer.errors import CommandFailed, NeedsAttention
from optimizer.remote import connect, doctor, gpu, scripts
from optimizer.remote.base import Finding
from optimizer.spec import HostEntry, SshEntry
from tests.integration.remote.conftest import Box, path_without
from tests.integration.remote.sshservers import free_port, wait_for_port


def test_the_doctor_tells_every_part_with_a_remedy(box: Box, gpus: Path) -> None:
    entry = HostEntry(name="box", connection="local", run_dir=box.run_dir, gpus=[0, 1, 5])
    server = box.launch()
    box.wait(server)
    found = doctor.check(box.link, entry, port=box.port, paths=["/no/such/model"])
    by_check = {f.check: f for f in found}
    assert {"ssh", "host key", "shell", "tools", "run directory", "disk", "shm", "clock", "limits", "gpus", "gpu users",
            "our servers", "port", "guard", "path", "engine"} <= set(by_check)  # fmt: skip
    assert all(f.remedy for f in found if f.level in {"warning", "error"}), found
    assert by_check["path"].level == "error"
    assert by_check["our servers"].level == "warning" and server.run_id in by_check["our servers"].detail
    assert any(f.check == "gpus" and f.level == "error" and "GPU 5" in f.detail for f in found)
    assert by_check["gpu users"].detail == "only our own"
    box.stop(server)


def test_the_doctor_names_a_foreign_server_and_what_it_would_put_back(local_box: Box, tmp_path: Path) -> None:
    foreign = subprocess.Popen(
        [sys.executable, "-m", "http.server", str(local_box.port), "--bind", "127.0.0.1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for_port(local_box.port)
        for takeover, level in ((False, "error"), (True, "ok")):
            entry = HostEntry(name="box", connection="local", run_dir=local_box.run_dir, takeover=takeover)
            found = {f.check: f for f in doctor.check(local_box.link, entry, port=local_box.port)}
            assert found["port"].level == level and str(foreign.pid) in found["port"].detail
        assert "can be put back" in found["home"].detail
    finally:
        foreign.kill()
        foreign.wait()


def test_the_doctor_of_an_unreachable_host_says_why_and_skips_the_rest(tmp_path: Path) -> None:
    ssh = SshEntry(hostname="127.0.0.1", port=free_port(), user="u", config_file="/dev/null")
    entry = HostEntry(name="away", ssh=ssh)
    found = doctor.check(connect.open_link(entry), entry)
    assert found[0].level == "error" and "refuses connections" in found[0].detail and found[0].remedy
    assert {f.level for f in found[1:]} == {"skipped"}


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    """Put another program of this name on PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def examine(box: Box, **entry: object) -> dict[str, Finding]:
    """Return the findings by check; each that is not fine must say what to do."""
    fields = {"name": "box", "connection": "local", "run_dir": box.run_dir, **entry}
    found = doctor.check(box.link, HostEntry.model_validate(fields))
    assert [f for f in found if f.level in {"warning", "error"} and not f.remedy] == []
    assert all("\n" not in f.detail for f in found)
    return {f.check: f for f in found}


FULL = "echo 'Filesystem 1024-blocks Used Available Capacity Mounted on'\necho '/dev/x 1000000 999000 1000 100% /'"


@pytest.mark.parametrize(
    ("program", "script", "check", "level", "says"),
    [
        ("nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "gpus", "warning",
         "version mismatch"),
        ("nvidia-smi", "echo 'No devices were found' >&2; exit 6", "gpus", "warning", "No devices were found"),
        ("df", FULL, "disk", "error", "0.0 GiB free"),
        ("date", "echo 4102444800", "clock", "warning", "differs from here by +"),
    ],
)  # fmt: skip
def test_an_odd_host_is_told_with_what_to_do(
    local_box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, script: str, check: str, level: str,
    says: str,
) -> None:  # fmt: skip
    stand_in(tmp_path / "bin", monkeypatch, program, script)
    finding = examine(local_box)[check]
    assert finding.level == level and says in finding.detail


def test_an_nvidia_smi_that_hangs_is_told_and_hangs_nothing(
    local_box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "bin", monkeypatch, "nvidia-smi", "exec sleep 600")
    whole = scripts.text
    monkeypatch.setattr(scripts, "text", lambda name: whole(name).replace("r_limited 150", "r_limited 3"))
    found = examine(local_box)
    assert found["gpus"].level == "error" and "does not answer" in found["gpus"].detail
    assert found["disk"].level in {"ok", "warning"} and found["tools"].level == "ok"
    with pytest.raises(NeedsAttention, match="nvidia-smi does not answer"):
        gpu.snapshot(local_box.link)
    with pytest.raises(NeedsAttention, match="nvidia-smi does not answer"):
        local_box.launch()


def test_a_missing_setsid_is_told_by_the_doctor_and_by_a_launch(
    local_box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_without("setsid", tmp_path))
    assert "missing: setsid" in examine(local_box)["tools"].detail
    with pytest.raises(CommandFailed, match="setsid"):
        local_box.launch()


def test_a_run_directory_that_cannot_be_made_is_told_with_the_reason(local_box: Box, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    local_box.run_dir = str(tmp_path / "file" / "run")
    finding = examine(local_box)["run directory"]
    assert finding.level == "error" and "Not a directory" in finding.detail
    with pytest.raises(NeedsAttention, match="cannot write"):
        local_box.launch()
