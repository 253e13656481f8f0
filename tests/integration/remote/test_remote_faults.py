"""The network and the SSH server failing for real: cut, frozen, refused, changed key, wrong user, stalled banner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from optimizer.clock import Deadline
from optimizer.errors import (
    AuthenticationFailed,
    CommandFailed,
    CommandTimeout,
    ConnectionLost,
    HostError,
    HostKeyRejected,
    PortTaken,
    Unreachable,
)
from optimizer.remote import connect, hostkeys, process, pulse, wire
from optimizer.remote.session import SshLink
from tests.integration.remote.conftest import Box, pids_of
from tests.integration.remote.proxies import Proxy
from tests.integration.remote.sshservers import EmbeddedServer, Sshd, free_port, make_key, start_sshd

Server = Sshd | EmbeddedServer


@pytest.fixture
def proxy(ssh_server: Server) -> Iterator[Proxy]:
    made = Proxy(ssh_server.port)
    yield made
    made.close()


@pytest.fixture
def far(ssh_server: Server, proxy: Proxy) -> Iterator[SshLink]:
    """Return a link through the proxy."""
    link = connect.open_link(ssh_server.entry(port=proxy.port))
    assert isinstance(link, SshLink)
    yield link
    link.close()


def one_server(box: Box, run_id: str) -> None:
    """Check that exactly this run is alive, once."""
    runs = process.find_runs(box.link, run_dir=box.run_dir)
    assert [r.run_id for r in runs] == [run_id]
    folder = Path(box.run_dir)
    assert [p.name for p in (folder / "runs").iterdir()] == [run_id]
    mains = [p for p in pids_of(folder) if b"--model-path" in Path(f"/proc/{p}/cmdline").read_bytes()]
    roots = [
        p for p in mains if parent_of(p) not in mains
    ]  # a child carries its parent's title until it renames itself
    assert len(roots) == 1, [Path(f"/proc/{p}/cmdline").read_bytes() for p in roots]


def parent_of(pid: int) -> int:
    """Return the parent of a process, 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.06])
def test_a_cut_during_the_launch_starts_no_second_server(
    far: SshLink, proxy: Proxy, run_dir: str, delay_s: float
) -> None:
    box = Box(far, run_dir)
    run_id = process.new_run_id()
    far.sh("exit 0", deadline=Deadline.after(40))
    cutter = threading.Timer(delay_s, proxy.cut)
    cutter.start()
    server = box.launch(run_id=run_id)
    cutter.join()
    one_server(box, run_id)
    box.wait(server)
    box.stop(server)


def test_a_cut_while_starting_and_while_benchmarking_is_survived(far: SshLink, proxy: Proxy, run_dir: str) -> None:
    box = Box(far, run_dir)
    server = box.launch("--replica-load-s", "1")
    proxy.cut()
    box.wait(server)
    tunnel = far.open_tunnel(box.port)
    body = b'{"messages":[{"role":"user","content":"x"}],"max_tokens":2000,"stream":true}'
    request = urllib.request.Request(tunnel.url + "/v1/chat/completions", body)
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.readline()
        proxy.cut()
        with pytest.raises(OSError):  # the client sees a broken answer, never a complete one
            while answer.readline():
                pass
            raise AssertionError("the stream ended as if it were complete")
    with urllib.request.urlopen(tunnel.url + "/health", timeout=10) as answer:  # the same tunnel, a new connection
        assert answer.status == 200
    one_server(box, server.run_id)
    assert process.status(far, server).alive
    box.stop(server)


def test_a_cut_during_the_stop_ends_with_the_server_gone(far: SshLink, proxy: Proxy, run_dir: str) -> None:
    box = Box(far, run_dir)
    server = box.launch("--replica-ignore-term", "--replica-escape")
    box.wait(server)
    cutter = threading.Timer(0.3, proxy.cut)
    cutter.start()
    box.stop(server, term_wait_s=1.0)
    cutter.join()
    assert far.connections == 2
    assert process.find_runs(far, run_dir=run_dir) == []
    assert pids_of(Path(run_dir)) == []


