"""Settings: where they come from, what is refused and how it is said."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventstore.domain.errors import BadInput
from eventstore.domain.place import Medium, Place
from tracker.configuration import Configuration, configure

STORAGE_A = Place(Medium.STORAGE, "a")
DOCS = Path(__file__).parents[2] / "docs" / "vllm.md"


def write_file(folder: Path, text: str) -> dict[str, str]:
    """A configuration file; returns the environment that names it."""
    path = folder / "kvledger.toml"
    path.write_text(text)
    return {"KVLEDGER_CONFIG": str(path)}


def test_the_documentation_lists_every_setting_with_its_default_and_variable() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(.+?)` \| `(KVLEDGER_\w+)` \|", DOCS.read_text(), re.MULTILINE)
    assert rows == [
        (
            field.name,
            msgspec.json.encode(getattr(Configuration(), field.name)).decode(),
            f"KVLEDGER_{field.name.upper()}",
        )
        for field in msgspec.structs.fields(Configuration)
    ]


@pytest.mark.parametrize(
    ("engine", "environment", "expected"),
    [
        pytest.param({}, {}, 1, id="the file alone"),
        pytest.param({"outbox_events": 2}, {}, 2, id="the engine's configuration goes before the file"),
        pytest.param({"outbox_events": 2}, {"KVLEDGER_OUTBOX_EVENTS": "3"}, 3, id="the environment before both"),
    ],
)
def test_the_nearer_place_decides(
    engine: dict[str, Any], environment: dict[str, str], expected: int, tmp_path: Path
) -> None:
    named = write_file(tmp_path, "outbox_events = 1\npublish = 'at_once'\n")
    found = configure(engine, named | environment)
    assert (found.outbox_events, found.publish) == (expected, "at_once")


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("KVLEDGER_STORE_TOKEN_IDS", "false", False),
        ("KVLEDGER_TAKEOVER_WAIT_S", "0.5", 0.5),
        ("KVLEDGER_STREAM", "null and void", "null and void"),
        ("KVLEDGER_STORE", "/data/ledger.db", "/data/ledger.db"),
        ("KVLEDGER_ANNOUNCE", "closes", "closes"),
    ],
)
def test_a_variable_says_what_a_setting_would(variable: str, text: str, expected: object) -> None:
    found = configure({}, {variable: text})
    assert getattr(found, variable.removeprefix("KVLEDGER_").lower()) == expected


def test_tiers_can_be_given_in_the_environment_as_json() -> None:
    found = configure({}, {"KVLEDGER_TIERS": '{"STORAGE/a": {"announces_removals": true}}'})
    assert found.settings(self_describing=True).policies.announces(STORAGE_A) is True


def test_a_policy_can_be_given_for_a_place_and_for_a_medium() -> None:
    tiers = {"STORAGE": {"survives_reset": False}, "STORAGE/a": {"survives_reset": True}}
    policies = configure({"tiers": tiers}, {}).settings(self_describing=True).policies
    assert [policies.survives_reset(Place(Medium.STORAGE, owner)) for owner in ("a", "b")] == [True, False]


@pytest.mark.parametrize("where", ["kv_connector_extra_config.kvledger", "the environment", "the file"])
def test_an_unknown_setting_is_refused_with_the_nearest_name(where: str, tmp_path: Path) -> None:
    engine, environment = {}, {}
    match where:
        case "the file":
            environment = write_file(tmp_path, "anounce = 'full'")
        case "the environment":
            environment = {"KVLEDGER_ANOUNCE": "full"}
        case _:
            engine = {"anounce": "full"}
    with pytest.raises(BadInput) as refusal:
        configure(engine, environment)
    told = "'KVLEDGER_ANOUNCE'; did you mean 'KVLEDGER_ANNOUNCE'?" if environment.get("KVLEDGER_ANOUNCE") else None
    assert str(refusal.value).startswith(where)
    assert str(refusal.value).endswith(told or "'anounce'; did you mean 'announce'?")


def test_an_unknown_setting_like_no_other_is_refused_with_all_names() -> None:
    with pytest.raises(BadInput, match="no setting is called 'xyzzy'; there are store, stream, publish, "):
        configure({"xyzzy": 1}, {})


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("publish", "later", "'later'"),
        ("announce", None, "null"),
        ("synchronous", "off", "'off'"),
        ("flush_interval_ms", -1, "at least 0"),
        ("outbox_events", 0, "at least 1"),
        ("retained_bytes", "64M", "str"),
        ("store_token_ids", 1, "int"),
        ("heartbeat_ms", 0, "at least 1"),
        ("takeover_wait_s", float("nan"), "at least 0"),
        ("takeover_wait_s", float("inf"), "at least 0"),
        ("tiers", {"TAPE": {}}, "TAPE"),
        ("tiers", {"STORAGE": {"announces": True}}, "announces"),
        ("stream", " ", "empty"),
        ("store", "", "empty"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(name: str, value: object, problem: str) -> None:
    with pytest.raises(BadInput) as refusal:
        configure({name: value}, {})
    told = str(refusal.value)
    assert f"kv_connector_extra_config.kvledger: {name} " in told
    assert problem in told
    assert "\n" not in told


def test_settings_that_are_no_settings_by_name_are_refused() -> None:
    with pytest.raises(BadInput, match=r"expected settings by name, got 'ledger\.db'"):
        configure("ledger.db", {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({"KVLEDGER_CONFIG": "/nowhere/kvledger.toml"}, "KVLEDGER_CONFIG names /nowhere/kvledger.toml"),
        ({"KVLEDGER_TIERS": "{"}, "KVLEDGER_TIERS is not JSON"),
    ],
)
def test_what_cannot_be_read_is_named(environment: dict[str, str], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        configure({}, environment)


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"kvledger\.toml: not TOML: "):
        configure({}, write_file(tmp_path, "publish: at_once"))


def test_what_kubernetes_says_of_a_service_called_kvledger_is_no_setting() -> None:
    service = {
        "KVLEDGER_SERVICE_HOST": "10.0.0.1",
        "KVLEDGER_SERVICE_PORT": "80",
        "KVLEDGER_SERVICE_PORT_HTTP": "80",
        "KVLEDGER_PORT": "tcp://10.0.0.1:80",
        "KVLEDGER_PORT_80_TCP": "tcp://10.0.0.1:80",
        "KVLEDGER_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    assert configure({}, service) == Configuration()
