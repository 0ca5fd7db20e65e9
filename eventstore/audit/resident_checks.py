"""What the views show of chunks and places: who cannot be used, who is nobody's, which tier never says that something
left; changes with what is looked for.
"""

from typing import Any

from sqlalchemy import Connection

from eventstore.audit.check import EXAMPLES, Found, Level, place_name
from eventstore.domain.events import REMOVAL_EXPECTED, REPEATED, Kind, PlaceRow, decode_body
from eventstore.domain.key import GROUP_BYTES
from eventstore.domain.policy import PolicyTable
from eventstore.log.stream import StreamRow, places_of

_UNDESCRIBED = (
    'SELECT c."key", p.medium, p.ownership, r.opened_seq FROM open_residency AS r'
    " JOIN chunk AS c ON c.stream = r.stream AND c.chunk = r.chunk"
    " JOIN place AS p ON p.stream = r.stream AND p.place = r.place"
    " WHERE r.stream = ?1 AND NOT EXISTS (SELECT 1 FROM payload AS d"
    "   WHERE d.stream = ?1 AND d.chunk = r.chunk AND length(d.body) > 0)"
    " ORDER BY r.chunk, r.place"
)
_DESCRIBED_OF_GROUP = (
    "SELECT 1 FROM chunk AS c JOIN payload AS d ON d.stream = c.stream AND d.chunk = c.chunk"
    f' WHERE c.stream = ? AND substr(c."key", -{GROUP_BYTES}) = ? AND length(d.body) > 0 LIMIT 1'
)
_ORPHANS = (
    "SELECT '{view}', r.chunk, r.place, r.opened_seq FROM {table} AS r WHERE r.stream = ?1 AND ("
    "  NOT EXISTS (SELECT 1 FROM chunk AS c WHERE c.stream = ?1 AND c.chunk = r.chunk)"
    "  OR NOT EXISTS (SELECT 1 FROM place AS p WHERE p.stream = ?1 AND p.place = r.place))"
)
_REMOVED_AT = f"SELECT 1 FROM event WHERE stream = ? AND place = ? AND kind = {Kind.CHUNK_REMOVED:d} LIMIT 1"
_STORED_AT = (
    f"SELECT count(*), coalesce(sum(flags & {REPEATED} <> 0), 0), coalesce(sum(flags & {REMOVAL_EXPECTED} <> 0), 0)"
    f" FROM event WHERE stream = ? AND place = ? AND kind = {Kind.CHUNK_STORED:d}"
)
_EPOCHS = (
    "SELECT p.body FROM payload AS p JOIN event AS e ON e.stream = p.stream AND e.seq = p.seq"
    f" WHERE p.stream = ? AND p.chunk = 0 AND e.kind = {Kind.EPOCH_STARTED:d} ORDER BY e.seq"
)


def undescribed(connection: Connection, stream: StreamRow) -> Found:
    """Residents without a description, in a group of which other chunks are described: consumers cannot use them."""
    rows: list[Any] = list(connection.exec_driver_sql(_UNDESCRIBED, (stream.stream,)))
    groups = {row[0][-GROUP_BYTES:] for row in rows}
    describable = {
        group
        for group in groups
        if connection.exec_driver_sql(_DESCRIBED_OF_GROUP, (stream.stream, group)).scalar() is not None
    }
    found = [
        {"key": key.hex(), "place": place_name(medium, owner), "opened_seq": opened_seq}
        for key, medium, owner, opened_seq in rows
        if key[-GROUP_BYTES:] in describable
    ]
    return Found(len(found), found[:EXAMPLES])


def orphans(connection: Connection, stream: StreamRow) -> Found:
    """Residencies of a chunk or at a place that the stream does not have."""
    names = ("view", "chunk", "place", "opened_seq")
    found = [
        dict(zip(names, row, strict=True))
        for view, table in (("residency", "open_residency"), ("lifecycle", "closed_residency"))
        for row in connection.exec_driver_sql(_ORPHANS.format(view=view, table=table), (stream.stream,))
    ]
    return Found(len(found), found[:EXAMPLES])


def unannounced(connection: Connection, stream: StreamRow) -> Found:
    """Places that should announce removals and never did.

    A finding where there is reason to think that chunks left without a word: one came again that was never removed, or
    a policy says of a secondary tier what none of its events does. Else the place may just not be full yet.
    """
    policies = _policies(connection, stream)
    found, level = [], "information"
    for row in places_of(connection, stream.stream):
        at = (stream.stream, row.number)
        if not _should_announce(row, policies) or connection.exec_driver_sql(_REMOVED_AT, at).scalar() is not None:
            continue
        stores, repeated, flagged = connection.exec_driver_sql(_STORED_AT, at).one()
        if not stores:
            continue
        unlikely = row.place.ownership is not None and not flagged
        if repeated or unlikely:
            level = "finding"
        found.append(
            {
                "place": str(row.place),
                "stores": stores,
                "repeated": repeated,
                "removal_expected": flagged,
                "says": "announces removals by the policy, and no store there said so"
                if unlikely
                else "stored again what it never removed"
                if repeated
                else "no removal yet: not full, or silent",
            }
        )
    return Found(len(found), found[:EXAMPLES], _level(level))


def _level(word: str) -> Level:
    return "finding" if word == "finding" else "information"


def _policies(connection: Connection, stream: StreamRow) -> dict[str, bool | None]:
    """What the epochs said of their places, the last word of each."""
    said: dict[str, bool | None] = {}
    for raw in connection.exec_driver_sql(_EPOCHS, (stream.stream,)).scalars():
        said |= {place: words.get("announces_removals") for place, words in decode_body(raw).policies.items()}
    return said


def _should_announce(row: PlaceRow, policies: dict[str, bool | None]) -> bool:
    said = policies.get(str(row.place))
    said = PolicyTable().announces(row.place) if said is None else said
    return row.flagged if said is None else said
