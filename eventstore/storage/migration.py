"""Brings a store to this code's schema, or says why it cannot be used; changes when migrations are run another way."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

import eventstore
from eventstore.domain.errors import StoreDamaged, StoreOutdated, StoreTooNew, StoreUnusable

#: SQLite's mark of whose file it is, set by the first migration; in users' stores, so it never changes.
APPLICATION_ID = 0x6B766C64


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


def revision_of(connection: Connection, shown: str) -> str | None:
    """The store's revision; None for a database with nothing in it. `StoreUnusable` for somebody else's database."""
    (mark,) = connection.exec_driver_sql("PRAGMA application_id").one()
    if mark == APPLICATION_ID:
        found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalars().all()
        if len(found) != 1:
            raise StoreDamaged(f"store {shown}: is damaged, it has {len(found)} schema revisions; restore a backup")
        return str(found[0])
    # Empty is what SQLite says is empty: views and triggers are somebody's, too.
    if mark or connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one():
        raise StoreUnusable(f"store {shown}: this database is another program's; name another file")
    return None


def check_usable(connection: Connection, shown: str) -> str | None:
    """The store's revision, where this code can open or upgrade it. Raises where it cannot."""
    known, found = revisions(), revision_of(connection, shown)
    if found is not None and found not in known:
        raise StoreTooNew(shown, found, known[-1])
    return found


def check_current(connection: Connection, shown: str) -> None:
    """Raise where the store is not of exactly this code's schema."""
    newest, found = revisions()[-1], check_usable(connection, shown)
    if found != newest:
        raise StoreOutdated(shown, found, newest)


def migrate(engine: Engine, shown: str) -> tuple[str | None, str]:
    """Create or upgrade the schema in one transaction; returns the revisions before and after.

    Two processes at once: the second waits for the first and then finds nothing to do.
    """
    newest = revisions()[-1]
    with engine.begin() as connection:
        before = check_usable(connection, shown)
        if before != newest:
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    return before, newest
