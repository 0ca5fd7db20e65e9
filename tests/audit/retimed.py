"""The same log with other times: a recorded engine is driven within a second, its copy took days; changes with what a
batch holds.
"""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

from eventstore.domain.events import PlaceRow, pack_fact
from eventstore.domain.place import Medium, Place
from eventstore.log.append import Step, append, build
from eventstore.log.stream import begin_epoch, create_stream
from eventstore.storage.codec import Described, Header, place_sum
from eventstore.storage.store import open_for_writing

SECOND = 1_000_000_000
#: 2026-03-01T00:00:00Z.
BEGINS = 1_772_323_200 * SECOND
#: How long after the step before a step can come.
PAUSES = (50_000_000, SECOND, 20 * SECOND, 90 * SECOND)


def retime(source: Path, made: Path, seed: str) -> Path:
    """Append the batches of `source`'s one stream to a new store `made`, their times drawn anew and never falling."""
    rnd = random.Random(seed)
    with closing(sqlite3.connect(source)) as database:
        (name,) = database.execute("SELECT name FROM stream").fetchone()
        events = list(database.execute("SELECT seq, time_ns, kind, flags, place, chunk FROM event ORDER BY seq"))
        beside = {
            seq: Described(seq, chunk, body, key if seq == chunk else b"")
            for seq, chunk, body, key in database.execute(
                'SELECT p.seq, p.chunk, p.body, c."key" FROM payload AS p LEFT JOIN chunk AS c ON c.chunk = p.chunk'
            )
        }
        batches = list(database.execute("SELECT first_seq, last_seq, epoch FROM batch ORDER BY first_seq"))
        rows = [
            PlaceRow(number, Place(Medium(medium), owner), word, bool(flagged))
            for number, medium, owner, word, flagged in database.execute(
                "SELECT place, medium, ownership, word, flagged FROM place"
            )
        ]
    sums = {row.number: place_sum(row.place.medium.value, row.place.ownership, row.word) for row in rows}
    steps: dict[int, Step] = {}
    now, before = BEGINS, None
    for seq, time_ns, *fact in events:
        if time_ns != before:
            now, before = now + rnd.choice(PAUSES), time_ns
        steps[seq] = Step(seq, now, [pack_fact(*fact)])
    engine, _ = open_for_writing(str(made))
    try:
        with engine.begin() as connection:
            stream = create_stream(connection, name)
        chain, epoch = stream.chain, 0
        for first, last, its_epoch in batches:
            with engine.begin() as connection:
                while epoch < its_epoch:
                    epoch = begin_epoch(connection, stream.stream)
                whole = range(first, last + 1)
                header = Header(first, last, epoch, steps[last].time_ns, steps[last].time_ns - BEGINS, first - 1)
                batch = build(
                    stream.stream,
                    header,
                    chain,
                    [steps[seq] for seq in whole],
                    [beside[seq] for seq in whole if seq in beside],
                    rows if first == 1 else [],
                    sums,
                )
                append(connection, batch)
                chain = batch.chain
    finally:
        engine.dispose()
    return made
