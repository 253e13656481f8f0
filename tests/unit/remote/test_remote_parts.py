"""Framing, host keys, targets, GPU tables, units and refusals, each without a host."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import shutil
from pathlib import Path

import paramiko
import pytest

from optimizer.clock import Deadline
from optimizer.errors import BadInput, FenceRefused, HostBusy, HostError, NeedsAttention, NotFound, PortTaken
from optimizer.remote import gpu, known_hosts, process, scripts, target, units, wire
from optimizer.remote.base import Completed, Gpu
from optimizer.remote.local import LocalLink
from optimizer.spec import SshEntry

KEY = paramiko.ECDSAKey.generate()


def make_target(tmp_path: Path, lines: str = "", **fields: object) -> target.Target:
    file = tmp_path / "known"
    file.write_text(lines)
    values: dict[str, object] = {
        "label": "box", "hostname": "Box.example", "port": 22, "user": "u", "identity_files": (),
        "identity_given": False, "known_hosts": (str(file), str(tmp_path / "missing")), **fields,
    }  # fmt: skip
    return target.Target(**values)  # type: ignore[arg-type]


def fed(conversation: wire.Conversation, *pieces: bytes) -> bool:
    finished = False
    for piece in pieces:
        conversation.stdout.extend(piece)
        finished = conversation.finished()
    return finished


def test_a_frame_is_found_wherever_the_stream_is_cut() -> None:
    whole = b"banner\n\n<ratchet-n>\npayload\n</ratchet-x 1>\n\n</ratchet-n 7>\nbye"
    for cut in range(len(whole)):
        conversation = wire.Conversation("", nonce="n")
        assert fed(conversation, whole[:cut], whole[cut:])
        assert conversation.result() == Completed(7, b"payload\n</ratchet-x 1>\n", b"")


def test_an_unfinished_frame_is_not_finished() -> None:
    conversation = wire.Conversation("", nonce="n")
    assert not fed(conversation, b"\n<ratchet-n>\n", b"text\n</ratchet-n 1")
    assert conversation.started()


def test_standard_error_that_comes_after_the_end_of_output_is_waited_for() -> None:
    conversation = wire.Conversation("", nonce="n")
    assert fed(conversation, b"\n<ratchet-n>\nout\n</ratchet-n 42>\n")
    assert not conversation.settled()
    conversation.stderr.extend(b"\n<ratchet-n>\nerr")
    assert not conversation.settled()
    conversation.stderr.extend(b"\n</ratchet-n>\n")
    assert conversation.settled()
    assert conversation.result() == Completed(42, b"out", b"err")


def test_a_line_survives_printf() -> None:
    conversation = wire.Conversation("echo 'a\\nb'\necho \\\\", nonce="n")
    line = conversation.line()
    assert line.count(b"\n") == 1
    assert line[:-1].replace(b"\\n", b"\n").count(b"\n") > 3


@pytest.mark.parametrize("form", ["plain", "port", "hashed", "list"])
def test_known_hosts_are_read_in_every_form(tmp_path: Path, form: str) -> None:
    pair = f"{KEY.get_name()} {KEY.get_base64()}"
    salt = b"12345678901234567890"
    digest = hmac.new(salt, b"Box.example", hashlib.sha1).digest()
    hashed = f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
    line = {"plain": "box.example", "port": "[Box.example]:2222", "hashed": hashed, "list": "other,Box.example"}[form]
    there = make_target(tmp_path, f"# note\n{line} {pair}\n", port=2222 if form == "port" else 22)
    assert known_hosts.trusted(KEY, None, there)
    elsewhere = make_target(tmp_path, f"{line} {pair}\n", hostname="other.example", port=2222 if form == "port" else 22)
    assert known_hosts.trusted(KEY, None, elsewhere) is False


def test_revoked_and_broken_lines_grant_nothing(tmp_path: Path) -> None:
    pair = f"{KEY.get_name()} {KEY.get_base64()}"
    lines = f"@revoked Box.example {pair}\nBox.example\nBox.example ssh-rsa not*base64\n|1|x|y {pair}\n|1| {pair}\n"
    assert not known_hosts.trusted(KEY, None, make_target(tmp_path, lines))


def test_a_pin_beats_known_hosts(tmp_path: Path) -> None:
    there = make_target(tmp_path, f"Box.example {KEY.get_name()} {KEY.get_base64()}\n")
    other = paramiko.ECDSAKey.generate()
    pin = known_hosts.fingerprint(KEY.asbytes())
    assert known_hosts.trusted(KEY, pin, there)
    assert not known_hosts.trusted(other, pin, there)
    assert not known_hosts.trusted(KEY, f"{other.get_name()} {other.get_base64()}", there)
    error = known_hosts.rejection("box", other, pin, there)
    assert pin in str(error) and "changed" in str(error) and "\n" not in str(error)


def test_ssh_g_is_asked_and_the_entry_wins(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host gpu\n HostName 10.0.0.7\n Port 2200\n User alice\n ProxyJump bob@gate:22,inner\n")
    final, jumps = target.resolve(SshEntry(alias="gpu", config_file=str(config), user="carol"))
    assert (final.hostname, final.port, final.user) == ("10.0.0.7", 2200, "carol")
    assert (jumps[0].label, jumps[0].user, jumps[0].port) == ("gate", "bob", 22)
    assert len(jumps) == 2


def test_without_an_ssh_client_the_configuration_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    config = tmp_path / "config"
    config.write_text("Host gpu\n HostName 10.0.0.7\n Port 2200\n IdentityFile ~/k\n")
    final, jumps = target.resolve(SshEntry(alias="gpu", config_file=str(config), user="u"))
    assert (final.hostname, final.port, final.identity_files) == ("10.0.0.7", 2200, (str(Path("~/k").expanduser()),))
    assert jumps == ()
    with pytest.raises(BadInput, match="does not exist"):
        target.resolve(SshEntry(alias="gpu", config_file=str(tmp_path / "none")))


@pytest.mark.parametrize("alias", ["-oProxyCommand=id", "-F/etc/passwd"])
def test_an_alias_cannot_be_an_option(alias: str) -> None:
    with pytest.raises(BadInput):
        target.resolve(SshEntry(alias=alias))


def test_a_jump_host_with_a_bad_port_is_refused() -> None:
    with pytest.raises(BadInput, match="jump"):
        target.resolve(SshEntry(hostname="h", jump=["user@gate:ssh"], config_file="/dev/null"))


def test_ipv6_jump_hosts_are_read() -> None:
    _, jumps = target.resolve(SshEntry(hostname="h", jump=["root@[::1]:2222"], config_file="/dev/null"))
    assert (jumps[0].hostname, jumps[0].port, jumps[0].user) == ("::1", 2222, "root")


def test_memory_is_back_within_the_tolerance() -> None:
    gpus = [Gpu(0, "x", 80000, 700), Gpu(1, "x", 80000, 9000), Gpu(7, "x", 80000, 80000)]
    assert gpu.still_held(gpus, {0: 500, 1: 400}) == {1: 8600}
    assert gpu.parse_levels(["0, 500", " 1,[N/A]", "", "x"]) == {0: 500}


def test_a_gpu_that_is_not_seen_any_more_is_no_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that broke while the server was stopped, or a card off the bus: nvidia-smi fails, or tells of fewer."""
    monkeypatch.setattr(gpu, "snapshot", lambda link, deadline=None: [Gpu(0, "x", 80000, 500)])
    link = LocalLink("box")
    assert gpu.wait_until_back(link, {0: 500}, deadline=Deadline.after(0)) < 1
    with pytest.raises(NeedsAttention, match="does not tell of GPU 1"):
        gpu.wait_until_back(link, {0: 500, 1: 500}, deadline=Deadline.after(0))


