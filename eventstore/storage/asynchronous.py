"""Opens a store for asynchronous readers; changes with how the asynchronous driver has to be set up.

An engine is all that is asynchronous here: the functions over a `Connection` are called through `run_sync`, and none
exists twice.
"""

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from eventstore.storage.engine import BUSY_TIMEOUT_MS, configure, database_uri
from eventstore.storage.migration import check_current
from eventstore.storage.store import existing
from eventstore.storage.url import show


async def open_for_following(store: str) -> AsyncEngine:
    """An engine that can only read, over a store that exists and is of this code's schema. Dispose of it when done.

    It keeps no connection: each is a thread and an open file, and a forgotten one would outlive its reader.
    """
    url = existing(store)
    uri = database_uri(url, "sqlite+aiosqlite", read_only=True)
    engine = create_async_engine(uri, poolclass=NullPool, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000})
    configure(engine.sync_engine, show(url), read_only=True, synchronous="normal")
    try:
        async with engine.connect() as connection:
            await connection.run_sync(check_current, show(url))
    except BaseException:
        await engine.dispose()
        raise
    return engine
