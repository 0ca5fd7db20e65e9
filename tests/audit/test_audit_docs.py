"""docs/audit.md names every check with what it is, and every option of the commands that it is about."""

import re

import pytest

from eventstore.audit.checks import CHECKS
from tests.cli.command import kvledger
from tests.documented import DOCS

PAGE = (DOCS / "audit.md").read_text(encoding="utf-8")
COMMANDS = ("residency", "history", "diff", "stats", "audit")


def sections() -> dict[str, str]:
    """The page's part on each command."""
    found = re.findall(r"^## `kvledger (\w+)[^`]*`$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return dict(found)


def test_every_check_is_documented_with_its_level_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (finding|information) \| .+ \|$", sections()["audit"], re.MULTILINE)
    assert [tuple(row) for row in rows] == [(check.name, check.level) for check in CHECKS]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_documented(command: str) -> None:
    options = set(re.findall(r"--[a-z][a-z-]*", kvledger(command, "--help").out))
    # What every command has is said once, at the head of the page.
    said = PAGE.split("\n## ")[0] + sections()[command]
    assert options - {"--help"} <= set(re.findall(r"--[a-z][a-z-]*", said))
    assert options > {"--store", "--json"}


def test_every_measure_of_stats_is_documented() -> None:
    measures = re.findall(r"^\| `(\w+)` \|", sections()["stats"], re.MULTILINE)
    assert measures == ["lifetime", "idle_before_evict", "reuse_gap", "away"]
