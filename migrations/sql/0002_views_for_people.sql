-- The views for people, again: the same columns and more, and plans that stay good on a large store.
-- Docs: docs/sql.md, column by column. Queries that they are made for: docs/questions.md. A test looks for scans of the
-- log in their plans by its alias, which is `ev` in every view.

-- What SQLite's planner is to think of the tables: many rows a stream, few a chunk. Without any statistics it takes
-- `stream = ?` alone for a good start and reads a whole table where an index by chunk or by wire hash is there. These
-- are shapes, not counts: they hold for a store of any size, and nothing has to keep them up to date.
ANALYZE place;
DELETE FROM sqlite_stat1;
INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES
    ('stream', 'sqlite_autoindex_stream_1', '4 1'),
    ('place', 'place', '12 4 1'),
    ('chunk', 'chunk', '2000000 2000000 1'),
    ('chunk', 'chunk_by_wire', '2000000 2000000 1 sz=10000'),
    ('payload', 'sqlite_autoindex_payload_1', '2000000 2000000 1 1'),
    ('event', 'event', '10000000 10000000 1'),
    ('batch', 'batch', '100000 100000 1'),
    ('open_residency', 'open_residency', '500000 500000 2 1'),
    ('closed_residency', 'closed_residency', '4000000 4000000 2 1 1'),
    ('closed_residency', 'closed_residency_by_chunk', '4000000 4000000 4 sz=10000'),
    ('position', 'position', '8 2 1');
ANALYZE sqlite_schema;

DROP VIEW events;
DROP VIEW gaps;
DROP VIEW epochs;
DROP VIEW chunks;
DROP VIEW lifecycle;
DROP VIEW residency;
DROP VIEW streams;

CREATE VIEW streams AS
SELECT s.name AS stream,
       -- Three missed heartbeats and no word of an end: nobody writes this stream any more.
       CASE
           WHEN s.epoch = 0 OR (SELECT ev.kind FROM event AS ev WHERE ev.stream = s.stream AND ev.seq = s.last_seq) = 9
           THEN 'ended'
           WHEN CAST(strftime('%s', 'now') AS INTEGER) * 1000000000 - s.heartbeat_ns
                <= 3 * s.heartbeat_every_ns + 1000000000
           THEN 'live'
           ELSE 'silent'
       END AS state,
       s.epoch AS epoch,
       s.floor_seq AS floor_seq,
       s.last_seq AS last_seq,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.heartbeat_ns / 1e9, 'unixepoch') AS heartbeat,
       s.heartbeat_ns AS heartbeat_ns,
       s.stream AS number
FROM stream AS s;

CREATE VIEW places AS
SELECT s.name AS stream,
       p.place AS place,
       p.medium AS medium,
       p.ownership AS ownership,
       p.word AS word,
       p.flagged AS flagged
FROM place AS p
JOIN stream AS s ON s.stream = p.stream;

CREATE VIEW residency AS
SELECT s.stream AS stream,
       s.state AS state,
       lower(hex(c."key")) AS "key",
       CASE substr(c."key", -4)
           WHEN x'00000000' THEN 0 WHEN x'00000001' THEN 1
           ELSE (instr('123456789ABCDEF', substr(hex(substr(c."key", -2)), 1, 1)) << 12)
               | (instr('123456789ABCDEF', substr(hex(substr(c."key", -2)), 2, 1)) << 8)
               | (instr('123456789ABCDEF', substr(hex(substr(c."key", -2)), 3, 1)) << 4)
               | instr('123456789ABCDEF', substr(hex(substr(c."key", -2)), 4, 1))
       END AS group_idx,
       c.wire AS wire,
       p.medium AS medium,
       p.ownership AS ownership,
       CASE r.flags >> 3 & 3 WHEN 1 THEN 'LOCAL' WHEN 2 THEN 'REMOTE' END AS locality,
       r.opened_seq AS opened_seq,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.opened_ns / 1e9, 'unixepoch') AS opened,
       r.opened_ns AS opened_ns,
       r.confirmed AS confirmed,
       r.flags >> 2 & 1 AS placeholder,
       r.stores AS stores,
       r.chunk AS chunk,
       r.place AS place
FROM open_residency AS r
JOIN streams AS s ON s.number = r.stream
LEFT JOIN chunk AS c ON c.stream = r.stream AND c.chunk = r.chunk
LEFT JOIN place AS p ON p.stream = r.stream AND p.place = r.place;

CREATE VIEW ended AS
SELECT s.name AS stream,
       p.place AS place,
       p.medium AS medium,
       p.ownership AS ownership,
       r.chunk AS chunk,
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
       r.stores AS stores
FROM place AS p
JOIN stream AS s ON s.stream = p.stream
JOIN closed_residency AS r ON r.stream = p.stream AND r.place = p.place;

