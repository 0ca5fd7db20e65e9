"""Plain tuples out of a statement; changes with how rows are fetched fastest.

SQLAlchemy's rows cost more than SQLite's: for who reads a log by the million, and looks at each field once.
"""

from typing import Any

from sqlalchemy import Connection


def tuples(connection: Connection, statement: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All rows of a statement with `?` for its parameters. Nothing of it is open afterwards."""
    with connection.exec_driver_sql(statement, parameters) as result:
        return list(result.cursor.fetchall())
