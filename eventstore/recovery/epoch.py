"""Opens an epoch in one transaction; changes with what a new process ends.

`epoch_started` is one event and itself the end of every residency whose place does not survive a restart, whose
fingerprint differs or whose tier is gone. From the commit on, the epoch before is fenced out.
"""

from typing import Any

import msgspec
from sqlalchemy import Connection, select

from eventstore.domain import clock
from eventstore.domain.events import End, Kind, PlaceRow, Reason, StreamBody, decode_body, encode_body, pack_fact
from eventstore.domain.policy import PolicyTable
from eventstore.log.append import Step, append, build
from eventstore.log.read import batches_backwards
from eventstore.log.stream import begin_epoch, create_stream, find_stream, places_of
from eventstore.storage import schema
from eventstore.storage.codec import Described, Header

#: The fingerprint's entry for the engine as a whole (model, dtype, layout); the others are named after places.
ENGINE = "engine"


class Opening(msgspec.Struct, frozen=True):
    """What a process says of itself when it opens a stream.

    fingerprint: by `ENGINE` and by place, what decides whether survivors still hold; empty: everything does.
    tail_ns: how long what was logged may not have been sent, before the old epoch's last commit.
    """

    stream: str
    boot_id: str = ""
    host: str = ""
    pid: int = 0
    versions: dict[str, str] = {}
    fingerprint: dict[str, Any] = {}
    policies: PolicyTable = PolicyTable()
    announce: str = "full"
    tail_ns: int = 2_000_000_000
    heartbeat_every_ns: int = 10_000_000_000
    #: Places whose tier will be asked what is there: their survivors are unconfirmed until it has answered.
    checked: frozenset[str] = frozenset()


class Opened(msgspec.Struct, frozen=True):
    """An epoch that has begun. `told_seq`: what lies behind it may not have reached consumers and is told again."""

    stream: int
    epoch: int
    seq: int
    chain: bytes
    places: list[PlaceRow]
    handed_out: int
    told_seq: int
    opened_steady_ns: int
    heartbeat_every_ns: int = 0


def open_epoch(connection: Connection, opening: Opening) -> Opened:
    """Begin the next epoch of the stream, made here if it is new. The caller's transaction makes it true."""
    row = find_stream(connection, opening.stream) or create_stream(connection, opening.stream)
    epoch = begin_epoch(connection, row.stream, opening.heartbeat_every_ns)
    places = places_of(connection, row.stream)
    handed_out, told_seq = _handed_out(connection, row.stream, opening.tail_ns)
    now, seq = clock.wall_ns(), row.last_seq + 1
    body = StreamBody(
        epoch=epoch,
        boot_id=opening.boot_id,
        host=opening.host,
        pid=opening.pid,
        versions=opening.versions,
        fingerprint=opening.fingerprint,
        policies=_policies_as_words(opening.policies, places),
        announce=opening.announce,
        synchronous=_synchronous(connection),
        continues=row.chain.hex(),
        ends=_ends(opening, places, _last_fingerprint(connection, row.stream)),
        unconfirmed=[one.number for one in places if str(one.place) in opening.checked],
    )
    batch = build(
        row.stream,
        Header(seq, seq, epoch, now, 0, handed_out),
        row.chain,
        [Step(seq, now, [pack_fact(Kind.EPOCH_STARTED)])],
        [Described(seq, 0, encode_body(body))],
        [],
        {},
    )
    append(connection, batch)
    return Opened(
        row.stream, epoch, seq, batch.chain, places, handed_out, told_seq, clock.steady_ns(), opening.heartbeat_every_ns
    )


def _synchronous(connection: Connection) -> str:
    """What the database says that it does with each commit, whatever was asked of it."""
    value = int(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())
    return ("off", "normal", "full", "extra")[value]


def _ends(opening: Opening, places: list[PlaceRow], before: dict[str, Any]) -> list[End]:
    """Which places end, and why; the first reason that holds."""
    ends = []
    now = opening.fingerprint
    for row in places:
        name = str(row.place)
        if not opening.policies.survives_restart(row.place):
            ends.append(End(row.number, Reason.ENGINE_RESTART))
        elif now and ENGINE in before and before[ENGINE] != now.get(ENGINE):
            ends.append(End(row.number, Reason.CONFIG_CHANGED))
        elif now and name in before and name not in now:
            ends.append(End(row.number, Reason.TIER_REMOVED))
        elif now and name in before and before[name] != now[name]:
            ends.append(End(row.number, Reason.CONFIG_CHANGED))
    return ends


def _policies_as_words(table: PolicyTable, places: list[PlaceRow]) -> dict[str, Any]:
    return {
        str(row.place): {
            "announces_removals": table.announces(row.place),
            "survives_restart": table.survives_restart(row.place),
            "survives_reset": table.survives_reset(row.place),
        }
        for row in places
    }


def _last_fingerprint(connection: Connection, stream: int) -> dict[str, Any]:
    started = last_start(connection, stream)
    return started.fingerprint if started is not None else {}


def last_start(connection: Connection, stream: int) -> StreamBody | None:
    """What the stream's latest epoch said of itself when it began."""
    table = schema.payload.c
    bodies = connection.execute(
        select(table.body).where(table.stream == stream, table.chunk == 0).order_by(table.seq.desc())
    ).scalars()
    return next((body for body in map(decode_body, bodies) if body.epoch and body.boot_id), None)


def _handed_out(connection: Connection, stream: int, tail_ns: int) -> tuple[int, int]:
    """The seq handed out as of the last batch, and as of `tail_ns` before it.

    Measured by steady time within an epoch. How long the time between two epochs was is not asked, since clocks step:
    the tail goes on at the end of the epoch before.
    """
    last, told, epoch, newest_uptime = None, 0, 0, 0
    for batch in batches_backwards(connection, stream):
        if last is None:
            last = batch.handed_out
        if batch.epoch != epoch:
            if epoch:
                tail_ns -= newest_uptime
            epoch, newest_uptime = batch.epoch, batch.uptime_ns
        if newest_uptime - batch.uptime_ns >= tail_ns:
            told = batch.handed_out
            break
    return last or 0, told
