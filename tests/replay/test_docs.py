"""docs/replay.md has every option of the commands that it is about, and every field and column that they write."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from eventstore.cli.app import app
from eventstore.domain.events import StreamBody
from eventstore.replay.kvsteps import KVStep
from eventstore.replay.lives import COLUMNS
from eventstore.replay.parse import BatchWords, Line
from tests.replay.conftest import Drives
from tests.replay.driving import done

PAGE = (Path(__file__).parent.parent.parent / "docs" / "replay.md").read_text(encoding="utf-8")
_TEXT = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
#: The part of the page that is about a command.
_SECTIONS = dict(re.findall(r"^## `kvledger (\w+)[^`]*`$(.*?)(?=^## |\Z)", _TEXT, flags=re.MULTILINE | re.DOTALL))


def _words(text: str) -> set[str]:
    return {word for code in re.findall(r"`([^`]+)`", text) for word in code.split()}


@pytest.mark.parametrize("command", ["replay", "import", "export"])
def test_every_option_is_documented_with_its_command(command: str) -> None:
    group: Any = typer.main.get_command(app)
    options = {name for option in group.commands[command].params for name in option.opts if option.name != "help"}
    assert {name for name in options if name.startswith("-")} <= _words(_SECTIONS[command])


def test_every_field_of_a_line_is_documented(driven: Drives) -> None:
    replay = _words(_SECTIONS["replay"])
    lines = [
        line
        for form in ("log", "kv")
        for line in done("replay", "--store", driven("two_tier").store, "--form", form).lines()
    ]
    # What a process says of itself when it opens the stream is not for this page.
    assert {name for line in lines for name in line} - set(StreamBody.__struct_fields__) <= replay
    assert {*Line.__struct_fields__, *BatchWords.__struct_fields__, *KVStep.__struct_fields__} <= replay


def test_every_column_of_an_export_is_documented() -> None:
    assert {name for name, _ in COLUMNS} <= _words(_SECTIONS["export"])
