"""A stream as it grows: what is there, and then what comes; changes with how a reader waits.

While it waits, and while its caller has a page, a follower holds nothing of the database: no transaction, no cursor,
no connection. A page is read uncut, so that no cancellation leaves a connection or its thread behind.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from eventstore.log.cursor import Cursor
from eventstore.replay.form import Form
from eventstore.replay.lines import LogLines
from eventstore.replay.pace import Pace
from eventstore.replay.reader import Read, Reader
from eventstore.replay.run import due

#: How long a follower waits before it looks again, in seconds: doubled from the first to the last while nothing comes.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.005, 0.5

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[object]]


async def follow(
    engine: AsyncEngine,
    cursor: Cursor,
    form: Form | None = None,
    *,
    upto: int | None = None,
    with_state: bool = False,
    sleep: Sleep = asyncio.sleep,
) -> AsyncGenerator[Read, None]:
    """Every page after `cursor`, and then each that comes; with `upto`, it ends there. Default form: `LogLines`.

    Go on later from the last page whose items were handled: its `cursor` moves with them. Raises `Pruned` where what
    follows the cursor is gone, `Forked` where the log is not the one that was read, `NoSuchStream`.
    """
    reader = Reader(form or LogLines(cursor.seq + 1, upto), cursor, upto, with_state=with_state)
    pause = FIRST_PAUSE_S
    while not reader.is_done:
        found = await _uncut(_read(engine, reader))
        if found.moved:
            pause = FIRST_PAUSE_S
            yield found
        else:
            await sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_S)


async def contents(
    pages: AsyncIterator[Read], pace: Pace | None = None, sleep: Sleep = asyncio.sleep
) -> AsyncGenerator[Any, None]:
    """What the pages of `follow` hold, one by one, at a pace."""
    async for read in pages:
        for wait_s, some in due(read.items, pace):
            if wait_s:
                await sleep(wait_s)
            for one in some:
                yield one


async def _read(engine: AsyncEngine, reader: Reader) -> Read:
    async with engine.connect() as connection:
        return await connection.run_sync(reader.read)


async def _uncut(work: Coroutine[Any, Any, T]) -> T:
    """`work` to its end, which is a page away; only then is a cancellation heeded."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError:
                continue
        if not task.cancelled():
            task.exception()  # looked at, so that nobody warns that nobody did
        raise
