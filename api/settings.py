"""What the service reads from its environment beside the optimizer's settings (`RATCHET_*`)."""

from __future__ import annotations

from typing import Annotated

from pydantic import field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


class ApiSettings(BaseSettings):
    """Settings of the service. Secrets may be references (`env:NAME`, `file:PATH`)."""

    model_config = SettingsConfigDict(env_prefix="RATCHET_", extra="ignore")

    allowed_hosts: Annotated[list[str], NoDecode] = []
    """Further names that the service answers to (the reverse proxy's), separated by commas."""
    public_url: str = ""
    """Where people reach the pages; used for links in reports."""
    webhook_url: str = ""
    """Gets a POST with each night's report."""
    webhook_secret: str = ""
    """Signs webhook bodies: header `X-Ratchet-Signature: sha256=...`."""
    smtp_url: str = ""
    """`smtp://user:password@host:587` (STARTTLS) or `smtps://...:465`; empty: no e-mail."""
    mail_from: str = "ratchet@localhost"
    mail_to: Annotated[list[str], NoDecode] = []

    @field_validator("allowed_hosts", "mail_to", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        if isinstance(value, str):
            return [part.strip() for part in value.split(",") if part.strip()]
        return value
