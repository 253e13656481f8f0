"""Sends night reports: a webhook POST and an e-mail, at least once, from the outbox in the database.

Decides what is sent where and how often it is tried. Receivers recognise repeats by the message's id.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import smtplib
import ssl
from collections.abc import Callable
from datetime import datetime, timedelta
from email.message import EmailMessage
from typing import Any
from urllib.parse import unquote, urlsplit

import structlog
from jinja2 import TemplateError

from api import morning
from api.client import TransportError, post_json
from api.settings import ApiSettings
from optimizer import secrets
from optimizer.errors import RatchetError
from storage import webhooks
from storage.engine import Database
from storage.records import WebhookRecord

log = structlog.get_logger(__name__)

WEBHOOK, MAIL = "webhook", "mail"
KIND = "night"
HOLD_S = 120.0
TIMEOUT_S = 20.0
DELAYS_MIN = (1, 5, 15, 60, 180, 360)
"""Minutes until the next try; a receiver that is away for a morning still gets its report."""


class DeliveryFailed(Exception):
    """A receiver did not take a message; the text says why."""


def queue(conn: Any, settings: ApiSettings, report: dict[str, Any], now: datetime) -> None:
    """Put a night's report into the outbox for every receiver that is configured, in the caller's transaction."""
    for target, wanted in ((WEBHOOK, settings.webhook_url), (MAIL, settings.smtp_url and settings.mail_to)):
        if wanted:
            webhooks.enqueue(conn, WebhookRecord(target=target, kind=KIND, payload=report, created_at=now, next_at=now))


def send_due(db: Database, settings: ApiSettings, now: datetime) -> int:
    """Send what is due and return how many messages were taken by their receivers."""
    with db.write() as conn:
        due = webhooks.take_due(conn, now, hold_s=HOLD_S)
    return sum(_send(db, settings, message, now) for message in due)


def _send(db: Database, settings: ApiSettings, message: WebhookRecord, now: datetime) -> bool:
    senders: dict[str, Callable[[ApiSettings, WebhookRecord], None]] = {WEBHOOK: post_webhook, MAIL: send_mail}
    try:
        senders[message.target](settings, message)
    except (DeliveryFailed, ValueError, TemplateError) as error:
        # Values that no library can send (an address with a line break, a password that is not ASCII), or a report of
        # an older version: tried again and given up like the rest, so that it holds up no other message.
        tries = message.attempts + 1
        again = now + timedelta(minutes=DELAYS_MIN[tries - 1]) if tries <= len(DELAYS_MIN) else None
        log.warning("night.not_sent", target=message.target, error=str(error), again_at=again)
        with db.write() as conn:
            webhooks.failed(conn, message.id, str(error), again_at=again)
        return False
    with db.write() as conn:
        webhooks.sent(conn, message.id, now)
    return True


def post_webhook(settings: ApiSettings, message: WebhookRecord) -> None:
    """POST a report as JSON, with its Markdown beside it, signed when there is a secret.

    Raises:
        DeliveryFailed: not reachable, or the answer was not 2xx.
    """
    if not settings.webhook_url:
        raise DeliveryFailed("no webhook is configured any more")
    document = {
        "id": message.id,
        "kind": message.kind,
        "text": morning.to_markdown(message.payload),
        "report": message.payload,
    }
    body = json.dumps(document, ensure_ascii=False).encode()
    headers = {"Content-Type": "application/json"}
    secret = _secret(settings.webhook_secret)
    if secret:
        headers["X-Ratchet-Signature"] = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
    try:
        status = post_json(_secret(settings.webhook_url), body, headers, timeout_s=TIMEOUT_S)
    except TransportError as error:
        raise DeliveryFailed(str(error)) from error
    if not 200 <= status < 300:
        raise DeliveryFailed(f"the webhook answered {status}")


def send_mail(settings: ApiSettings, message: WebhookRecord) -> None:
    """Send a report as an e-mail with a text and an HTML part.

    Raises:
        DeliveryFailed: the mail server is not reachable or refused it.
    """
    url = urlsplit(_secret(settings.smtp_url))
    if not url.hostname or not settings.mail_to:
        raise DeliveryFailed("no mail server or no receiver is configured any more")
    mail = EmailMessage()
    report = message.payload
    mail["Subject"] = f"Ratchet: {report['window']} {report['local_date']}: {report['headline']}".replace("\n", " ")
    mail["From"] = settings.mail_from
    mail["To"] = ", ".join(settings.mail_to)
    mail["Message-ID"] = f"<ratchet-night-{message.id}-{report['local_date']}@{url.hostname}>"
    mail.set_content(morning.to_markdown(report))
    mail.add_alternative(morning.to_html(report), subtype="html")
    try:
        with _connect(url.scheme, url.hostname, url.port) as server:
            if url.username:
                server.login(unquote(url.username), unquote(url.password or ""))
            server.send_message(mail)
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryFailed(f"the mail server did not take it: {error}") from error


def _connect(scheme: str, host: str, port: int | None) -> smtplib.SMTP:
    """Open the connection: TLS from the start, or STARTTLS wherever the server offers it."""
    if scheme == "smtps":
        return smtplib.SMTP_SSL(host, port or 465, timeout=TIMEOUT_S, context=ssl.create_default_context())
    server = smtplib.SMTP(host, port or 587, timeout=TIMEOUT_S)
    server.ehlo()
    if server.has_extn("starttls"):
        server.starttls(context=ssl.create_default_context())
        server.ehlo()
    return server


def _secret(value: str) -> str:
    try:
        return secrets.resolve({"VALUE": value})[0]["VALUE"] if value else ""
    except RatchetError as error:
        raise DeliveryFailed(error.message) from error