CREATE VIEW lifecycle AS
SELECT s.name AS stream,
       lower(hex(c."key")) AS "key",
       CASE substr(c."key", -4)
           WHEN x'00000000' THEN 0 WHEN x'00000001' THEN 1
           ELSE (instr('123456789ABCDEF', substr(hex(substr(c."key", -2)), 1, 1)) << 12)
               | (instr('123456789ABCDEF', substr(hex(substr(c."key", -2)), 2, 1)) << 8)
               | (instr('123456789ABCDEF', substr(hex(substr(c."key", -2)), 3, 1)) << 4)
               | instr('123456789ABCDEF', substr(hex(substr(c."key", -2)), 4, 1))
       END AS group_idx,
       c.wire AS wire,
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
       r.chunk AS chunk,
       r.place AS place
FROM closed_residency AS r
JOIN stream AS s ON s.stream = r.stream
LEFT JOIN chunk AS c ON c.stream = r.stream AND c.chunk = r.chunk
LEFT JOIN place AS p ON p.stream = r.stream AND p.place = r.place
UNION ALL
SELECT s.name AS stream,
       lower(hex(c."key")) AS "key",
       CASE substr(c."key", -4)
           WHEN x'00000000' THEN 0 WHEN x'00000001' THEN 1
           ELSE (instr('123456789ABCDEF', substr(hex(substr(c."key", -2)), 1, 1)) << 12)
               | (instr('123456789ABCDEF', substr(hex(substr(c."key", -2)), 2, 1)) << 8)
               | (instr('123456789ABCDEF', substr(hex(substr(c."key", -2)), 3, 1)) << 4)
               | instr('123456789ABCDEF', substr(hex(substr(c."key", -2)), 4, 1))
       END AS group_idx,
       c.wire AS wire,
       p.medium AS medium,
       p.ownership AS ownership,
       CASE r.flags >> 3 & 3 WHEN 1 THEN 'LOCAL' WHEN 2 THEN 'REMOTE' END AS locality,
       r.opened_seq AS opened_seq,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.opened_ns / 1e9, 'unixepoch') AS opened,
       r.opened_ns AS opened_ns,
       CAST(NULL AS INTEGER), NULL, CAST(NULL AS INTEGER), NULL, NULL,
       r.flags >> 2 & 1 AS placeholder,
       r.stores AS stores,
       r.chunk AS chunk,
       r.place AS place
FROM open_residency AS r
JOIN stream AS s ON s.stream = r.stream
LEFT JOIN chunk AS c ON c.stream = r.stream AND c.chunk = r.chunk
LEFT JOIN place AS p ON p.stream = r.stream AND p.place = r.place;

-- A description is packed (eventstore/domain/metadata.py, version 1): the numbers of its head are little-endian, and
-- SQLite reads no number out of bytes, so each is put together from its hex digits.
CREATE VIEW chunks AS
SELECT d.stream AS stream,
       lower(hex(d."key")) AS "key",
       lower(hex(substr(d."key", 1, length(d."key") - 4))) AS block_hash,
       CASE substr(d."key", -4)
           WHEN x'00000000' THEN 0 WHEN x'00000001' THEN 1
           ELSE (instr('123456789ABCDEF', substr(hex(substr(d."key", -2)), 1, 1)) << 12)
               | (instr('123456789ABCDEF', substr(hex(substr(d."key", -2)), 2, 1)) << 8)
               | (instr('123456789ABCDEF', substr(hex(substr(d."key", -2)), 3, 1)) << 4)
               | instr('123456789ABCDEF', substr(hex(substr(d."key", -2)), 4, 1))
       END AS group_idx,
       d.wire AS wire,
       printf('%llu', d.wire) AS wire_unsigned,
       d.chunk AS first_seq,
       d.described_seq AS described_seq,
       d.blocks AS blocks,
       d.block_size AS block_size,
       CASE WHEN d.flags & 8 = 0
           THEN (length(d.body) + 1 - d.start - (d.flags & 1) * d.size - (d.blocks - (d.flags & 4 = 0)) * d.size) / 4
       END AS tokens,
       CASE WHEN d.parent IS NOT NULL THEN lower(hex(d.parent)) END AS parent,
       CASE WHEN d.parent IS NOT NULL THEN
           (instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 1, 1)) << 60)
           | (instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 2, 1)) << 56)
           | (instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 3, 1)) << 52)
           | (instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 4, 1)) << 48)
           | (instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 5, 1)) << 44)
           | (instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 6, 1)) << 40)
           | (instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 7, 1)) << 36)
           | (instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 8, 1)) << 32)
           | (instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 9, 1)) << 28)
           | (instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 10, 1)) << 24)
           | (instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 11, 1)) << 20)
           | (instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 12, 1)) << 16)
           | (instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 13, 1)) << 12)
           | (instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 14, 1)) << 8)
           | (instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 15, 1)) << 4)
           | instr('123456789ABCDEF', substr(hex(substr(d.parent, -8)), 16, 1))
       END AS parent_wire,
       (SELECT count(*) FROM open_residency AS r WHERE r.stream = d.number AND r.chunk = d.chunk) AS places,
       d.chunk AS chunk
