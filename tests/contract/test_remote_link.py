"""What every link promises, checked on each implementation: local, a real sshd, and the embedded SSH server."""

from __future__ import annotations

import http.server
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from optimizer.clock import Deadline
from optimizer.errors import CommandTimeout
from optimizer.remote import connect, wire
from optimizer.remote.base import HostLink
from optimizer.remote.local import LocalLink
from tests.integration.remote.sshservers import EmbeddedServer, start_sshd

KINDS = ["local", pytest.param("sshd", marks=pytest.mark.needs("sshd")), "embedded"]


@pytest.fixture(scope="module", params=KINDS)
def link(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostLink]:
    if request.param == "local":
        yield LocalLink("box")
        return
    folder = tmp_path_factory.mktemp("contract")
    server = start_sshd(folder) if request.param == "sshd" else EmbeddedServer(folder)
    made = connect.open_link(server.entry())
    yield made
    made.close()
    server.stop()


def soon() -> Deadline:
    return Deadline.after(60)


def test_arguments_arrive_literally(link: HostLink) -> None:
    words = ["a b", "it's", '"', "$(id)", "`id`", "\\n", "%s", "~", "*", "new\nline\n", "é日", "", "-n", "!!", "a\tb"]
    assert link.run(["printf", "<%s>", *words], deadline=soon()).text == "".join(f"<{w}>" for w in words)
    assert link.sh('printf "<%s>" "$@"', *words, deadline=soon()).text == "".join(f"<{w}>" for w in words)


def test_a_nul_is_refused_before_anything_is_sent(link: HostLink) -> None:
    with pytest.raises(ValueError, match="NUL"):
        link.run(["echo", "a\0b"], deadline=soon())


def test_status_and_both_streams_come_back_whole(link: HostLink) -> None:
    done = link.sh("printf out; printf err >&2; exit 42", deadline=soon())
    assert (done.exit_code, done.stdout, done.stderr) == (42, b"out", b"err")
    assert link.run(["/no/such/program"], deadline=soon()).exit_code == 127


def test_large_output_on_both_streams_does_not_deadlock(link: HostLink) -> None:
    done = link.sh("yes o | head -c 2000000; yes e | head -c 2000000 >&2; printf end", deadline=soon())
    assert len(done.stdout) == 2_000_003 and done.stdout.endswith(b"end")
    assert len(done.stderr) == 2_000_000


@pytest.mark.parametrize("data", [b"", b"plain text\n", b"\0\x01\xff'\\ \n\n", b"x" * 300_000])
def test_standard_input_arrives_as_given_and_ends(link: HostLink, data: bytes) -> None:
    assert link.sh("cat", deadline=soon(), stdin=data).stdout == data


def test_output_that_looks_like_a_frame_is_only_output(link: HostLink) -> None:
    text = "\n<ratchet-0000>\n</ratchet-0000 0>\n"
    assert link.run(["printf", "%s", text], deadline=soon()).text == text


def test_a_deadline_ends_the_wait_and_soon_the_script(
    link: HostLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "ORPHAN_S", 1)
    link.sh("exit 0", deadline=soon())
    began = time.monotonic()
    with pytest.raises(CommandTimeout):
        link.sh('echo $$ >"$1"; sleep 60', str(tmp_path / "pid"), deadline=Deadline.after(1.5))
    assert time.monotonic() - began < 15
    assert link.sh("echo next", deadline=soon()).text == "next\n"
    pid, end = int((tmp_path / "pid").read_text()), Deadline.after(30)
    while link.sh('kill -0 "$1" 2>/dev/null', str(pid), deadline=soon()).exit_code == 0:
        assert not end.passed, "the script goes on without anybody who waits for it"
        time.sleep(0.1)


def test_what_is_started_in_the_background_does_not_hold_the_command(link: HostLink) -> None:
    pid = link.sh("sleep 300 & echo $!", deadline=soon()).text.strip()
    assert link.sh('kill "$1"', pid, deadline=soon()).exit_code == 0, "it was waited for"


def test_scripts_do_not_see_each_others_variables_directory_or_exit(link: HostLink) -> None:
    link.sh("ratchet_x=1; cd /; set -e; exit 1", deadline=soon())
    done = link.sh('echo "${ratchet_x:-unset}"; false; echo on', deadline=soon())
    assert done.text == "unset\non\n"
    assert link.sh("pwd", deadline=soon()).text != "/\n"


def test_a_script_that_does_not_parse_is_an_error_and_the_next_one_works(link: HostLink) -> None:
    from optimizer.errors import HostError

    with pytest.raises(HostError):
        link.sh("if then (", deadline=Deadline.after(10))
    assert link.sh("echo fine", deadline=soon()).text == "fine\n"


def test_commands_from_several_threads_do_not_mix(link: HostLink) -> None:
    seen: dict[int, str] = {}

    def ask(n: int) -> None:
        seen[n] = link.sh('sleep 0.1; echo "$1"', str(n), deadline=Deadline.after(60)).text

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {n: f"{n}\n" for n in range(5)}


class Streaming(http.server.BaseHTTPRequestHandler):
    """Sends five small pieces, one after another."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        for n in range(5):
            self.wfile.write(f"piece {n} {time.monotonic()}\n".encode())
            self.wfile.flush()
            time.sleep(0.05)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def test_a_tunnel_carries_pieces_as_they_come(link: HostLink) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Streaming)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    tunnel = link.open_tunnel(server.server_port)
    try:
        delays = []
        with urllib.request.urlopen(tunnel.url + "/", timeout=20) as answer:
            for line in answer:
                delays.append(time.monotonic() - float(line.split()[2]))
        assert len(delays) == 5
        assert sorted(delays)[2] < 0.05  # the median piece: a busy machine may delay single ones
    finally:
        tunnel.close()
        tunnel.close()
        server.shutdown()
        thread.join()
        server.server_close()
    assert tunnel.path in {"tunnel", "local"}


def test_a_tunnel_to_nowhere_fails_like_a_refused_connection(link: HostLink) -> None:
    tunnel = link.open_tunnel(1)
    try:
        with pytest.raises(OSError):
            urllib.request.urlopen(tunnel.url, timeout=10)
    finally:
        tunnel.close()
