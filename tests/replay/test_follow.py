"""Following a stream as it grows, asynchronously: everything once, in order, and nothing left behind."""

import asyncio
import os
import random
import sqlite3
import threading
from contextlib import aclosing
from pathlib import Path

import pytest
from sqlalchemy import Engine

from eventstore.domain.errors import Forked, NoSuchStream, Pruned
from eventstore.domain.events import PLACEHOLDER
from eventstore.log.append import append
from eventstore.log.cursor import Cursor, beginning
from eventstore.replay import follow as following
from eventstore.replay.follow import follow
from eventstore.storage.asynchronous import open_for_following
from tests.replay.handmade import CPU, Handmade, key

pytestmark = pytest.mark.asyncio

BATCHES, EVENTS_A_BATCH, CANCELLATIONS = 150, 400, 50


def _grow(log: Handmade, stores: int = 1) -> None:
    for number in range(stores):
        chunk = key(log.seq * 1_000 + number)
        log.describe(chunk, b"")
        log.store(chunk, CPU, PLACEHOLDER)
    log.commit()


async def _no_wait(_: float) -> None:
    raise AssertionError("there was something to say, and it waits")


def _left_behind(path: Path) -> tuple[int, list[str]]:
    """How many files of the store are open in this process, and the threads that run in it."""
    fds = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _exists(fd)]
    threads = sorted(thread.name for thread in threading.enumerate())
    return sum(fd.startswith(str(path)) for fd in fds), threads


