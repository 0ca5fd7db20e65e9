"""What a user can set, where it is looked for, and what is refused; changes when a setting is added.

The environment (`KVLEDGER_*`) goes before the engine's own configuration, that before the file named by
`KVLEDGER_CONFIG` (TOML), and that before the defaults.
"""

import difflib
import math
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from eventstore.domain.errors import BadInput
from eventstore.domain.place import Place, parse_medium
from eventstore.domain.policy import PolicyTable, TierPolicy
from tracker.settings import Announce, Publish, Settings

_PREFIX = "KVLEDGER_"
_FILE = "KVLEDGER_CONFIG"
_ENVIRONMENT = "the environment"
#: What Kubernetes puts into every container's environment for a Service called kvledger.
_SERVICE = re.compile(r"KVLEDGER_(SERVICE_HOST|SERVICE_PORT.*|PORT|PORT_\d+_(TCP|UDP|SCTP).*)")


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one engine's ledger. Times in milliseconds, but for `takeover_wait_s`.

    store: a file or URL; by default a file in the user's state folder, one a stream.
    stream: what the log calls the publisher; by default host, KV-events endpoint and data-parallel rank.
    tiers: policies by place, as `{"STORAGE/nvme0": {"announces_removals": true}}`, or by medium, as `{"STORAGE": ...}`.
    """

    store: str | None = None
    stream: str | None = None
    publish: Publish = "after_commit"
    announce: Announce = "full"
    synchronous: Literal["normal", "full"] = "normal"
    flush_interval_ms: int = 0
    outbox_events: int = 1_000_000
    retained_bytes: int = 64 * 1024 * 1024
    store_token_ids: bool = True
    tail_ms: int = 2_000
    degraded_after_ms: int = 1_000
    heartbeat_ms: int = 10_000
    takeover_wait_s: float = 30.0
    tiers: dict[str, TierPolicy] = {}

    def settings(self, *, self_describing: bool) -> Settings:
        """What of it the tracker itself needs."""
        return Settings(
            self_describing=self_describing,
            publish=self.publish,
            announce=self.announce,
            policies=policy_table(self.tiers),
            retained_bytes=self.retained_bytes,
            outbox_events=self.outbox_events,
            degraded_after_ms=self.degraded_after_ms,
        )


_NAMES = tuple(field.name for field in msgspec.structs.fields(Configuration))
_AT_LEAST = {
    "flush_interval_ms": 0,
    "outbox_events": 1,
    "retained_bytes": 0,
    "tail_ms": 0,
    "degraded_after_ms": 0,
    "heartbeat_ms": 1,
    "takeover_wait_s": 0,
}


def configure(given: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Configuration:
    """The configuration from all its places. Raises `BadInput` with one line that says what to change."""
    merged: dict[str, Any] = {}
    for where, values in (
        (f"the file {environment.get(_FILE)}", _from_file(environment.get(_FILE))),
        ("kv_connector_extra_config.kvledger", given),
        (_ENVIRONMENT, _from_environment(environment)),
    ):
        if not isinstance(values, Mapping):
            raise BadInput(f"{where}: expected settings by name, got {values!r}")
        for name, value in values.items():
            _check_name(name, where)
            merged[name] = _converted(name, value, where)
    return Configuration(**merged)


def policy_table(tiers: Mapping[str, TierPolicy]) -> PolicyTable:
    """The policies that `tiers` spells, by place and by medium."""
    places: dict[Place, TierPolicy] = {}
    media = {}
    for name, policy in tiers.items():
        word, slash, owner = name.partition("/")
        medium = parse_medium(word)
        if slash:
            places[Place(medium, owner or None)] = policy
        else:
            media[medium] = policy
    return PolicyTable(places, media)


def _check_name(name: str, where: str) -> None:
    if name in _NAMES:
        return
    near = difflib.get_close_matches(name, _NAMES, n=1)
    spelled = (lambda known: f"{_PREFIX}{known.upper()}") if where == _ENVIRONMENT else str
    hint = f"did you mean {spelled(near[0])!r}?" if near else f"there are {', '.join(map(spelled, _NAMES))}"
    raise BadInput(f"{where}: no setting is called {spelled(name)!r}; {hint}")


def _converted(name: str, value: Any, where: str) -> Any:
    field = next(one for one in msgspec.structs.fields(Configuration) if one.name == name)
    try:
        # Texts are read as numbers and words only where they come from the environment.
        made = msgspec.convert(value, field.type, strict=where != _ENVIRONMENT)
        if name == "tiers":
            policy_table(made)
    except (msgspec.ValidationError, BadInput) as error:
        raise BadInput(f"{where}: {name} = {value!r} cannot be used: {error}") from None
    if name in _AT_LEAST and not _AT_LEAST[name] <= made < math.inf:
        raise BadInput(f"{where}: {name} = {value!r} cannot be used: at least {_AT_LEAST[name]} is needed")
    if name in ("store", "stream") and made is not None and not made.strip():
        raise BadInput(f"{where}: {name} is empty")
    return made


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for variable, text in environment.items():
        if variable.startswith(_PREFIX) and variable != _FILE and not _SERVICE.fullmatch(variable):
            name = variable.removeprefix(_PREFIX).lower()
            found[name] = _as_json(name, text)
    return found


def _as_json(name: str, text: str) -> Any:
    if name != "tiers":
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadInput(f"the environment: {_PREFIX}TIERS is not JSON: {error}") from None


def _from_file(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{_FILE} names {path}, which cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not TOML: {error}") from None
