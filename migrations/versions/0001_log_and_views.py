"""The log, the residency and lifecycle views, and the append statement."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def statements(script: str) -> Iterator[str]:
    """The script's statements; SQLite itself says where one ends, since a trigger holds semicolons."""
    collected = ""
    for line in script.splitlines(keepends=True):
        collected += line
        if sqlite3.complete_statement(collected):
            yield collected
            collected = ""


def upgrade() -> None:
    script = Path(__file__).parent.parent / "sql" / "0001_log_and_views.sql"
    connection = op.get_bind()
    for statement in statements(script.read_text(encoding="utf-8")):
        connection.exec_driver_sql(statement)


def downgrade() -> None:
    raise RuntimeError("migrations only go forward: users' data is in these tables")