FROM (
    SELECT b.*, CASE WHEN b.flags & 1 THEN substr(b.body, b.start, b.size) END AS parent
    FROM (
        SELECT a.*, 13 + CASE WHEN a.flags & 2 THEN 2 + a.extras ELSE 0 END AS start
        FROM (
            SELECT h.*,
                   instr('123456789ABCDEF', substr(h.head, 4, 1)) AS flags,
                   (instr('123456789ABCDEF', substr(h.head, 5, 1)) << 4)
                   | instr('123456789ABCDEF', substr(h.head, 6, 1)) AS size,
                   (instr('123456789ABCDEF', substr(h.head, 13, 1)) << 4)
                   | instr('123456789ABCDEF', substr(h.head, 14, 1))
                   | (instr('123456789ABCDEF', substr(h.head, 15, 1)) << 12)
                   | (instr('123456789ABCDEF', substr(h.head, 16, 1)) << 8) AS blocks,
                   (instr('123456789ABCDEF', substr(h.head, 17, 1)) << 4)
                   | instr('123456789ABCDEF', substr(h.head, 18, 1))
                   | (instr('123456789ABCDEF', substr(h.head, 19, 1)) << 12)
                   | (instr('123456789ABCDEF', substr(h.head, 20, 1)) << 8)
                   | (instr('123456789ABCDEF', substr(h.head, 21, 1)) << 20)
                   | (instr('123456789ABCDEF', substr(h.head, 22, 1)) << 16)
                   | (instr('123456789ABCDEF', substr(h.head, 23, 1)) << 28)
                   | (instr('123456789ABCDEF', substr(h.head, 24, 1)) << 24) AS block_size,
                   (instr('123456789ABCDEF', substr(h.head, 25, 1)) << 4)
                   | instr('123456789ABCDEF', substr(h.head, 26, 1))
                   | (instr('123456789ABCDEF', substr(h.head, 27, 1)) << 12)
                   | (instr('123456789ABCDEF', substr(h.head, 28, 1)) << 8) AS extras
            FROM (
                SELECT s.name AS stream, c.stream AS number, c.chunk AS chunk, c.wire AS wire, c."key" AS "key",
                       p.seq AS described_seq, p.body AS body,
                       CASE WHEN p.body IS NOT NULL THEN hex(substr(p.body, 1, 14)) END AS head
                FROM chunk AS c
                JOIN stream AS s ON s.stream = c.stream
                LEFT JOIN payload AS p ON p.stream = c.stream AND p.chunk = c.chunk
                    AND p.seq = (SELECT q.seq FROM payload AS q
                                 WHERE q.stream = c.stream AND q.chunk = c.chunk AND length(q.body) > 0
                                 ORDER BY q.seq DESC LIMIT 1)
            ) AS h
        ) AS a
    ) AS b
) AS d;

CREATE VIEW epochs AS
SELECT o.stream AS stream,
       o.epoch AS epoch,
       o.started_seq AS started_seq,
       strftime('%Y-%m-%dT%H:%M:%fZ', o.started_ns / 1e9, 'unixepoch') AS started,
       o.started_ns AS started_ns,
       o.last_seq AS last_seq,
       strftime('%Y-%m-%dT%H:%M:%fZ', ev_last.time_ns / 1e9, 'unixepoch') AS last,
       ev_last.time_ns AS last_ns,
       ev_last.kind = 9 AS ended_cleanly,
       CASE WHEN ev_last.kind = 9 THEN 'ended' WHEN o.is_last THEN o.state ELSE 'crashed' END AS state,
       o.host AS host,
       o.pid AS pid,
       o.boot_id AS boot_id,
       o.announce AS announce,
       o.body AS body
