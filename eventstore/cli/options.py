"""The options that several commands share; changes when one of them does."""

from typing import Annotated

import typer

from eventstore.storage.url import default_store

Store = Annotated[
    str,
    typer.Option(
        "--store", envvar="KVLEDGER_STORE", help="The store: a file or a URL.", show_default="in the state folder"
    ),
]
Stream = Annotated[str | None, typer.Option("--stream", help="The stream, where the store has several.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]

DEFAULT_STORE = default_store()
