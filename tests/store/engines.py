"""Engines as processes of their own, for tests of what processes do to one another.

Run as `python -m tests.store.engines SCENE STORE`; a scene says where it stands on stdout and takes lines on stdin.
"""

import gc
import os
import sys

from eventstore.domain.place import PRIMARY
from eventstore.storage.store import open_for_writing
from tests.openfiles import open_files
from tests.stores import session_on, settle, store_chunk
from tracker.session import Session, this_process
from tracker.settings import Settings


def takes_over(store: str) -> None:
    """Opens the stream `engine`, stores a chunk, says so; at the next line stores another and ends."""
    engine, _ = open_for_writing(store)
    with session_on(engine) as session:
        for number in (101, 102):
            store_chunk(session.tracker, number, PRIMARY)
            settle(session)
            say("stored")
            sys.stdin.readline()


def forgets_to_close(store: str) -> None:
    """Opens a stream, stores a chunk, and comes to its end with everything open."""
    engine, _ = open_for_writing(store)
    session = Session(engine, this_process("engine"), Settings())
    store_chunk(session.tracker, 1, PRIMARY)
    settle(session)


def forks(store: str) -> None:
    """Forks with an open store; parent and child go on, each with a stream of its own."""
    engine, _ = open_for_writing(store)
    session = Session(engine, this_process("parent"), Settings())
    store_chunk(session.tracker, 1, PRIMARY)
    settle(session)
    in_use = engine.connect()
    child = os.fork()
    if not child:
        inherited = files_of(store)
        out = store_chunk(session.tracker, 2, PRIMARY)
        session.close()
        say("handed out", len(out))
        del session, in_use
        gc.collect()
        say("kept open", bool(inherited) and files_of(store) >= inherited)
        with session_on(engine, "child") as own:
            for number in range(100):
                store_chunk(own.tracker, number, PRIMARY)
            settle(own)
        return
    for number in range(100, 200):
        store_chunk(session.tracker, number, PRIMARY)
    settle(session)
    _, status = os.waitpid(child, 0)
    say("child ended with", status)
    store_chunk(session.tracker, 200, PRIMARY)
    settle(session)
    session.close()
    in_use.close()
    engine.dispose()


def outlives_its_parent(store: str) -> None:
    """Forks with an open store; the parent ends at once, the child stores a chunk, and another at the next line."""
    engine, _ = open_for_writing(store)
    session = Session(engine, this_process("parent"), Settings())
    store_chunk(session.tracker, 1, PRIMARY)
    settle(session)
    if os.fork():
        os._exit(0)
    with session_on(engine, "child") as own:
        for number in (1, 2):
            store_chunk(own.tracker, number, PRIMARY)
            settle(own)
            say("stored")
            sys.stdin.readline()


def say(*words: object) -> None:
    """One line to the test."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def files_of(store: str) -> set[tuple[str, str]]:
    """This process's open files that belong to the store."""
    return {(number, name) for number, name in open_files(os.getpid()) if name.startswith(os.path.realpath(store))}


SCENES = {scene.__name__: scene for scene in (takes_over, forgets_to_close, forks, outlives_its_parent)}

if __name__ == "__main__":
    SCENES[sys.argv[1]](sys.argv[2])
