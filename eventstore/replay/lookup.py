"""What a page of events has to be read with: keys, descriptions as of then, and what each event ended; changes with
what a KV event is made from.

Everything is asked a page at a time, so that memory does not grow with the log.
"""

import json
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from eventstore.domain.events import PLACEHOLDER, Event, Kind, PlaceRow, decode_body
from eventstore.domain.policy import PolicyTable
from eventstore.log.chunks import keys_of
from eventstore.replay.ends import Stores
from eventstore.replay.state import LATEST_SEQ
from eventstore.storage.rows import tuples

_DEFAULTS = PolicyTable()


class Ended(NamedTuple):
    """The residency that one event ended: its flags then, and how many stores of it the reader has counted."""

    flags: int
    stores: int


class Lookup(msgspec.Struct):
    """`before`: descriptions by chunk as of the event before the page. `within`: those that the page itself brings, by
    chunk, as (seq, packed). `ended`: by seq. `placeholders`: by the seq of a description, the places that knew the
    chunk by a placeholder, with the flags of its store. `policies`: what the epoch said of its places."""

    keys: dict[int, bytes]
    before: dict[int, bytes]
    within: dict[int, list[tuple[int, bytes]]]
    ended: dict[int, Ended]
    placeholders: dict[int, list[tuple[int, int]]]
    policies: dict[str, bool | None]

    def description(self, event: Event) -> bytes:
        """The packed description of the event's chunk as of that event; empty for none."""
        for seq, packed in reversed(self.within.get(event.chunk, ())):
            if seq <= event.seq:
                return packed
        return self.before.get(event.chunk, b"")

    def announces(self, place: PlaceRow) -> bool:
        """Whether the place announces removals, as far as the log says."""
        said = self.policies.get(str(place.place))
        said = _DEFAULTS.announces(place.place) if said is None else said
        return place.flagged if said is None else said


_BEFORE = (
    "SELECT asked.value, d.body FROM json_each(?2) AS asked"
    " CROSS JOIN payload AS d ON d.stream = ?1 AND d.chunk = asked.value AND d.seq = "
    + LATEST_SEQ.format(chunk="asked.value", seq="?3")
)
_ENDED = (
    "SELECT l.closed_seq, l.flags, l.stores, l.opened_seq, l.chunk, l.place FROM event AS e"
    " CROSS JOIN closed_residency AS l ON l.stream = ?1 AND l.closed_seq = e.seq AND l.chunk = e.chunk"
    f" AND l.place = e.place WHERE e.stream = ?1 AND e.seq BETWEEN ?2 AND ?3"
    f" AND e.kind IN ({Kind.CHUNK_REMOVED:d}, {Kind.RESIDENCY_CLOSED:d})"
)
# Who was known by a placeholder just before event `seq` described the chunk: it opened as one, and no other
# description came between.
_PLACEHOLDERS = (
    "SELECT a.seq, r.place, e.flags FROM"
    " (SELECT json_extract(value, '$[0]') AS seq, json_extract(value, '$[1]') AS chunk FROM json_each(?2)) AS a"
    " CROSS JOIN ("
    "  SELECT chunk, place, opened_seq, NULL AS closed_seq FROM open_residency WHERE stream = ?1"
    "  UNION ALL SELECT chunk, place, opened_seq, closed_seq FROM closed_residency WHERE stream = ?1"
    " ) AS r ON r.chunk = a.chunk AND r.opened_seq < a.seq AND coalesce(r.closed_seq, a.seq + 1) > a.seq"
    " JOIN event AS e ON e.stream = ?1 AND e.seq = r.opened_seq"
    f" WHERE e.flags & {PLACEHOLDER}"
    " AND NOT EXISTS (SELECT 1 FROM payload AS p WHERE p.stream = ?1 AND p.chunk = a.chunk"
    "                 AND p.seq > r.opened_seq AND p.seq < a.seq AND length(p.body) > 0)"
    " ORDER BY a.seq, r.place"
)
_EPOCH_BODY = (
    "SELECT p.body FROM payload AS p JOIN event AS e ON e.stream = ?1 AND e.seq = p.seq"
    f" WHERE p.stream = ?1 AND p.chunk = 0 AND p.seq <= ?2 AND e.kind = {Kind.EPOCH_STARTED:d}"
    " ORDER BY p.seq DESC LIMIT 1"
)


def look_up(connection: Connection, stream: int, events: list[Event], state_at: int) -> Lookup:
    """Everything that it takes to tell `events`, which follow each other. `state_at`: as in `ends.Stores`."""
    first, last = events[0].seq, events[-1].seq
    within: dict[int, list[tuple[int, bytes]]] = {}
    anew = []
    for event in events:
        if event.kind is Kind.CHUNK_DESCRIBED and event.body:
            within.setdefault(event.chunk, []).append((event.seq, event.body))
            if event.chunk != event.seq:
                anew.append((event.seq, event.chunk))
    chunks = {event.chunk for event in events if event.chunk}
    older = json.dumps([chunk for chunk in chunks if chunk < first])
    before = tuples(connection, _BEFORE, (stream, older, first - 1))
    stores = Stores(connection, stream, state_at, last)
    ended = {
        seq: Ended(flags, stores.of(chunk, place, opened_seq, counted))
        for seq, flags, counted, opened_seq, chunk, place in tuples(connection, _ENDED, (stream, first, last))
    }
    placeholders: dict[int, list[tuple[int, int]]] = {}
    policies: dict[str, bool | None] = {}
    if anew:
        for seq, place, flags in tuples(connection, _PLACEHOLDERS, (stream, json.dumps(anew))):
            placeholders.setdefault(seq, []).append((place, flags))
    if placeholders:
        raw = connection.exec_driver_sql(_EPOCH_BODY, (stream, first)).scalar()
        words = decode_body(raw or b"").policies
        policies = {place: one.get("announces_removals") for place, one in words.items()}
    return Lookup(
        keys_of(connection, stream, chunks),
        {chunk: body for chunk, body in before},
        within,
        ended,
        placeholders,
        policies,
    )
