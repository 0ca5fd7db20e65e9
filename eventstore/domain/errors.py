"""The errors a user can meet, as one tree; changes when a new kind of failure gets a name.

LedgerError
├── BadInput             the caller's mistake: a trace, a key, a slice, an option
│   ├── TraceError       a line of a recorded trace that cannot be run
│   └── ExportError      a file of exported events that cannot be imported
├── StoreError           the store itself
│   ├── StoreUnusable    cannot be opened, read or written
│   │   └── StoreDamaged the file is no database, or its content does not hold together
│   ├── StoreOutdated    older than the code: migrate it
│   ├── StoreTooNew      written by a newer kvledger
│   ├── StoreBusy        another process holds the lock; a retry can succeed
│   └── StoreFull        no room left; a retry can succeed once there is
└── StreamError          one stream of the store
    ├── NoSuchStream     nothing of that name, or more than one and none named
    ├── Fenced           a newer epoch has begun: this writer may append nothing more
    ├── OutOfOrder       the batch does not continue the log
    ├── Conflict         other content already stands under these numbers
    ├── Pruned           the events asked for are not in the log any more
    └── Forked           the log is not the one that the reader has read
"""


class LedgerError(Exception):
    """Anything kvledger refuses to do, as one line: what, where, what to do next."""


class BadInput(LedgerError):
    """The caller asked for something that makes no sense."""


class TraceError(BadInput):
    """A recorded trace that cannot be run; nothing of it was written."""

    def __init__(self, path: object, line: int | None, problem: str) -> None:
        where = f"{path}, line {line}" if line is not None else str(path)
        super().__init__(f"{where}: {problem}")
        self.line = line


class ExportError(BadInput):
    """A file of exported events that cannot be imported; nothing of it was written. `line` counts from 1."""

    def __init__(self, path: object, line: int, problem: str) -> None:
        super().__init__(f"{path}, line {line}: {problem}")
        self.line = line


class StoreError(LedgerError):
    """The store as a whole."""


class StoreUnusable(StoreError):
    """The store cannot be opened, read or written."""


class StoreDamaged(StoreUnusable):
    """The file is no database, or its content does not hold together."""


class StoreOutdated(StoreError):
    """The store's schema is older than this code needs."""

    def __init__(self, url: str, found: str | None, needed: str) -> None:
        have = f"schema {found}" if found else "no schema"
        super().__init__(f"{url}: has {have}, this kvledger needs {needed}; run `kvledger migrate --store {url}`")


class StoreTooNew(StoreError):
    """The store's schema is unknown to this code, so a newer kvledger wrote it."""

    def __init__(self, url: str, found: str, newest: str) -> None:
        super().__init__(
            f"{url}: schema {found} is newer than this kvledger knows (up to {newest}); upgrade kvledger to open it"
        )


class StoreBusy(StoreError):
    """Another process holds the database's lock."""


class StoreFull(StoreError):
    """There is no room for another batch."""


class StreamError(LedgerError):
    """One stream of the store."""


class NoSuchStream(StreamError):
    """The stream asked for is not there, or several are and none was named."""


class Fenced(StreamError):
    """A newer epoch of the stream has begun, so an older one may append nothing."""

    def __init__(self, stream: int, epoch: int) -> None:
        super().__init__(
            f"epoch {epoch} of stream {stream} is over: another process has opened the stream since; "
            "stop one of the two, or give each a stream of its own"
        )


class OutOfOrder(StreamError):
    """The batch's first seq is not the one after the log's last."""

    def __init__(self, stream: int, first_seq: int, last_seq: int) -> None:
        super().__init__(
            f"stream {stream}: a batch from seq {first_seq} does not continue the log, which ends at {last_seq}"
        )


class Conflict(StreamError):
    """Different content already stands in the log under the same seqs."""

    def __init__(self, stream: int, first_seq: int) -> None:
        super().__init__(f"stream {stream}: seq {first_seq} is in the log already, with other content")


class Pruned(StreamError):
    """The event at `seq` was pruned; the log begins at `floor`."""

    def __init__(self, stream: str, seq: int, floor: int) -> None:
        super().__init__(
            f"stream {stream!r}: seq {seq} was pruned, the floor is {floor}; begin there, with the state at {floor - 1}"
        )
        self.seq, self.floor = seq, floor


class Forked(StreamError):
    """The log does not hold what the reader had read up to `seq`: a power loss, or a restored backup.

    `forked_seq`: at or before this event the two histories part; all after it has to be read anew.
    """

    def __init__(self, stream: str, seq: int, last_seq: int, epoch_seq: int | None) -> None:
        if epoch_seq is None:
            what = f"seq {seq} was read, and the log ends at {last_seq}"
        else:
            what = f"seq {seq} is not the one that was read; the epoch that holds it began at {epoch_seq}"
        self.seq, self.last_seq = seq, last_seq
        self.forked_seq = last_seq + 1 if epoch_seq is None else epoch_seq
        super().__init__(
            f"stream {stream!r}: history forked at or before seq {self.forked_seq}: {what};"
            " after a power loss or a restored backup, begin anew"
        )