def test_no_script_looks_at_all_processes_in_a_way_that_stops_halfway() -> None:
    """Each took processes that live for gone, or left a group alive, on some hosts: see `r_table` and `r_there`."""
    for file in (Path(scripts.__file__).parent / "sh").glob("*.sh"):
        text = re.sub(r"(?m)^ *#.*$", "", file.read_text())
        assert not re.search(r"sed -n [^|\n]*/proc/\[0-9\]", text), file  # stops at a process that ends meanwhile
        assert "<<" not in text, file  # a file in /tmp for some shells
        assert not re.search(r"kill -\w+ --", text), file  # no signal at all in dash


def test_a_meta_line_that_a_full_disk_cut_hides_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    said = b'run a trial 7 1 /r/runs/a\n{"port": 80\nrun b home 8 1 /r/runs/b\n{"port": 9}\n'
    monkeypatch.setattr(scripts, "call", lambda *_, **__: Completed(0, said, b""))
    found = process.find_runs(LocalLink("box"), run_dir="/r")
    assert [(r.run_id, r.pid, r.port, r.kind) for r in found] == [("a", 7, 0, "trial"), ("b", 8, 9, "home")]


@pytest.mark.parametrize(
    ("command", "unit"),
    [
        (["docker", "start", "-a", "llm"], "docker:llm"),
        (["/usr/bin/podman", "container", "start", "my.llm_1"], "podman:my.llm_1"),
        (["docker", "run", "--rm", "llm"], None),
        (["docker", "start", "a", "b"], None),
        (["docker", "start", "a;b"], None),
        (["./start"], None),
        ([], None),
    ],
)
def test_a_home_that_starts_a_container_is_that_container(command: list[str], unit: str | None) -> None:
    assert units.container_of(command) == unit


def test_a_daemon_that_runs_the_servers_of_many_is_nobodys_unit() -> None:
    assert units.unit_of("/system.slice/docker.service") is None
    assert units.unit_of("/system.slice/supervisor.service") is None


def test_units_are_recognised_and_scopes_are_not() -> None:
    assert units.unit_of("/system.slice/sglang.service") == "sglang.service"
    assert units.unit_of("/user.slice/user-1000.slice/user@1000.service/app.slice/llm.service") == "user:llm.service"
    assert units.unit_of("/user.slice/user-1000.slice/session-3.scope") is None
    assert units.unit_of("/user.slice/user-1000.slice/user@1000.service/app.slice/tmux.scope") is None
    assert units.unit_of("") is None


@pytest.mark.parametrize(
    ("line", "kind", "says"),
    [
        ("!fence 12", FenceRefused, "12"),
        ("!fired 2026-01-01T00:00:00Z no sign of life", FenceRefused, "no sign of life"),
        ("!busy", HostBusy, "lock"),
        ("!port 7 1 7 7 0 - python -m x --y z", PortTaken, "python -m x --y z"),
        ("!port 0 0 0 0 1001 - ?", PortTaken, "uid 1001"),
        ("!alive abc trial", PortTaken, "abc"),
        ("!unarmed", NotFound, "guard"),
        ("!never-heard-of", HostError, "never-heard-of"),
    ],
)
def test_every_refusal_is_an_error_of_one_line(line: str, kind: type[Exception], says: str) -> None:
    error = scripts.refusal("box", Completed(90, f"noise\n{line}\n".encode(), b""))
    assert isinstance(error, kind) and says in str(error) and "\n" not in str(error)
