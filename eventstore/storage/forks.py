"""What a forked child does about connections that its parent had open; changes with how SQLite locks its files.

The child must not touch them, not even to close them. And SQLite keeps in memory which locks its process has on a file:
in a child it believes in the parent's, which a fork does not inherit, and takes none of its own. Another process would
then think itself alone and delete the write-ahead log that the child goes on writing. So the child takes them itself.
"""

import ctypes
import fcntl
import os
import weakref

from sqlalchemy.pool import PoolProxiedConnection

from eventstore.domain.errors import StoreUnusable

#: SQLite's own: a reader's lock on the database, and "somebody has this open" on its shared memory.
_DATABASE_SHARED, _SHARED_MEMORY_IN_USE = (0x40000002, 510), (128, 1)

_lent: "weakref.WeakKeyDictionary[PoolProxiedConnection, str]" = weakref.WeakKeyDictionary()
_lost: set[str] = set()


def lend(connection: PoolProxiedConnection, path: str) -> None:
    """`connection` to the file at `path` is in use, until it is gone."""
    _lent[connection] = path


def check(path: str) -> None:
    """Raise `StoreUnusable` in a child that could not take the locks of the file at `path`."""
    if path in _lost:
        raise StoreUnusable(f"store {path}: this process was forked while it was open; start a process afresh for it")


def _forget_in_child() -> None:
    for connection, path in list(_lent.items()):
        # Whoever drops the last reference closes: each gets one that nobody ever drops.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        if not (_lock(path, _DATABASE_SHARED) and _lock(f"{path}-shm", _SHARED_MEMORY_IN_USE)):
            _lost.add(path)


def _lock(path: str, part: tuple[int, int]) -> bool:
    start, length = part
    try:
        # Never closed: that would drop every lock that this process has on the file.
        fcntl.lockf(os.open(path, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH | fcntl.LOCK_NB, length, start)
    except OSError:
        return False
    return True


os.register_at_fork(after_in_child=_forget_in_child)
