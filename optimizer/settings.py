"""What the service reads from its environment (`RATCHET_*`); everything else is in the database or a spec."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from storage.engine import home_dir
from storage.upkeep import Retention

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Days = Annotated[float | None, Field(gt=0)]


class Settings(BaseSettings):
    """Settings of one process; command line options override them."""

    model_config = SettingsConfigDict(env_prefix="RATCHET_", extra="ignore")

    db_url: str = ""
    """SQLAlchemy URL; empty means a SQLite file in `data_dir`."""
    data_dir: Annotated[Path, AfterValidator(Path.expanduser)] = Field(default_factory=home_dir)
    """Where reports and the default database live."""
    lease_ttl_s: Seconds = 60.0
    lease_renew_s: Seconds = 10.0
    """How often a lease is prolonged; a few times within its length, so that one that failed costs nothing."""
    worker_poll_s: Seconds = 2.0
    keep_requests_days: Days = Retention.requests_days
    keep_logs_days: Days = Retention.logs_days
    keep_series_days: Days = Retention.series_days
    keep_events_days: Days = Retention.events_days
    """How long bulky evidence is kept after the end of its study; `inf` keeps it for ever."""

    @field_validator("lease_renew_s")
    @classmethod
    def _in_time(cls, value: float, info: ValidationInfo) -> float:
        ttl = info.data.get("lease_ttl_s", math.inf)
        if value > ttl / 2:
            raise ValueError(f"must be at most half of RATCHET_LEASE_TTL_S ({ttl:g}), or every lease is lost")
        return value

    @property
    def retention(self) -> Retention:
        """How long each kind of data is kept."""
        return Retention(
            requests_days=self.keep_requests_days,
            logs_days=self.keep_logs_days,
            series_days=self.keep_series_days,
            events_days=self.keep_events_days,
        )

    @property
    def database_url(self) -> str:
        """The database to use."""
        return self.db_url or f"sqlite:///{self.data_dir / 'ratchet.db'}"
