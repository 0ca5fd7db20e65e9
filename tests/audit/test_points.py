"""A point of a stream is a seq or a time; a time means all before the first event that is later."""

from pathlib import Path

import pytest

from eventstore.domain.errors import BadInput
from eventstore.domain.point import Moment, Seq, parse_point
from eventstore.log.points import seq_at
from eventstore.storage.store import open_for_writing
from tests.replay.handmade import BEGINS, CPU, SECOND, Handmade, described, key
from tests.stores import reading

#: 2023-11-14T22:13:20Z.
T = BEGINS


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("0", Seq(0)),
        ("24897", Seq(24_897)),
        ("@1700000000000000000", Moment(T)),
        ("@-1", Moment(-1)),
        ("2023-11-14T22:13:20Z", Moment(T)),
        ("2023-11-14T22:13:20", Moment(T)),
        ("2023-11-14 22:13:20+00:00", Moment(T)),
        ("2023-11-15T00:13:20+02:00", Moment(T)),
        ("20231114T221320Z", Moment(T)),
        ("2023-11-14T22:13:20.000000001Z", Moment(T + 1)),
        ("2023-11-14T22:13:20,25-00:00", Moment(T + SECOND // 4)),
        ("20231114T221320.5", Moment(T + SECOND // 2)),
        ("2023-11-14T22:13:20.1234567899Z", Moment(T + 123_456_789)),
        ("2023-11-14T22:13Z", Moment(T - 20 * SECOND)),
        ("2023-11-14", Moment(T - 80_000 * SECOND)),
        ("1969-12-31T23:59:59.75Z", Moment(-SECOND // 4)),
    ],
)
def test_a_point_is_a_number_or_a_time_to_the_nanosecond(text: str, point: Seq | Moment) -> None:
    assert parse_point(text) == point


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "-3",
        "1.5",
        "1e9",
        "@",
        "@1.5",
        "9" * 30,
        "2023-11-14T25:00:00Z",
        "2023-02-29",
        "2023-11-14T22.5Z",
        "2023-11-14T22:13:20.5.5Z",
        "3000-01-01",
        "1500-01-01",
        "@9223372036854775808",
    ],
)
def test_what_is_neither_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_point(text)
    assert repr(text) in str(refused.value)


@pytest.fixture
def stepping(tmp_path: Path) -> Path:
    """Seqs 1 to 6 at 0, 10, 20, 5, 30 and 12 seconds: the clock steps back twice."""
    with Handmade(tmp_path / "k.db") as made:
        for number, at in enumerate((10, 20, 5, 30, 12), 1):
            made.step()
            made.now = T + at * SECOND
            made.describe(key(number), described(number))
        made.commit()
    return made.path


@pytest.mark.parametrize(
    ("seconds", "seq"),
    [
        (-1, 0),
        (0, 1),
        (9.999999999, 1),
        (10, 2),
        (12, 2),
        (19, 2),
        (20, 4),
        (29, 4),
        (30, 6),
        (1_000, 6),
    ],
)
def test_a_time_is_the_last_event_before_the_first_that_is_later(stepping: Path, seconds: float, seq: int) -> None:
    with reading(stepping) as (connection, stream):
        assert seq_at(connection, stream, Moment(T + round(seconds * SECOND))) == seq


@pytest.mark.parametrize("seq", [0, 1, 6])
def test_a_seq_is_itself(stepping: Path, seq: int) -> None:
    with reading(stepping) as (connection, stream):
        assert seq_at(connection, stream, Seq(seq)) == seq


def test_a_seq_that_the_log_does_not_have_is_refused_with_what_it_has(stepping: Path) -> None:
    with reading(stepping) as (connection, stream), pytest.raises(BadInput, match=r"no seq 7: .* to 6"):
        seq_at(connection, stream, Seq(7))


@pytest.mark.parametrize("point", [Seq(2), Moment(T)])
def test_what_was_pruned_is_refused_with_the_floor(stepping: Path, point: Seq | Moment) -> None:
    engine, _ = open_for_writing(str(stepping))
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM event WHERE seq < 4")
        connection.exec_driver_sql("UPDATE stream SET floor_seq = 4")
    engine.dispose()
    with reading(stepping) as (connection, stream), pytest.raises(BadInput, match="the floor is 4"):
        seq_at(connection, stream, point)


def test_a_stream_without_events_is_before_all_at_any_time(tmp_path: Path) -> None:
    with Handmade(tmp_path / "k.db") as made:
        made.describe(key(1), described(1))
        made.store(key(1), CPU)
        made.commit()
    with reading(made.path) as (connection, stream):
        assert seq_at(connection, stream, Moment(T - 1)) == 0
