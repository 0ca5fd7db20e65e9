"""Which store a user means; changes when another kind of address is accepted."""

import re
from pathlib import Path

from platformdirs import user_state_path
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from eventstore.domain.errors import BadInput, StoreUnusable


def default_store(stream: str | None = None) -> str:
    """The store used where none is named: a file in the user's state folder, one a stream where `stream` is given."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", stream).strip("_.") if stream is not None else "kvledger"
    return str(user_state_path("kvledger") / f"{name or 'kvledger'}.db")


def parse_store(text: str) -> URL:
    """The SQLAlchemy URL of the store that `text` names: a URL, or the path of an SQLite file.

    Raises `BadInput` for an address that names no database, `StoreUnusable` for a database that is not supported.
    """
    if not text.strip():
        raise BadInput("the store's address is empty: give a file or a URL such as sqlite:///kvledger.db")
    if "\0" in text:
        raise BadInput("the store's address holds a NUL character: give a file or a URL such as sqlite:///kvledger.db")
    if "://" not in text:
        if text.startswith("sqlite:"):
            raise BadInput(f"store {text!r}: an SQLite URL has three slashes, as in sqlite:///kvledger.db")
        return _file(URL.create("sqlite", database=text))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # The text is not repeated: what cannot be parsed may still hold a password.
        raise BadInput("the store's URL cannot be parsed: write it as sqlite:///path/to/kvledger.db") from None
    if url.drivername not in ("sqlite", "sqlite+pysqlite", "sqlite+aiosqlite"):
        # Nothing but the driver is repeated: a password with an @ or a / in it ends up in other parts of the URL.
        raise StoreUnusable(
            f"store {url.drivername}://...: driver {url.drivername!r} is not supported; use sqlite:///path/to/kvledger.db"
        )
    if url.host or url.username or url.password or url.port:
        raise BadInput("the store's URL names a host or a user: write it with three slashes, as sqlite:///kvledger.db")
    if url.query:
        raise BadInput(f"store {show(url)}: options in the URL are not supported; name the file alone")
    return _file(url.set(drivername="sqlite"))


def _file(url: URL) -> URL:
    name = url.database
    if not name or name == ":memory:" or name.startswith("file:"):
        raise BadInput(
            f"store {name or ''!r}: name a file, as in sqlite:///kvledger.db; a ledger in memory would record nothing"
        )
    return url


def store_path(url: URL) -> Path:
    """The file behind an SQLite URL."""
    return Path(str(url.database))


def show(url: URL) -> str:
    """The store as it may be printed and given again: its file's path."""
    return str(url.database)
