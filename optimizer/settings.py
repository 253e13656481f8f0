"""What the service reads from its environment (`RATCHET_*`); everything else is in the database or a spec."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


def default_data_dir() -> Path:
    """Return `$RATCHET_HOME`, or `~/.local/share/ratchet`."""
    home = os.environ.get("RATCHET_HOME")
    return Path(home) if home else Path.home() / ".local" / "share" / "ratchet"


class Settings(BaseSettings):
    """Settings of one process; command line options override them."""

    model_config = SettingsConfigDict(env_prefix="RATCHET_", extra="ignore")

    db_url: str = ""
    """SQLAlchemy URL; empty means a SQLite file in `data_dir`."""
    data_dir: Path = Field(default_factory=default_data_dir)
    """Where reports and the default database live."""
    lease_ttl_s: float = 60.0
    lease_renew_s: float = 10.0
    worker_poll_s: float = 2.0

    @property
    def database_url(self) -> str:
        """The database to use."""
        return self.db_url or f"sqlite:///{self.data_dir / 'ratchet.db'}"
