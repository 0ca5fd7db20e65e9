"""The views for people, with more columns; statistics for the planner, so that their plans hold on a large store."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


# As in 0001, and on purpose not shared with it: what one migration does must not change with another.
def statements(script: str) -> Iterator[str]:
    """The script's statements; SQLite itself says where one ends."""
    collected = ""
    for line in script.splitlines(keepends=True):
        collected += line
        if sqlite3.complete_statement(collected):
            yield collected
            collected = ""


def upgrade() -> None:
    script = Path(__file__).parent.parent / "sql" / "0002_views_for_people.sql"
    connection = op.get_bind()
    for statement in statements(script.read_text(encoding="utf-8")):
        connection.exec_driver_sql(statement)


def downgrade() -> None:
    raise RuntimeError("migrations only go forward: users' data is in these tables")
