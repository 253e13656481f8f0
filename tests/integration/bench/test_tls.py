"""The load client over HTTPS: certificates are checked, times and tokens are read as over HTTP."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from optimizer.bench.measure import measure
from optimizer.bench.workload import from_spec
from optimizer.clock import Deadline
from optimizer.errors import BenchmarkFailed
from tests.unit.bench.fakes import FakeEngine


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_path, key_path


class Handler(BaseHTTPRequestHandler):
    """Streams eight tokens and ends the connection."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for _ in range(8):
            event = {"choices": [{"delta": {"content": " word"}, "finish_reason": None}]}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()
        usage = {"completion_tokens": 8, "prompt_tokens": 4}
        self.wfile.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\ndata: [DONE]\n\n")

    def log_message(self, *args: object) -> None:
        """Say nothing."""


class QuietServer(ThreadingHTTPServer):
    """A server that does not print when a client refuses its certificate."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    cert, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = QuietServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}", cert
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_trusted_server_is_measured(secure: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    url, cert = secure
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    result = measure(
        url,
        engine=FakeEngine(metrics=None),
        model="",
        workload=from_spec({"max_tokens": 8, "concurrency": [1, 3]}),
        path="direct",
        deadline=Deadline.after(60),
    )
    assert result.metrics["error_rate"] == 0 and len(result.tok_s) == 5
    assert all(s.output_tokens == 8 and s.text == " word" * 8 for s in result.samples)


def test_a_server_that_nobody_vouches_for_is_refused(secure: tuple[str, Path]) -> None:
    with pytest.raises(BenchmarkFailed, match=r"tls: .*certificate"):
        measure(
            secure[0],
            engine=FakeEngine(metrics=None),
            model="",
            workload=from_spec({}),
            path="direct",
            deadline=Deadline.after(60),
        )
