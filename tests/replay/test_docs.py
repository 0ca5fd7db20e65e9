"""docs/replay.md has every option of the commands that it is about, and every field and column that they write."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from eventstore.cli.app import app
from eventstore.domain.events import StreamBody
from eventstore.replay.lives import COLUMNS
from tests.replay.conftest import Drives
from tests.replay.driving import done

PAGE = (Path(__file__).parent.parent.parent / "docs" / "replay.md").read_text(encoding="utf-8")
_TEXT = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
_WORDS = {word for code in re.findall(r"`([^`]+)`", _TEXT) for word in code.split()}


@pytest.mark.parametrize("command", ["replay", "import", "export"])
def test_every_option_is_documented(command: str) -> None:
    group: Any = typer.main.get_command(app)
    options = {name for option in group.commands[command].params for name in option.opts if option.name != "help"}
    assert {name for name in options if name.startswith("-")} <= _WORDS
    assert f"## `kvledger {command}" in PAGE


def test_every_field_of_a_line_is_documented(driven: Drives) -> None:
    lines = [
        line
        for form in ("log", "kv")
        for line in done("replay", "--store", driven("two_tier").store, "--form", form).lines()
    ]
    # What a process says of itself when it opens the stream is not for this page.
    body = set(StreamBody.__struct_fields__)
    assert {name for line in lines for name in line} - body <= _WORDS
    assert {name for line in lines if "batch" in line for name in line["batch"]} <= _WORDS


def test_every_column_of_an_export_is_documented() -> None:
    assert {name for name, _ in COLUMNS} <= _WORDS
