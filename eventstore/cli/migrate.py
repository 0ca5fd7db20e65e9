"""`kvledger migrate`: create or upgrade the store."""

from eventstore.cli import render
from eventstore.cli.options import DEFAULT_STORE, AsJson, Store
from eventstore.storage.store import open_for_writing

NAME = "migrate"


def command(store: Store = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Create the store, or bring it to this version's schema. Safe to run again, and at once from two processes."""
    engine, (before, after) = open_for_writing(store)
    engine.dispose()
    if as_json:
        render.document({"store": store, "before": before, "after": after})
    elif before == after:
        render.say(f"{store}: schema {after} already, nothing to do")
    else:
        render.say(f"{store}: {'created with' if before is None else f'upgraded from {before} to'} schema {after}")