FROM (
    SELECT w.stream AS stream,
           w.number AS number,
           w.state AS state,
           json_extract(CAST(p.body AS TEXT), '$.epoch') AS epoch,
           ev.seq AS started_seq,
           ev.time_ns AS started_ns,
           -- Epochs follow each other, so one ends where the next begins.
           lead(ev.seq - 1, 1, w.last_seq) OVER (PARTITION BY ev.stream ORDER BY ev.seq) AS last_seq,
           lead(0, 1, 1) OVER (PARTITION BY ev.stream ORDER BY ev.seq) AS is_last,
           json_extract(CAST(p.body AS TEXT), '$.host') AS host,
           json_extract(CAST(p.body AS TEXT), '$.pid') AS pid,
           json_extract(CAST(p.body AS TEXT), '$.boot_id') AS boot_id,
           json_extract(CAST(p.body AS TEXT), '$.announce') AS announce,
           CAST(p.body AS TEXT) AS body
    FROM streams AS w
    JOIN payload AS p ON p.stream = w.number AND p.chunk = 0
    JOIN event AS ev ON ev.stream = p.stream AND ev.seq = p.seq AND ev.kind = 1
) AS o
JOIN event AS ev_last ON ev_last.stream = o.number AND ev_last.seq = o.last_seq;

CREATE VIEW gaps AS
SELECT s.name AS stream,
       ev.seq AS seq,
       strftime('%Y-%m-%dT%H:%M:%fZ', ev.time_ns / 1e9, 'unixepoch') AS time,
       ev.time_ns AS time_ns,
       json_extract(CAST(p.body AS TEXT), '$.lost') AS lost,
       strftime('%Y-%m-%dT%H:%M:%fZ', json_extract(CAST(p.body AS TEXT), '$.since_ns') / 1e9, 'unixepoch') AS since,
       json_extract(CAST(p.body AS TEXT), '$.since_ns') AS since_ns,
       json_extract(CAST(p.body AS TEXT), '$.reason') AS reason
FROM payload AS p
JOIN event AS ev ON ev.stream = p.stream AND ev.seq = p.seq AND ev.kind = 8
JOIN stream AS s ON s.stream = p.stream
WHERE p.chunk = 0;

-- The log as a person reads it.
CREATE VIEW events AS
SELECT s.name AS stream,
       ev.seq AS seq,
       strftime('%Y-%m-%dT%H:%M:%fZ', ev.time_ns / 1e9, 'unixepoch') AS time,
       ev.time_ns AS time_ns,
       CASE ev.kind
           WHEN 1 THEN 'epoch_started' WHEN 2 THEN 'chunk_described' WHEN 3 THEN 'chunk_stored'
           WHEN 4 THEN 'chunk_removed' WHEN 5 THEN 'residency_closed' WHEN 6 THEN 'residency_confirmed'
           WHEN 7 THEN 'cache_reset' WHEN 8 THEN 'gap' WHEN 9 THEN 'epoch_ended'
       END AS kind,
       CASE WHEN c."key" IS NOT NULL THEN lower(hex(c."key")) END AS "key",
       p.medium AS medium,
       p.ownership AS ownership,
       CASE WHEN ev.kind IN (3, 4) THEN
           CASE ev.flags >> 3 & 3 WHEN 1 THEN 'LOCAL' WHEN 2 THEN 'REMOTE' END
       END AS locality,
       CASE WHEN ev.kind = 3 THEN ev.flags & 1 END AS removal_expected,
       CASE WHEN ev.kind = 3 THEN ev.flags >> 1 & 1 END AS repeated,
       CASE WHEN ev.kind = 3 THEN ev.flags >> 2 & 1 END AS placeholder,
       CASE WHEN ev.kind = 4 THEN 1 - (ev.flags >> 1 & 1) END AS matched,
       CASE WHEN ev.kind = 4 THEN ev.flags & 1 END AS metadata_only,
       CASE CASE WHEN ev.kind IN (5, 6) THEN ev.flags ELSE l.reason END
           WHEN 1 THEN 'evicted' WHEN 2 THEN 'demoted' WHEN 3 THEN 'metadata_only' WHEN 4 THEN 'engine_restart'
           WHEN 5 THEN 'config_changed' WHEN 6 THEN 'tier_removed' WHEN 7 THEN 'cache_reset' WHEN 8 THEN 'missing'
           WHEN 9 THEN 'expired' WHEN 10 THEN 'restated'
       END AS reason,
       CASE WHEN ev.kind IN (1, 7, 8, 9) THEN
           (SELECT CAST(b.body AS TEXT) FROM payload AS b WHERE b.stream = ev.stream AND b.chunk = 0 AND b.seq = ev.seq)
       END AS body,
       nullif(ev.chunk, 0) AS chunk,
       nullif(ev.place, 0) AS place
FROM event AS ev
JOIN stream AS s ON s.stream = ev.stream
LEFT JOIN chunk AS c ON c.stream = ev.stream AND c.chunk = ev.chunk
LEFT JOIN place AS p ON p.stream = ev.stream AND p.place = ev.place
LEFT JOIN closed_residency AS l ON l.stream = ev.stream AND l.closed_seq = ev.seq AND l.chunk = ev.chunk
                               AND l.place = ev.place;
