-- Marks the file as a kvledger store ("kvld"), for whoever finds it and for ourselves (eventstore/storage/migration.py).
PRAGMA application_id = 1802923108;

-- The log. One row an event; a chunk and a place are named by their number in the stream.

CREATE TABLE stream (
    stream    INTEGER NOT NULL PRIMARY KEY,
    name      TEXT    NOT NULL UNIQUE,
    epoch     INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    chain     BLOB    NOT NULL,
    floor_seq INTEGER NOT NULL,
    -- When the writer last showed that it lives, and how often it does.
    heartbeat_ns       INTEGER NOT NULL,
    heartbeat_every_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE place (
    stream    INTEGER NOT NULL,
    place     INTEGER NOT NULL,
    medium    TEXT    NOT NULL,
    ownership TEXT,
    word      TEXT    NOT NULL,
    flagged   INTEGER NOT NULL,
    PRIMARY KEY (stream, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE chunk (
    stream INTEGER NOT NULL,
    chunk  INTEGER NOT NULL,
    wire   INTEGER NOT NULL,
    "key"  BLOB    NOT NULL,
    PRIMARY KEY (stream, chunk)
) STRICT, WITHOUT ROWID;

CREATE INDEX chunk_by_wire ON chunk (stream, wire);

-- With a rowid: a body can be larger than what a WITHOUT ROWID table keeps in its tree.
CREATE TABLE payload (
    stream INTEGER NOT NULL,
    chunk  INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    body   BLOB    NOT NULL,
    PRIMARY KEY (stream, chunk, seq)
) STRICT;

CREATE TABLE event (
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    kind    INTEGER NOT NULL,
    flags   INTEGER NOT NULL,
    place   INTEGER NOT NULL,
    chunk   INTEGER NOT NULL,
    PRIMARY KEY (stream, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE batch (
    stream     INTEGER NOT NULL,
    first_seq  INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    time_ns    INTEGER NOT NULL,
    uptime_ns  INTEGER NOT NULL,
    handed_out INTEGER NOT NULL,
    sums       BLOB    NOT NULL,
    chain      BLOB    NOT NULL,
    PRIMARY KEY (stream, first_seq)
) STRICT, WITHOUT ROWID;

-- The views: computed from the log, disposable, each with the seq that it has reached.

CREATE TABLE open_residency (
    stream     INTEGER NOT NULL,
    chunk      INTEGER NOT NULL,
    place      INTEGER NOT NULL,
    opened_seq INTEGER NOT NULL,
    opened_ns  INTEGER NOT NULL,
    flags      INTEGER NOT NULL,
    stores     INTEGER NOT NULL,
    confirmed  INTEGER NOT NULL,
    PRIMARY KEY (stream, chunk, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE closed_residency (
    stream     INTEGER NOT NULL,
    closed_seq INTEGER NOT NULL,
    chunk      INTEGER NOT NULL,
    place      INTEGER NOT NULL,
    opened_seq INTEGER NOT NULL,
    opened_ns  INTEGER NOT NULL,
    flags      INTEGER NOT NULL,
    stores     INTEGER NOT NULL,
    closed_ns  INTEGER NOT NULL,
    reason     INTEGER NOT NULL,
    PRIMARY KEY (stream, closed_seq, chunk, place)
) STRICT, WITHOUT ROWID;

CREATE INDEX closed_residency_by_chunk ON closed_residency (stream, chunk);

CREATE TABLE position (
    stream INTEGER NOT NULL,
    "view" TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (stream, "view")
) STRICT, WITHOUT ROWID;

-- A batch goes in by one statement: INSERT INTO append. Beside a busy interpreter each statement costs the writer a
-- wait for the GIL, so the batch travels as JSON and one blob and is unpacked here.
--   steps   [[first seq, time_ns, [fact, fact, ...]], ...]; a fact is kind | flags << 4 | place << 10 | chunk << 20
--   bodies  what the descriptions and the events about the stream carry, one after the other
--   descs   [[seq, chunk, offset in bodies from 1, length, key length (0: the chunk is named already), wire], ...];
--           a key follows its body
--   places  [[place, medium, ownership, word, flagged], ...], new or changed

CREATE VIEW append AS
SELECT 0 AS stream, 0 AS epoch, 0 AS first_seq, 0 AS last_seq, 0 AS time_ns, 0 AS uptime_ns, 0 AS handed_out,
       '' AS places, '' AS steps, '' AS descs, x'' AS bodies, x'' AS sums, x'' AS prev_chain, x'' AS chain
WHERE 0;

CREATE TRIGGER append_batch INSTEAD OF INSERT ON append
BEGIN
    SELECT RAISE(ABORT, 'kvledger: no such stream')
    WHERE NOT EXISTS (SELECT 1 FROM stream WHERE stream = NEW.stream);
    SELECT RAISE(ABORT, 'kvledger: fenced') FROM stream WHERE stream = NEW.stream AND epoch <> NEW.epoch;
    SELECT RAISE(ABORT, 'kvledger: out of order')
    FROM stream WHERE stream = NEW.stream AND (last_seq + 1 <> NEW.first_seq OR chain <> NEW.prev_chain);

    INSERT INTO place (stream, place, medium, ownership, word, flagged)
    SELECT NEW.stream, json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
           json_extract(value, '$[3]'), json_extract(value, '$[4]')
    FROM json_each(NEW.places) WHERE 1
    ON CONFLICT (stream, place) DO UPDATE SET flagged = excluded.flagged;

    INSERT INTO payload (stream, chunk, seq, body)
    SELECT NEW.stream, json_extract(value, '$[1]'), json_extract(value, '$[0]'),
           substr(NEW.bodies, json_extract(value, '$[2]'), json_extract(value, '$[3]'))
    FROM json_each(NEW.descs);

    INSERT INTO chunk (stream, chunk, wire, "key")
    SELECT NEW.stream, json_extract(value, '$[1]'), json_extract(value, '$[5]'),
           substr(NEW.bodies, json_extract(value, '$[2]') + json_extract(value, '$[3]'), json_extract(value, '$[4]'))
    FROM json_each(NEW.descs) WHERE json_extract(value, '$[4]') > 0;

    INSERT INTO event (stream, seq, time_ns, kind, flags, place, chunk)
    SELECT NEW.stream, step.first_seq + fact.key, step.time_ns,
           fact.value & 15, fact.value >> 4 & 63, fact.value >> 10 & 1023, fact.value >> 20
    FROM (
        -- Materialized, so that a step's JSON is taken apart once and not once an event.
        WITH unpacked AS MATERIALIZED (
            SELECT json_extract(value, '$[0]') AS first_seq, json_extract(value, '$[1]') AS time_ns,
                   json_extract(value, '$[2]') AS facts
            FROM json_each(NEW.steps)
        )
        SELECT * FROM unpacked
    ) AS step, json_each(step.facts) AS fact;

    INSERT INTO batch (stream, first_seq, last_seq, epoch, time_ns, uptime_ns, handed_out, sums, chain)
    VALUES (NEW.stream, NEW.first_seq, NEW.last_seq, NEW.epoch, NEW.time_ns, NEW.uptime_ns, NEW.handed_out,
            NEW.sums, NEW.chain);
    UPDATE position SET seq = NEW.last_seq WHERE stream = NEW.stream;
    UPDATE stream SET last_seq = NEW.last_seq, chain = NEW.chain, heartbeat_ns = NEW.time_ns WHERE stream = NEW.stream;
END;

-- The rule of residency (eventstore/domain/residency.py) for the views. Kinds and reasons are numbered there.

CREATE TRIGGER residency_stored AFTER INSERT ON event WHEN NEW.kind = 3
BEGIN
    INSERT INTO open_residency (stream, chunk, place, opened_seq, opened_ns, flags, stores, confirmed)
    VALUES (NEW.stream, NEW.chunk, NEW.place, NEW.seq, NEW.time_ns, NEW.flags, 1, 1)
    ON CONFLICT (stream, chunk, place) DO UPDATE SET stores = stores + (excluded.flags & 2 = 0), confirmed = 1;
END;

CREATE TRIGGER residency_ended AFTER INSERT ON event WHEN NEW.kind IN (4, 5)
BEGIN
    INSERT INTO closed_residency (stream, closed_seq, chunk, place, opened_seq, opened_ns, flags, stores, closed_ns, reason)
    SELECT stream, NEW.seq, chunk, place, opened_seq, opened_ns, flags, stores, NEW.time_ns,
           CASE
               WHEN NEW.kind = 5 THEN NEW.flags
               WHEN NEW.flags & 1 THEN 3
               WHEN EXISTS (SELECT 1 FROM open_residency AS other
                            WHERE other.stream = NEW.stream AND other.chunk = NEW.chunk AND other.place <> NEW.place)
               THEN 2
               ELSE 1
           END
    FROM open_residency WHERE stream = NEW.stream AND chunk = NEW.chunk AND place = NEW.place;
    DELETE FROM open_residency WHERE stream = NEW.stream AND chunk = NEW.chunk AND place = NEW.place;
END;

CREATE TRIGGER residency_ended_together AFTER INSERT ON event WHEN NEW.kind IN (1, 7)
BEGIN
    INSERT INTO closed_residency (stream, closed_seq, chunk, place, opened_seq, opened_ns, flags, stores, closed_ns, reason)
    SELECT r.stream, NEW.seq, r.chunk, r.place, r.opened_seq, r.opened_ns, r.flags, r.stores, NEW.time_ns,
           json_extract(ended.value, '$.reason')
    FROM payload AS p
    JOIN json_each(CAST(p.body AS TEXT), '$.ends') AS ended
    JOIN open_residency AS r ON r.stream = NEW.stream AND r.place = json_extract(ended.value, '$.place')
    WHERE p.stream = NEW.stream AND p.chunk = 0 AND p.seq = NEW.seq;
    DELETE FROM open_residency
    WHERE stream = NEW.stream AND place IN (
        SELECT json_extract(ended.value, '$.place')
        FROM payload AS p JOIN json_each(CAST(p.body AS TEXT), '$.ends') AS ended
        WHERE p.stream = NEW.stream AND p.chunk = 0 AND p.seq = NEW.seq
    );
    -- What survived where the tier will be asked is unconfirmed until it has answered.
    UPDATE open_residency SET confirmed = 0
    WHERE stream = NEW.stream AND place IN (
        SELECT asked.value
        FROM payload AS p JOIN json_each(CAST(p.body AS TEXT), '$.unconfirmed') AS asked
        WHERE p.stream = NEW.stream AND p.chunk = 0 AND p.seq = NEW.seq
    );
END;

CREATE TRIGGER residency_confirmed AFTER INSERT ON event WHEN NEW.kind = 6
BEGIN
    UPDATE open_residency SET confirmed = 1
    WHERE stream = NEW.stream AND chunk = NEW.chunk AND place = NEW.place;
END;

-- A chunk described after it was announced as a placeholder is announced again, in full.
CREATE TRIGGER residency_described AFTER INSERT ON event WHEN NEW.kind = 2 AND NEW.chunk <> NEW.seq
BEGIN
    UPDATE open_residency SET flags = flags & ~4
    WHERE stream = NEW.stream AND chunk = NEW.chunk AND flags & 4
      AND EXISTS (SELECT 1 FROM payload
                  WHERE stream = NEW.stream AND chunk = NEW.chunk AND seq = NEW.seq AND length(body) > 0);
END;

-- For people. Docs: docs/sql.md, column by column.

CREATE VIEW streams AS
SELECT s.name AS stream,
       -- Three missed heartbeats and no word of an end: nobody writes this stream any more.
       CASE
           WHEN s.epoch = 0 OR (SELECT e.kind FROM event AS e WHERE e.stream = s.stream AND e.seq = s.last_seq) = 9
           THEN 'ended'
           WHEN CAST(strftime('%s', 'now') AS INTEGER) * 1000000000 - s.heartbeat_ns <= 3 * s.heartbeat_every_ns + 1000000000
           THEN 'live'
           ELSE 'silent'
       END AS state,
       s.epoch AS epoch,
       s.floor_seq AS floor_seq,
       s.last_seq AS last_seq,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.heartbeat_ns / 1e9, 'unixepoch') AS heartbeat,
       s.heartbeat_ns AS heartbeat_ns
FROM stream AS s;

CREATE VIEW residency AS
SELECT w.stream AS stream,
       w.state AS state,
       lower(hex(c."key")) AS "key",
       p.medium AS medium,
       p.ownership AS ownership,
       CASE r.flags >> 3 & 3 WHEN 1 THEN 'LOCAL' WHEN 2 THEN 'REMOTE' END AS locality,
       r.opened_seq AS opened_seq,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.opened_ns / 1e9, 'unixepoch') AS opened,
       r.opened_ns AS opened_ns,
       r.confirmed AS confirmed,
       r.flags >> 2 & 1 AS placeholder,
       r.stores AS stores,
       r.chunk AS chunk
FROM open_residency AS r
JOIN stream AS s ON s.stream = r.stream
JOIN streams AS w ON w.stream = s.name
JOIN chunk AS c ON c.stream = r.stream AND c.chunk = r.chunk
JOIN place AS p ON p.stream = r.stream AND p.place = r.place;

CREATE VIEW lifecycle AS
SELECT s.name AS stream,
       lower(hex(c."key")) AS "key",
       p.medium AS medium,
       p.ownership AS ownership,
       CASE r.flags >> 3 & 3 WHEN 1 THEN 'LOCAL' WHEN 2 THEN 'REMOTE' END AS locality,
       r.opened_seq AS opened_seq,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.opened_ns / 1e9, 'unixepoch') AS opened,
       r.opened_ns AS opened_ns,
       r.closed_seq AS closed_seq,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.closed_ns / 1e9, 'unixepoch') AS closed,
       r.closed_ns AS closed_ns,
       (r.closed_ns - r.opened_ns) / 1e9 AS seconds,
       CASE r.reason
           WHEN 1 THEN 'evicted' WHEN 2 THEN 'demoted' WHEN 3 THEN 'metadata_only' WHEN 4 THEN 'engine_restart'
           WHEN 5 THEN 'config_changed' WHEN 6 THEN 'tier_removed' WHEN 7 THEN 'cache_reset' WHEN 8 THEN 'missing'
           WHEN 9 THEN 'expired' WHEN 10 THEN 'restated'
       END AS reason,
       r.flags >> 2 & 1 AS placeholder,
       r.stores AS stores,
       r.chunk AS chunk
FROM (
    SELECT stream, chunk, place, opened_seq, opened_ns, closed_seq, closed_ns, reason, flags, stores
    FROM closed_residency
    UNION ALL
    SELECT stream, chunk, place, opened_seq, opened_ns, NULL, NULL, NULL, flags, stores FROM open_residency
) AS r
JOIN stream AS s ON s.stream = r.stream
JOIN chunk AS c ON c.stream = r.stream AND c.chunk = r.chunk
JOIN place AS p ON p.stream = r.stream AND p.place = r.place;

CREATE VIEW chunks AS
SELECT s.name AS stream,
       lower(hex(c."key")) AS "key",
       c.wire AS wire,
       c.chunk AS first_seq,
       (SELECT count(*) FROM open_residency AS r WHERE r.stream = c.stream AND r.chunk = c.chunk) AS places,
       (SELECT max(p.seq) FROM payload AS p
        WHERE p.stream = c.stream AND p.chunk = c.chunk AND length(p.body) > 0) AS described_seq,
       c.chunk AS chunk
FROM chunk AS c
JOIN stream AS s ON s.stream = c.stream;

CREATE VIEW epochs AS
SELECT s.name AS stream,
       json_extract(CAST(p.body AS TEXT), '$.epoch') AS epoch,
       e.seq AS started_seq,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.time_ns / 1e9, 'unixepoch') AS started,
       e.time_ns AS started_ns,
       (SELECT max(b.last_seq) FROM batch AS b WHERE b.stream = e.stream AND b.epoch = json_extract(CAST(p.body AS TEXT), '$.epoch'))
           AS last_seq,
       EXISTS (SELECT 1 FROM payload AS q JOIN event AS z ON z.stream = q.stream AND z.seq = q.seq
               WHERE q.stream = e.stream AND q.chunk = 0 AND z.kind = 9
                 AND json_extract(CAST(q.body AS TEXT), '$.epoch') = json_extract(CAST(p.body AS TEXT), '$.epoch'))
           AS ended_cleanly,
       json_extract(CAST(p.body AS TEXT), '$.host') AS host,
       json_extract(CAST(p.body AS TEXT), '$.pid') AS pid,
       json_extract(CAST(p.body AS TEXT), '$.boot_id') AS boot_id,
       json_extract(CAST(p.body AS TEXT), '$.announce') AS announce,
       CAST(p.body AS TEXT) AS body
FROM payload AS p
JOIN event AS e ON e.stream = p.stream AND e.seq = p.seq AND e.kind = 1
JOIN stream AS s ON s.stream = p.stream
WHERE p.chunk = 0;

CREATE VIEW gaps AS
SELECT s.name AS stream,
       e.seq AS seq,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.time_ns / 1e9, 'unixepoch') AS time,
       e.time_ns AS time_ns,
       json_extract(CAST(p.body AS TEXT), '$.lost') AS lost,
       strftime('%Y-%m-%dT%H:%M:%fZ', json_extract(CAST(p.body AS TEXT), '$.since_ns') / 1e9, 'unixepoch') AS since,
       json_extract(CAST(p.body AS TEXT), '$.since_ns') AS since_ns,
       json_extract(CAST(p.body AS TEXT), '$.reason') AS reason
FROM payload AS p
JOIN event AS e ON e.stream = p.stream AND e.seq = p.seq AND e.kind = 8
JOIN stream AS s ON s.stream = p.stream
WHERE p.chunk = 0;

-- The log as a person reads it.
CREATE VIEW events AS
SELECT s.name AS stream,
       e.seq AS seq,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.time_ns / 1e9, 'unixepoch') AS time,
       CASE e.kind
           WHEN 1 THEN 'epoch_started' WHEN 2 THEN 'chunk_described' WHEN 3 THEN 'chunk_stored'
           WHEN 4 THEN 'chunk_removed' WHEN 5 THEN 'residency_closed' WHEN 6 THEN 'residency_confirmed'
           WHEN 7 THEN 'cache_reset' WHEN 8 THEN 'gap' WHEN 9 THEN 'epoch_ended'
       END AS kind,
       lower(hex(c."key")) AS "key",
       p.medium AS medium,
       p.ownership AS ownership,
       CASE WHEN e.kind IN (3, 4) THEN
           CASE e.flags >> 3 & 3 WHEN 1 THEN 'LOCAL' WHEN 2 THEN 'REMOTE' END
       END AS locality,
       CASE WHEN e.kind = 3 THEN e.flags & 1 END AS removal_expected,
       CASE WHEN e.kind = 3 THEN e.flags >> 1 & 1 END AS repeated,
       CASE WHEN e.kind = 3 THEN e.flags >> 2 & 1 END AS placeholder,
       CASE WHEN e.kind = 4 THEN 1 - (e.flags >> 1 & 1) END AS matched,
       CASE CASE WHEN e.kind IN (5, 6) THEN e.flags ELSE l.reason END
           WHEN 1 THEN 'evicted' WHEN 2 THEN 'demoted' WHEN 3 THEN 'metadata_only' WHEN 4 THEN 'engine_restart'
           WHEN 5 THEN 'config_changed' WHEN 6 THEN 'tier_removed' WHEN 7 THEN 'cache_reset' WHEN 8 THEN 'missing'
           WHEN 9 THEN 'expired' WHEN 10 THEN 'restated'
       END AS reason,
       CASE WHEN e.kind IN (1, 7, 8, 9) THEN
           (SELECT CAST(b.body AS TEXT) FROM payload AS b WHERE b.stream = e.stream AND b.chunk = 0 AND b.seq = e.seq)
       END AS body
FROM event AS e
JOIN stream AS s ON s.stream = e.stream
LEFT JOIN chunk AS c ON e.chunk > 0 AND c.stream = e.stream AND c.chunk = e.chunk
LEFT JOIN place AS p ON e.place > 0 AND p.stream = e.stream AND p.place = e.place
LEFT JOIN closed_residency AS l ON e.kind = 4 AND l.stream = e.stream AND l.closed_seq = e.seq
                        AND l.chunk = e.chunk AND l.place = e.place;
