"""How Alembic reaches the database: the connection that `storage.migrate` hands over, or the one of `-x db=URL`."""

from __future__ import annotations

from sqlalchemy import Connection

from alembic import context
from storage import tables
from storage.engine import open_database
from storage.migrate import VERSION_TABLE, alone, only_ours


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=tables.metadata,
        version_table=VERSION_TABLE,
        include_object=only_ours,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


handed_over = context.config.attributes.get("connection")
if handed_over is not None:
    _migrate(handed_over)
else:
    database = open_database(context.get_x_argument(as_dictionary=True).get("db"))
    with alone(database) as connection:
        _migrate(connection)
    database.close()
