"""`ratchet host add` shows the key of a host that is not known yet, and pins what was confirmed."""

from __future__ import annotations

import pytest

from api.cli.host import pinned_fingerprint
from optimizer.clock import Deadline
from optimizer.errors import HostKeyRejected
from optimizer.remote import connect
from optimizer.spec import HostEntry
from tests.integration.remote.sshservers import EmbeddedServer, Sshd, free_port

Server = Sshd | EmbeddedServer


def unpinned(server: Server) -> HostEntry:
    entry = server.entry()
    assert entry.ssh is not None
    return entry.model_copy(update={"ssh": entry.ssh.model_copy(update={"host_key": None})})


def test_the_key_is_shown_and_pinned_and_then_accepted(ssh_server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    entry = unpinned(ssh_server)
    link = connect.open_link(entry)
    with pytest.raises(HostKeyRejected):
        link.run(["true"], deadline=Deadline.after(20))
    link.close()
    fingerprint = pinned_fingerprint(entry, pin=True)
    assert fingerprint is not None and fingerprint.startswith("SHA256:")
    assert fingerprint in capsys.readouterr().err
    assert entry.ssh is not None
    pinned = entry.model_copy(update={"ssh": entry.ssh.model_copy(update={"host_key": fingerprint})})
    link = connect.open_link(pinned)
    assert link.run(["true"], deadline=Deadline.after(20)).exit_code == 0
    link.close()


def test_nobody_at_the_terminal_means_nothing_is_pinned(
    ssh_server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert pinned_fingerprint(unpinned(ssh_server), pin=False) is None
    assert "not pinned" in capsys.readouterr().err


def test_a_host_that_cannot_be_asked_from_here_is_registered_unpinned(
    ssh_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = unpinned(ssh_server)
    assert entry.ssh is not None
    away = entry.model_copy(update={"ssh": entry.ssh.model_copy(update={"port": free_port()})})
    assert pinned_fingerprint(away, pin=True) is None
    assert "cannot be looked at from here" in capsys.readouterr().err
