"""Survivors of a restart and what their tiers say of them: confirmed, missing, or spoken of by a live event first."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventstore.domain.place import Medium, Place
from eventstore.domain.policy import TierPolicy
from tests.consumer import Router
from tests.scheduler import make_hash, removed, stored
from tests.stores import PATIENCE_S, chunk, findings, reading, settle, store_chunk, take
from tracker.checker import KEYS_A_QUESTION, Check
from tracker.configuration import Configuration
from tracker.opening import Engineside, Ledger, open_stream
from tracker.publish import Publisher

TIER = Place(Medium.STORAGE, "nvme0")
ANNOUNCES = TierPolicy(announces_removals=True)


class Disk:
    """What lies on a tier's disk, and a check of it that waits while `open` is not set."""

    def __init__(self, *numbers: int) -> None:
        self.keys = {chunk(number) for number in numbers}
        self.asked: list[int] = []
        self.threads: set[int] = set()
        self.open = threading.Event()
        self.open.set()

    def check(self, keys: Sequence[bytes]) -> list[bool]:
        assert self.open.wait(PATIENCE_S)
        self.asked.append(len(keys))
        self.threads.add(threading.get_ident())
        return [key in self.keys for key in keys]


def unreachable(_: Sequence[bytes]) -> list[bool]:
    raise OSError("the disk is away")


def broken(_: Sequence[bytes]) -> list[bool]:
    raise KeyError("a defect of the tier's")


def short(keys: Sequence[bytes]) -> list[bool]:
    return [True] * (len(keys) - 1)


@contextmanager
def life(path: Path, check: Check | None = None, **chosen: Any) -> Iterator[Ledger]:
    """One process of an engine with one tier, left as a crash leaves it."""
    checks: Mapping[str, Check] = {str(TIER): check} if check else {}
    engine = Engineside(self_describing=True, publisher=Publisher(), checks=checks)
    configuration = Configuration(store=str(path), takeover_wait_s=0, tiers={str(TIER): ANNOUNCES}, **chosen)
    ledger = open_stream(configuration, "engine", engine, lambda _: None)
    try:
        yield ledger
    finally:
        ledger.session.abandon()
        ledger.release()


def tell(router: Router, events: list[Any]) -> None:
    router.read(map(msgspec.to_builtins, events))


def first_life(path: Path, router: Router, chunks: int) -> None:
    """An engine that stores so many chunks at the tier, one after the other, tells of them, and dies."""
    with life(path) as ledger:
        for number in range(chunks):
            tell(router, store_chunk(ledger.session.tracker, number, TIER))
            tell(router, settle(ledger.session))


def believed(router: Router) -> set[int]:
    assert set(router.believed.values()) <= {1}
    return {block for _, _, block in router.believed}


def wire(*numbers: int) -> set[int]:
    return {int.from_bytes(make_hash(number)[-8:], "big") for number in numbers}


def in_view(path: Path) -> dict[str, int]:
    """The keys that the view `residency` has, and whether each is confirmed."""
    with reading(path) as (connection, _):
        rows = connection.exec_driver_sql('SELECT "key", confirmed FROM residency').all()
    return {key: confirmed for key, confirmed in rows}


def ends(path: Path) -> dict[str, str]:
    with reading(path) as (connection, _):
        rows = connection.exec_driver_sql('SELECT "key", reason FROM lifecycle WHERE reason IS NOT NULL').all()
    return {key: reason for key, reason in rows}


def test_what_the_tier_has_no_longer_is_closed_as_missing_and_no_router_believes_it(tmp_path: Path) -> None:
    path, router = tmp_path / "ledger.db", Router()
    first_life(path, router, 4)
    with life(path, Disk(0, 2).check) as ledger:
        tell(router, settle(ledger.session))
    assert believed(router) == wire(0, 2)
    assert in_view(path) == {chunk(0).hex(): 1, chunk(2).hex(): 1}
    assert ends(path) == {chunk(1).hex(): "missing", chunk(3).hex(): "missing"}
    assert findings(path) == []


def test_a_missing_chunk_is_removed_without_a_store_before(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    first_life(path, Router(), 2)
    # Without a tail only what the first life told last is told before the answer: chunk 1.
    with life(path, Disk(1).check, tail_ms=0) as ledger:
        out = [msgspec.to_builtins(event) for event in settle(ledger.session)]
    (of_0,) = wire(0)
    assert [event["type"] for event in out if of_0 in event["block_hashes"]] == ["BlockRemoved"]


@pytest.mark.parametrize("announce", ["full", "closes", "none"])
def test_a_survivor_is_unconfirmed_until_its_tier_has_answered(announce: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    first_life(path, Router(), 2)
    disk = Disk(0, 1)
    disk.open.clear()
    with life(path, disk.check, announce=announce) as ledger:
        assert set(in_view(path).values()) == {0}
        disk.open.set()
        settle(ledger.session)
        assert in_view(path) == {chunk(0).hex(): 1, chunk(1).hex(): 1}


@pytest.mark.parametrize("check", [unreachable, broken, short])
def test_a_tier_that_cannot_be_asked_says_nothing_against_the_log(check: Check, tmp_path: Path) -> None:
    path, router = tmp_path / "ledger.db", Router()
    first_life(path, router, 3)
    with life(path, check) as ledger:
        tell(router, settle(ledger.session))
    assert believed(router) == wire(0, 1, 2)
    assert set(in_view(path)) == {chunk(number).hex() for number in range(3)}


def test_a_live_event_outruns_the_answer_about_the_time_before(tmp_path: Path) -> None:
    path, router = tmp_path / "ledger.db", Router()
    first_life(path, router, 3)
    disk = Disk(1)
    disk.open.clear()
    with life(path, disk.check) as ledger:
        tracker = ledger.session.tracker
        # The tier writes 0 again, and evicts 1 and tells of it, while the question is out.
        tell(router, take(tracker, stored(TIER, chunk(0)), removed(TIER, chunk(1))))
        disk.open.set()
        tell(router, settle(ledger.session))
    assert believed(router) == wire(0)
    assert set(in_view(path)) == {chunk(0).hex()}
    assert ends(path) == {chunk(1).hex(): "evicted", chunk(2).hex(): "missing"}


def test_a_tier_is_asked_off_the_engines_thread_a_bounded_number_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    count = KEYS_A_QUESTION + 1
    with life(path) as ledger:
        take(ledger.session.tracker, stored(TIER, *map(chunk, range(count))))
        settle(ledger.session)
    disk = Disk(*range(count))
    with life(path, disk.check) as ledger:
        settle(ledger.session)
    assert disk.asked == [KEYS_A_QUESTION, 1]
    assert threading.get_ident() not in disk.threads


def test_a_router_that_forgot_everything_at_the_restart_is_told_of_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    first_life(path, Router(), 3)
    router = Router()
    with life(path, Disk(0, 1).check) as ledger:
        tell(router, settle(ledger.session))
    assert believed(router) == wire(0, 1)