def test_a_frozen_network_ends_a_command_in_time_and_a_short_freeze_costs_no_connection(
    far: SshLink, proxy: Proxy
) -> None:
    far.sh("exit 0", deadline=Deadline.after(40))
    proxy.frozen.set()
    began = time.monotonic()
    with pytest.raises(CommandTimeout):
        far.sh("echo hello", deadline=Deadline.after(1))
    assert time.monotonic() - began < 8
    proxy.frozen.clear()
    assert far.sh("echo hello", deadline=Deadline.after(40)).text == "hello\n"
    assert far.connections == 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a silent peer count as gone after 3 s instead of 15, so that the tests need not wait."""
    monkeypatch.setattr(pulse, "DEAD_S", 3.0)
    monkeypatch.setattr(pulse, "ASK_EVERY_S", 0.2)
    monkeypatch.setattr(pulse, "STALL_S", 0.5)


@pytest.mark.usefixtures("impatient")
def test_a_connection_that_is_swallowed_is_given_up_in_the_middle_of_a_command(far: SshLink, proxy: Proxy) -> None:
    far.sh("exit 0", deadline=Deadline.after(40))
    swallow = threading.Timer(0.3, proxy.swallow)
    swallow.start()
    with pytest.raises(ConnectionLost, match="no answer for") as lost:
        far.sh("sleep 60", deadline=Deadline.after(90))
    swallow.join()
    assert "\n" not in str(lost.value) and lost.value.remedy
    assert far.sh("echo hello", deadline=Deadline.after(40)).text == "hello\n"
    assert far.connections >= 2


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("ssh_server", [pytest.param("sshd", marks=pytest.mark.needs("sshd"))], indirect=True)
def test_a_network_that_freezes_in_each_phase_ends_with_one_server(far: SshLink, proxy: Proxy, run_dir: str) -> None:
    """Nothing is reset: what is connected stays silent for ever, as after a firewall has forgotten it."""
    box = Box(far, run_dir)
    run_id = process.new_run_id()
    far.sh("exit 0", deadline=Deadline.after(40))
    swallow = threading.Timer(0.02, proxy.swallow)
    swallow.start()
    server = box.launch("--replica-load-s", "1", run_id=run_id)
    swallow.join()
    one_server(box, run_id)
    proxy.swallow()
    box.wait(server)
    tunnel = far.open_tunnel(box.port)
    body = b'{"messages":[{"role":"user","content":"x"}],"max_tokens":100000,"stream":true}'
    request = urllib.request.Request(tunnel.url + "/v1/chat/completions", body)
    before = far.disturbances
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.readline()
        proxy.swallow()
        with pytest.raises(OSError):
            while answer.readline():
                pass
            raise AssertionError("the stream ended as if it were complete")
    assert far.disturbances > before
    with urllib.request.urlopen(tunnel.url + "/health", timeout=60) as answer:
        assert answer.status == 200
    one_server(box, run_id)
    box.stop(server)
    assert process.find_runs(far, run_dir=run_dir) == []


@pytest.mark.usefixtures("impatient")
def test_a_stall_that_the_connection_survives_is_known(far: SshLink, proxy: Proxy) -> None:
    far.sh("exit 0", deadline=Deadline.after(40))
    before = far.disturbances
    proxy.frozen.set()
    end = Deadline.after(30)
    while far.disturbances == before:
        assert not end.passed
        time.sleep(0.05)
    proxy.frozen.clear()
    assert far.sh("echo hello", deadline=Deadline.after(40)).text == "hello\n"
    assert far.disturbances > before


@pytest.mark.needs("sshd")
def test_a_script_whose_connection_is_gone_ends_and_a_server_does_not(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "ORPHAN_S", 1)
    proxy = Proxy(sshd.port)
    link = connect.open_link(sshd.entry(port=proxy.port))
    pids = tmp_path / "pids"

    def cut_when_it_runs() -> None:
        wait_for(pids)
        proxy.cut()

    cutter = threading.Thread(target=cut_when_it_runs)
    cutter.start()
    script = 'setsid sleep 300 & r_server=$!; sleep 300 & echo $r_server $! $$ >"$1.new"; mv "$1.new" "$1"; wait'
    with pytest.raises(ConnectionLost):
        link.sh(script, str(pids), deadline=Deadline.after(60))
    cutter.join()
    server, child, shell = map(int, pids.read_text().split())
    try:
        end = Deadline.after(30)
        while alive(child) or alive(shell):
            assert not end.passed, "the script outlives its connection"
            time.sleep(0.05)
        assert alive(server)
    finally:
        os.kill(server, signal.SIGKILL)
        link.close()
        proxy.close()


def wait_for(path: Path) -> None:
    """Wait until a file is there."""
    end = Deadline.after(30)
    while not path.exists():
        assert not end.passed
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Say whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_slow_command_is_a_timeout_and_keeps_the_connection(far: SshLink) -> None:
    with pytest.raises(CommandTimeout):
        far.sh("sleep 20", deadline=Deadline.after(0.4))
    assert far.sh("echo on", deadline=Deadline.after(40)).text == "on\n"
    assert far.connections == 1


def test_an_unreachable_host_is_told_and_later_found_again(far: SshLink, proxy: Proxy) -> None:
    far.sh("exit 0", deadline=Deadline.after(40))
    proxy.refusing.set()
    proxy.cut()
    time.sleep(0.2)
    with pytest.raises(HostError) as caught:
        far.sh("exit 0", deadline=Deadline.after(30))
    assert caught.value.retry
    proxy.refusing.clear()
    assert far.sh("exit 7", deadline=Deadline.after(40)).exit_code == 7


def test_an_outage_in_the_middle_is_waited_for_by_what_may_be_repeated(
    far: SshLink, proxy: Proxy, run_dir: str
) -> None:
    box = Box(far, run_dir)
    server = box.launch()
    proxy.refusing.set()
    proxy.cut()
    back = threading.Timer(1.0, proxy.refusing.clear)
    back.start()
    assert process.status(far, server, deadline=Deadline.after(30)).alive
    back.join()
    box.stop(server)


def test_a_command_that_may_not_be_repeated_is_told_as_lost(far: SshLink, proxy: Proxy) -> None:
    far.sh("exit 0", deadline=Deadline.after(40))
    cutter = threading.Timer(0.3, proxy.cut)
    cutter.start()
    with pytest.raises(ConnectionLost, match="in the middle of a command"):
        far.sh("sleep 30", deadline=Deadline.after(60))
    cutter.join()


def test_many_commands_at_once_pass_through_one_connection(far: SshLink) -> None:
    """sshd opens ten sessions at most on a connection; the eleventh waits instead of failing."""
    results: list[str] = []
    lost: list[HostError] = []

    def ask(number: int) -> None:
        try:
            results.append(far.sh('sleep 0.3; echo "$1"', str(number), deadline=Deadline.after(60)).text.strip())
        except HostError as error:
            lost.append(error)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(14)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lost == []
    assert sorted(results, key=int) == [str(n) for n in range(14)]
    assert far.connections == 1


def failure(entry: object, *, seconds: float = 40) -> HostError:
    link = connect.open_link(entry)  # type: ignore[arg-type]
    try:
        with pytest.raises(HostError) as caught:
            link.sh("exit 0", deadline=Deadline.after(seconds))
    finally:
        link.close()
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
    return caught.value


def test_each_way_of_not_getting_in_is_told_apart(ssh_server: Server, tmp_path: Path) -> None:
    stranger = make_key(tmp_path / "stranger")
    wrong_key = failure(ssh_server.entry(identity_file=str(stranger)))
    assert isinstance(wrong_key, AuthenticationFailed) and str(stranger) in str(wrong_key)
    missing = failure(ssh_server.entry(identity_file=str(tmp_path / "none")))
    assert isinstance(missing, AuthenticationFailed) and "does not exist" in str(missing)
    closed = failure(ssh_server.entry(port=free_port()))
    assert isinstance(closed, Unreachable) and "refuses connections" in str(closed)
    nowhere = failure(ssh_server.entry(hostname="no-such-host.invalid"))
    assert isinstance(nowhere, Unreachable) and "no address" in str(nowhere)


@pytest.mark.needs("sshd")
def test_a_wrong_user_is_an_authentication_failure(sshd: Sshd) -> None:
    error = failure(sshd.entry(user="nobody-of-that-name"))
    assert isinstance(error, AuthenticationFailed) and "nobody-of-that-name" in str(error)


def test_a_stalled_banner_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        entry = EmbeddedEntry.at(listener.getsockname()[1])
        began = time.monotonic()
        error = failure(entry, seconds=1.5)
        assert isinstance(error, Unreachable) and "banner" in str(error)
        assert time.monotonic() - began < 10


class EmbeddedEntry:
    """A host entry for a port without a server of ours."""

    @staticmethod
    def at(port: int) -> object:
        from optimizer.spec import HostEntry, SshEntry

        return HostEntry(name="box", ssh=SshEntry(hostname="127.0.0.1", port=port, user="u", config_file="/dev/null"))


@pytest.mark.needs("sshd")
def test_a_changed_host_key_is_refused_with_how_to_pin_it_anew(tmp_path: Path) -> None:
    first = start_sshd(tmp_path / "one")
    entry = first.entry()
    offered = hostkeys.fetch_fingerprint(entry)
    first.stop()
    second = start_sshd(tmp_path / "one", port=first.port, host_key=make_key(tmp_path / "other_key"))
    try:
        for pin in (offered.key, offered.fingerprint):
            error = failure(second.entry(host_key=pin))
            assert isinstance(error, HostKeyRejected)
            assert offered.fingerprint in str(error) and "changed" in str(error)
            assert "host_key" in error.remedy
        new = hostkeys.fetch_fingerprint(second.entry())
        link = connect.open_link(second.entry(host_key=new.fingerprint))
        assert link.sh("exit 0", deadline=Deadline.after(40)).exit_code == 0
        link.close()
    finally:
        second.stop()


def test_an_unknown_host_key_is_refused_and_shown(ssh_server: Server) -> None:
    error = failure(ssh_server.entry(host_key=None))
    assert isinstance(error, HostKeyRejected) and "unknown" in str(error)
    assert hostkeys.fetch_fingerprint(ssh_server.entry()).fingerprint in str(error)


@pytest.mark.needs("sshd")
def test_a_fingerprint_of_another_key_type_is_found(tmp_path: Path) -> None:
    rsa = make_key(tmp_path / "rsa_key", "rsa")
    server = start_sshd(tmp_path / "both", extra=f"HostKey {rsa}")
    try:
        import base64

        from optimizer.remote import known_hosts

        blob = base64.b64decode(rsa.with_suffix(".pub").read_text().split()[1])
        link = connect.open_link(server.entry(host_key=known_hosts.fingerprint(blob)))
        assert link.sh("exit 0", deadline=Deadline.after(40)).exit_code == 0
        link.close()
    finally:
        server.stop()


@pytest.mark.needs("sshd")
def test_aliases_jump_hosts_and_known_hosts_of_a_client_configuration(
    sshd: Sshd, embedded: EmbeddedServer, tmp_path: Path
) -> None:
    from optimizer.spec import HostEntry, SshEntry
    from tests.integration.remote.sshservers import public_key

    known = tmp_path / "known hosts"
    known.write_text(
        f"[127.0.0.1]:{sshd.port} {public_key(sshd.host_key)}\n"
        f"[127.0.0.1]:{embedded.port} {public_key(embedded.host_key)}\n"
    )
    config = tmp_path / "config"
    config.write_text(
        f'Host inner\n HostName 127.0.0.1\n Port {sshd.port}\n User {sshd.user}\n IdentityFile "{sshd.client_key}"\n'
        f" ProxyJump outer\nHost outer\n HostName 127.0.0.1\n Port {embedded.port}\n User {embedded.user}\n"
        f' IdentityFile "{embedded.client_key}"\nHost *\n UserKnownHostsFile "{known}"\n IdentityAgent none\n'
    )
    link = connect.open_link(HostEntry(name="inner", ssh=SshEntry(alias="inner", config_file=str(config))))
    assert link.sh("echo through", deadline=Deadline.after(40)).text == "through\n"
    link.close()
    jumped = SshEntry(alias="inner", jump=["outer"], config_file=str(config))
    link = connect.open_link(HostEntry(name="inner", ssh=jumped))
    assert link.sh("echo through", deadline=Deadline.after(40)).text == "through\n"
    link.close()


@pytest.mark.needs("sshd")
def test_keys_of_an_agent_and_keys_with_a_passphrase(sshd: Sshd, tmp_path: Path) -> None:
    from optimizer.spec import HostEntry, SshEntry
    from tests.integration.remote.sshservers import public_key

    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "a phrase", "-f", str(locked)], check=True)
    error = failure(sshd.entry(identity_file=str(locked)))
    assert isinstance(error, AuthenticationFailed) and "ssh-agent" in str(error)
    socket_path = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket_path)], stdout=subprocess.DEVNULL)
    try:
        end = Deadline.after(20)
        while not socket_path.exists():
            assert not end.passed
        env = {**os.environ, "SSH_AUTH_SOCK": str(socket_path)}
        subprocess.run(["ssh-add", "-q", str(sshd.client_key)], check=True, env=env, stderr=subprocess.DEVNULL)
        config = tmp_path / "config"
        config.write_text(
            f"Host h\n HostName 127.0.0.1\n Port {sshd.port}\n User {sshd.user}\n"
            f" IdentityAgent {socket_path}\n IdentityFile {tmp_path / 'none'}\n"
        )
        ssh = SshEntry(alias="h", config_file=str(config), host_key=public_key(sshd.host_key))
        link = connect.open_link(HostEntry(name="h", ssh=ssh))
        assert link.sh("exit 0", deadline=Deadline.after(40)).exit_code == 0
        link.close()
    finally:
        agent.kill()
        agent.wait()


@pytest.mark.needs("sshd")
def test_a_login_shell_that_runs_nothing_is_told(tmp_path: Path) -> None:
    server = start_sshd(tmp_path / "forced", extra="ForceCommand echo 'This account is not available'; exit 1")
    try:
        error = failure(server.entry())
        assert isinstance(error, CommandFailed) and "not available" in str(error)
    finally:
        server.stop()


def test_a_server_that_answers_from_an_older_process_is_not_ours(local_box: Box) -> None:
    old = local_box.launch()
    local_box.wait(old)
    other = Box(local_box.link, local_box.run_dir + "2", local_box.port)
    with pytest.raises(PortTaken):
        other.launch()
    stranger = process.RunningServer("x", 1, 1, other.run_dir + "/runs/x", "", local_box.port, "")
    status = process.status(local_box.link, stranger)
    assert status.listening_pids == (old.pid,) and status.pids == ()
    local_box.stop(old)