def _exists(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


class Writing(threading.Thread):
    """Appends batches as fast as the store takes them."""

    def __init__(self, log: Handmade) -> None:
        super().__init__(name="writer")
        self._engine: Engine = log.engine
        self._batches = []
        for _ in range(BATCHES):
            for number in range(EVENTS_A_BATCH // 2):
                chunk = key(log.seq * 1_000 + number)
                log.describe(chunk, b"")
                log.store(chunk, CPU, PLACEHOLDER)
            log.step()
            self._batches.append(log.batch())

    def run(self) -> None:
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for batch in self._batches:
                append(connection, batch)


async def test_beside_a_writer_each_event_is_seen_once_in_order_through_cancellations_and_restarts(
    tmp_path: Path,
) -> None:
    with Handmade(tmp_path / "grown.db") as log:
        writer, rnd = Writing(log), random.Random(7)
        before = _left_behind(log.path)
        engine = await open_for_following(str(log.path))
        seen: list[int] = []
        cursor = beginning(log.name)

        async def read() -> None:
            nonlocal cursor
            async with aclosing(follow(engine, cursor)) as pages:
                async for page in pages:
                    # Handled and noted at once: nothing can come between the two.
                    seen.extend(item.content["seq"] for item in page.items)
                    cursor = page.cursor
                    if cursor.seq == log.seq:
                        return

        writer.start()
        cancelled = 0
        while cursor.seq < log.seq:
            task = asyncio.create_task(read())
            if cancelled < CANCELLATIONS:
                for _ in range(rnd.randrange(60)):
                    await asyncio.sleep(0)
                cancelled += task.cancel()
            await asyncio.wait((task,))
            assert task.cancelled() or task.exception() is None
        writer.join()
        await engine.dispose()
        assert seen == list(range(1, log.seq + 1))
        assert cancelled == CANCELLATIONS
        assert _left_behind(log.path) == before


async def test_a_cancellation_at_any_await_leaves_no_connection_and_no_thread(tmp_path: Path) -> None:
    with Handmade(tmp_path / "grown.db") as log:
        _grow(log)
        before = _left_behind(log.path)
        engine = await open_for_following(str(log.path))
        turns = ended = 0
        while ended < 3:
            pages = follow(engine, beginning(log.name))
            task = asyncio.ensure_future(anext(pages))
            for _ in range(turns):
                if task.done():
                    break
                await asyncio.sleep(0)
            ended += task.done()
            task.cancel()
            await asyncio.wait((task,))
            await pages.aclose()
            assert _left_behind(log.path)[0] == before[0], f"cancelled after {turns} turns of the loop"
            turns += 1 + turns // 8
        await engine.dispose()
        assert _left_behind(log.path) == before


async def test_while_it_waits_and_while_a_page_is_looked_at_the_log_can_be_checkpointed(tmp_path: Path) -> None:
    with Handmade(tmp_path / "grown.db") as log:
        _grow(log, 3_000)
        engine = await open_for_following(str(log.path))
        waiting = asyncio.Event()

        async def sleep(_: float) -> None:
            waiting.set()
            await asyncio.Event().wait()

        async def read() -> None:
            async for page in follow(engine, beginning(log.name), sleep=sleep):
                assert page.items
                assert _checkpointed(log.path)

        task = asyncio.create_task(read())
        await waiting.wait()
        _grow(log)
        assert _checkpointed(log.path)
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled()
        await engine.dispose()


def _checkpointed(path: Path) -> bool:
    """Whether another connection can bring all of the write-ahead log into the file and cut it to nothing."""
    other = sqlite3.connect(path)
    busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    other.close()
    return not busy and Path(f"{path}-wal").stat().st_size == 0 if Path(f"{path}-wal").exists() else not busy


async def test_it_looks_again_ever_more_rarely_and_often_again_once_something_came(tmp_path: Path) -> None:
    with Handmade(tmp_path / "grown.db") as log:
        engine = await open_for_following(str(log.path))
        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 10:
                _grow(log)

        pages = follow(engine, Cursor(log.name, log.seq, log.chain), sleep=sleep)
        await anext(pages)
        last = following.LAST_PAUSE_S
        assert pauses[0] == following.FIRST_PAUSE_S
        assert pauses[:8] == sorted(pauses[:8])
        assert pauses[8:] == [last, last]
        _grow(log)
        await anext(pages)
        reader = asyncio.ensure_future(anext(pages))
        while len(pauses) == 10:
            await asyncio.sleep(0)
        assert pauses[10] == following.FIRST_PAUSE_S
        reader.cancel()
        await asyncio.wait((reader,))
        await engine.dispose()


async def test_a_cursor_within_a_batch_is_of_its_history_and_goes_on_within_it(tmp_path: Path) -> None:
    with Handmade(tmp_path / "grown.db") as log:
        _grow(log, 5)
        engine = await open_for_following(str(log.path))
        with pytest.raises(Forked):
            await anext(follow(engine, Cursor(log.name, 4, b"another history!"), sleep=_no_wait))
        page = await anext(follow(engine, Cursor(log.name, 4, log.chain)))
        await engine.dispose()
        assert [item.content["seq"] for item in page.items] == list(range(5, 12))
        assert page.cursor == Cursor(log.name, 11, log.chain)


async def test_a_history_that_was_pruned_is_said_with_the_floor(tmp_path: Path) -> None:
    with Handmade(tmp_path / "pruned.db") as log:
        _grow(log, 5)
        with log.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM event WHERE seq < 6")
            connection.exec_driver_sql("UPDATE stream SET floor_seq = 6")
        engine = await open_for_following(str(log.path))
        with pytest.raises(Pruned) as caught:
            await anext(follow(engine, beginning(log.name), sleep=_no_wait))
        assert (caught.value.seq, caught.value.floor) == (1, 6)
        page = await anext(follow(engine, Cursor(log.name, 5, log.chain)))
        assert page.items[0].content["seq"] == 6
        await engine.dispose()


async def test_a_log_that_is_shorter_than_what_was_read_has_forked_after_its_end(tmp_path: Path) -> None:
    with Handmade(tmp_path / "short.db") as log:
        _grow(log, 2)
        engine = await open_for_following(str(log.path))
        with pytest.raises(Forked, match="seq 9 was read, and the log ends at 5") as caught:
            await anext(follow(engine, Cursor(log.name, 9, b"another history!"), sleep=_no_wait))
        await engine.dispose()
        assert (caught.value.seq, caught.value.last_seq, caught.value.forked_seq) == (9, 5, 6)


async def test_a_log_with_other_content_under_what_was_read_has_forked_where_its_epoch_began(tmp_path: Path) -> None:
    """As after a power loss: the reader saw events that the new process never knew, and its log has grown past them."""
    with Handmade(tmp_path / "lost.db") as log:
        _grow(log, 2)
        copy = tmp_path / "restored.db"
        with sqlite3.connect(log.path) as source, sqlite3.connect(copy) as target:
            source.backup(target)
        source.close()
        target.close()
        _grow(log, 3)
        seen = Cursor(log.name, log.seq, log.chain)
        with sqlite3.connect(copy) as source, sqlite3.connect(log.path) as target:
            source.backup(target)
        source.close()
        target.close()
        log.seq, log.chain = 5, (await _end(log)).chain
        opened = log.open()
        _grow(log, 9)
        engine = await open_for_following(str(log.path))
        with pytest.raises(Forked, match="history forked at or before seq 6") as caught:
            await anext(follow(engine, seen, sleep=_no_wait))
        await engine.dispose()
        assert (caught.value.seq, caught.value.forked_seq) == (seen.seq, opened)


async def _end(log: Handmade) -> Cursor:
    engine = await open_for_following(str(log.path))
    page = await anext(follow(engine, beginning(log.name)))
    await engine.dispose()
    return page.cursor


async def test_a_stream_that_is_not_there_is_said(tmp_path: Path) -> None:
    with Handmade(tmp_path / "other.db") as log:
        engine = await open_for_following(str(log.path))
        with pytest.raises(NoSuchStream, match="no stream 'mine'"):
            await anext(follow(engine, beginning("mine")))
        await engine.dispose()
