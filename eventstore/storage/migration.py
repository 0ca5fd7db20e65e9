"""Brings a store to this code's schema, or says why it cannot be used; changes when migrations are run another way."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

import eventstore
from eventstore.domain.errors import StoreOutdated, StoreTooNew, StoreUnusable


def _scripts() -> Path:
    package = Path(eventstore.__file__).parent
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_scripts()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def revisions() -> list[str]:
    """All revisions that this code knows, oldest first."""
    return [script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()][::-1]


def revision_of(connection: Connection) -> str | None:
    """The store's revision; None for a database without any table. `StoreUnusable` for somebody else's database."""
    tables = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars())
    if "alembic_version" in tables:
        found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        if found is not None:
            return str(found)
    if tables - {"alembic_version"}:
        raise StoreUnusable("this database holds other tables and is no kvledger store; name another file")
    return None


def check_current(connection: Connection, shown: str) -> None:
    """Raise where the store is not of exactly this code's schema."""
    known, found = revisions(), revision_of(connection)
    if found == known[-1]:
        return
    if found is None or found in known:
        raise StoreOutdated(shown, found, known[-1])
    raise StoreTooNew(shown, found, known[-1])


def migrate(engine: Engine, shown: str) -> tuple[str | None, str]:
    """Create or upgrade the schema in one transaction; returns the revisions before and after.

    Two processes at once: the second waits for the first and then finds nothing to do.
    """
    known = revisions()
    with engine.begin() as connection:
        before = revision_of(connection)
        if before is not None and before not in known:
            raise StoreTooNew(shown, before, known[-1])
        if before != known[-1]:
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    return before, known[-1]
