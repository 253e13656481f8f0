"""`ratchet serve`: the API, the pages, the dashboard and a worker in one process."""

from __future__ import annotations

import sys

import click

from api.cli.output import say


@click.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address; other than loopback needs a key to exist."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8090, show_default=True, help="0 takes a free one.")
@click.option(
    "--db", "db_url", metavar="URL", help="Database URL (or RATCHET_DB_URL); default: a SQLite file of your own."
)
@click.option("--no-worker", is_flag=True, help="Serve only; `ratchet worker` elsewhere does the work.")
def serve(host: str, port: int, db_url: str | None, no_worker: bool) -> None:
    """Serve the API under /api/v1, the pages at / and the Optuna dashboard at /dashboard, with a worker."""
    from api import serve as service
    from api.cli.database import open_migrated, settings_for

    service.configure_logging()
    settings = settings_for(db_url)
    db = open_migrated(settings)
    try:
        code = service.serve(db, settings, host=host, port=port, with_worker=not no_worker, say=say)
    finally:
        db.close()
    sys.exit(code)
