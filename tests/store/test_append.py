"""A batch goes in whole or not at all, once, in order, in one statement, and from the current epoch only."""

from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from eventstore.domain.errors import Conflict, Fenced, NoSuchStream, OutOfOrder, StoreDamaged
from eventstore.domain.place import PRIMARY
from eventstore.log.append import Outcome, append
from eventstore.log.stream import one_stream
from tests.scheduler import removed, stored
from tests.store.batches import append_alone, content, open_hand
from tests.stores import chunk, findings, session_on, settle, store_chunk, take


@pytest.mark.parametrize("own_transaction", [True, False], ids=["one_statement", "in_a_transaction"])
def test_a_row_that_cannot_go_in_takes_its_whole_batch_with_it(engine: Engine, own_transaction: bool) -> None:
    hand = open_hand(engine)
    batch = hand.stores(7, 8)
    level = "AUTOCOMMIT" if own_transaction else "SERIALIZABLE"
    with engine.connect().execution_options(isolation_level=level) as connection:
        # The third of the batch's four events finds its seq taken.
        connection.exec_driver_sql("INSERT INTO event VALUES (?, ?, 0, 9, 0, 0, 0)", (hand.stream, hand.last_seq + 3))
        before = content(connection)
        with pytest.raises(StoreDamaged, match="UNIQUE constraint failed"):
            append(connection, batch)
        assert content(connection) == before


def test_a_connection_goes_on_after_a_batch_that_failed(engine: Engine, path: Path) -> None:
    hand = open_hand(engine)
    batch = hand.stores(7, 8)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        stray = (hand.stream, hand.last_seq + 3)
        connection.exec_driver_sql("INSERT INTO event VALUES (?, ?, 0, 9, 0, 0, 0)", stray)
        with pytest.raises(StoreDamaged):
            append(connection, batch)
        connection.exec_driver_sql("DELETE FROM event WHERE stream = ? AND seq = ?", stray)
        assert append(connection, batch) is Outcome.APPENDED
    assert findings(path) == []


def test_the_same_batch_again_changes_nothing(engine: Engine) -> None:
    hand = open_hand(engine)
    batch = hand.stores(7)
    assert append_alone(engine, batch) is Outcome.APPENDED
    with engine.connect() as connection:
        before = content(connection)
        assert append(connection, batch) is Outcome.ALREADY_THERE
        assert content(connection) == before


def test_batches_delivered_twice_and_late_are_in_the_log_once_and_in_order(engine: Engine, path: Path) -> None:
    hand = open_hand(engine)
    batches = [hand.done(hand.stores(number)) for number in range(11)]
    for batch in batches:
        append_alone(engine, batch)
    assert [append_alone(engine, batch) for batch in [*batches[::-1], *batches]] == [Outcome.ALREADY_THERE] * 22
    assert findings(path) == []


def test_other_content_under_seqs_that_are_taken_is_a_conflict(engine: Engine) -> None:
    hand = open_hand(engine)
    append_alone(engine, hand.stores(7))
    with pytest.raises(Conflict, match=f"seq {hand.last_seq + 1} is in the log already"):
        append_alone(engine, hand.stores(8))


def test_other_content_is_a_conflict_when_the_log_has_gone_on(engine: Engine) -> None:
    hand = open_hand(engine)
    other = hand.stores(8)
    append_alone(engine, hand.done(hand.stores(7)))
    append_alone(engine, hand.done(hand.stores(9)))
    with pytest.raises(Conflict):
        append_alone(engine, other)


def test_a_batch_that_leaves_a_hole_is_refused(engine: Engine) -> None:
    hand = open_hand(engine)
    first = hand.done(hand.stores(1))
    second = hand.done(hand.stores(2))
    with pytest.raises(OutOfOrder, match="from seq 4 does not continue the log, which ends at 1"):
        append_alone(engine, second)
    append_alone(engine, first)
    assert append_alone(engine, second) is Outcome.APPENDED


def test_a_batch_that_continues_another_history_is_refused(engine: Engine) -> None:
    hand = open_hand(engine)
    hand.chain = b"x" * len(hand.chain)
    with pytest.raises(OutOfOrder):
        append_alone(engine, hand.stores(1))


def test_a_batch_for_a_stream_that_is_not_there_is_refused(engine: Engine) -> None:
    hand = open_hand(engine)
    hand.stream += 1
    with pytest.raises(NoSuchStream):
        append_alone(engine, hand.stores(1))


def test_an_older_epoch_can_append_nothing_once_a_newer_one_has_begun(engine: Engine) -> None:
    old = open_hand(engine)
    open_hand(engine)
    with pytest.raises(Fenced, match="epoch 1 of stream 1 is over"):
        append_alone(engine, old.stores(1))


def test_what_an_older_epoch_had_appended_is_still_there_when_it_asks_again(engine: Engine) -> None:
    old = open_hand(engine)
    batch = old.stores(1)
    append_alone(engine, batch)
    open_hand(engine)
    assert append_alone(engine, batch) is Outcome.ALREADY_THERE


def test_seqs_go_on_after_every_event_is_gone(engine: Engine) -> None:
    hand = open_hand(engine)
    append_alone(engine, hand.done(hand.stores(1, 2)))
    with engine.begin() as connection:
        for table in ("event", "payload", "batch", "chunk"):
            connection.exec_driver_sql(f"DELETE FROM {table}")
    after = open_hand(engine)
    append_alone(engine, after.done(after.stores(3)))
    with engine.begin() as connection:
        seqs = list(connection.exec_driver_sql("SELECT seq FROM event ORDER BY seq").scalars())
        assert seqs == [6, 7, 8]
        assert one_stream(connection, None).last_seq == 8


def test_a_writer_sends_one_statement_a_batch_once_the_chunks_are_known(engine: Engine) -> None:
    statements: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def _sent(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    with session_on(engine) as session:
        store_chunk(session.tracker, 1, PRIMARY)
        settle(session)
        commits = session.writer.commits
        statements.clear()
        for _ in range(10):
            take(session.tracker, removed(PRIMARY, chunk(1)))
            settle(session)
            take(session.tracker, stored(PRIMARY, chunk(1)))
            settle(session)
        assert session.writer.commits == commits + 20
    assert [sql.split(" (")[0] for sql in statements] == ["INSERT INTO append"] * 20
