"""How the connector starts: under which name and stream, with which defaults, and what it refuses in one line."""

import sqlite3
import threading
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import vllm
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.events import OffloadingEventsTracker

from tests.vllm.connectors import connector, vllm_log
from tests.vllm.engine import Engine
from tests.vllm.ledgers import query
from tests.vllm.models import Model
from tracker.vllm.connector import KvledgerConnector, KvledgerError
from tracker.vllm.plugin import register
from tracker.vllm.versions import UnsupportedVLLM

HOST = "tcp://127.0.0.1"


@pytest.fixture
def settings(llama: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine with the connector and nothing chosen, whose user's state folder is the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    return Engine(llama, connector="KvledgerConnector", events=True, events_config={"endpoint": f"{HOST}:5557"})


def chosen(settings: Engine, **ledger: Any) -> Engine:
    return replace(settings, extra_config=settings.extra_config | {"kvledger": ledger})


def streams(store: str | Path) -> set[str]:
    return {name for (name,) in query(Path(store), "SELECT stream FROM streams")}


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("KvledgerConnector", None),
        ("KvledgerConnector", "tracker.vllm.connector"),
        # What `--kv-offloading-size` makes of it.
        ("OffloadingConnector", "tracker.vllm.offloading_connector"),
    ],
)
def test_vllm_finds_the_connector(name: str, module: str | None, settings: Engine) -> None:
    settings.vllm_config()  # loads the plug-ins, as every process of vLLM does
    config = KVTransferConfig(kv_connector=name, kv_connector_module_path=module, kv_role="kv_both")
    assert KVConnectorFactory.get_connector_class(config) is KvledgerConnector


def test_the_offloading_size_alone_switches_it_on(settings: Engine) -> None:
    named = replace(
        settings,
        connector="OffloadingConnector",
        connector_module="tracker.vllm.offloading_connector",
        llm_arguments={"kv_offloading_size": 0.25},
    )
    with connector(named) as made:
        assert made.ledger is not None


def test_the_plug_in_can_be_loaded_again(settings: Engine) -> None:
    settings.vllm_config()
    register()
    assert KVConnectorFactory.get_connector_class_by_name("KvledgerConnector") is KvledgerConnector


def test_by_default_the_ledger_is_a_file_of_the_stream_in_the_users_state_folder(
    settings: Engine, tmp_path: Path
) -> None:
    with connector(settings) as made:
        assert made.ledger is not None
        store = Path(made.ledger.store)
    assert store.parent == tmp_path / "state" / "kvledger"
    assert streams(store) == {f"here/{HOST}:5557/0"}
    assert store.stat().st_mode & 0o777 == 0o600


def test_two_engines_of_one_host_have_streams_of_their_own(settings: Engine) -> None:
    other = replace(settings, events_config={"endpoint": f"{HOST}:5558"})
    with connector(settings) as one, connector(other) as two, connector(settings, data_parallel_index=1) as three:
        ledgers = [made.ledger for made in (one, two, three) if made.ledger is not None]
        assert len({ledger.store for ledger in ledgers}) == 3
    found = [streams(ledger.store) for ledger in ledgers]
    assert found == [{f"here/{HOST}:5557/0"}, {f"here/{HOST}:5558/0"}, {f"here/{HOST}:5557/1"}]


def test_a_second_engine_on_the_stream_of_a_live_one_is_refused_in_one_line(settings: Engine) -> None:
    with connector(settings):
        refusal = refused(chosen(settings, takeover_wait_s=0))
    assert f"stream 'here/{HOST}:5557/0' is being written by another live process" in refusal


def test_without_kv_events_it_says_that_nothing_is_recorded_and_what_to_do(settings: Engine, tmp_path: Path) -> None:
    with vllm_log() as log, connector(replace(settings, events=False)) as made:
        assert made.ledger is None
        assert isinstance(made.connector_scheduler._events_tracker, OffloadingEventsTracker)
    (line,) = log
    assert "KV events are off" in line
    assert "--kv-events-config" in line
    assert '"publisher": "null"' in line
    assert not (tmp_path / "state").exists()


def test_without_an_endpoint_the_stream_has_to_be_named(settings: Engine) -> None:
    portless = replace(settings, events_config={"publisher": "null"})
    assert 'set "stream" in kv_connector_extra_config.kvledger, or KVLEDGER_STREAM' in refused(portless)
    with connector(chosen(portless, stream="mine")) as made:
        assert made.ledger is not None
        assert streams(made.ledger.store) == {"mine"}


@pytest.mark.parametrize("enabled", [True, False])
def test_a_tier_that_announces_nothing_is_named_once(enabled: bool, settings: Engine, tmp_path: Path) -> None:
    fs = {"type": "fs", "root_dir": str(tmp_path / "fs"), "enable_kv_events": enabled}
    with vllm_log() as log, connector(replace(settings, tiers=[fs])):
        pass
    assert len(log) == (0 if enabled else 1)
    assert all(line.startswith("kvledger: tier STORAGE (fs) announces nothing") for line in log)


@pytest.mark.parametrize(("given", "described"), [({}, True), ({"self_describing_kv_events": False}, False)])
def test_events_describe_themselves_unless_the_user_says_otherwise(
    given: dict[str, Any], described: bool, settings: Engine
) -> None:
    with connector(replace(settings, extra_config=given)) as made:
        assert made.ledger is not None
        assert made.ledger.session.tracker.self_describing_enabled is described


def test_workers_open_no_ledger(settings: Engine, tmp_path: Path) -> None:
    with connector(chosen(settings, stroe="x"), KVConnectorRole.WORKER) as made:
        assert made.ledger is None
    assert not (tmp_path / "state").exists()


def a_file_as_folder(path: Path) -> None:
    path.parent.write_text("in the way")


def a_newer_store(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE alembic_version (version_num)")
        connection.execute("INSERT INTO alembic_version VALUES ('9999')")
        connection.execute("PRAGMA application_id = 0x6B766C64")


def nothing(_: Path) -> None:
    pass


def refused(settings: Engine) -> str:
    """The line with which the engine refuses to start."""
    with pytest.raises(KvledgerError) as refusal, connector(settings):
        pass
    line = str(refusal.value)
    assert line.startswith("kvledger: ")
    assert "\n" not in line
    # It ends what is printed, and what caused it is not printed before it with a traceback of its own.
    printed = "".join(traceback.format_exception(refusal.value))
    assert printed.endswith(f"KvledgerError: {line}\n")
    assert printed.count("Traceback") == 1
    return line


@pytest.mark.parametrize(
    ("given", "prepare", "told"),
    [
        pytest.param({"stroe": "x"}, nothing, "did you mean 'store'?", id="an unknown setting"),
        pytest.param({"publish": "later"}, nothing, "publish = 'later' cannot be used", id="a bad value"),
        pytest.param({}, a_file_as_folder, "its folder cannot be created", id="a folder that cannot be"),
        pytest.param({}, a_newer_store, "upgrade kvledger to open it", id="a newer store"),
        pytest.param({"store": "postgresql://db/x"}, nothing, "is not supported", id="a database of another kind"),
    ],
)
def test_what_the_user_has_to_change_is_said_in_one_line(
    given: dict[str, Any], prepare: Callable[[Path], None], told: str, settings: Engine, tmp_path: Path
) -> None:
    store = tmp_path / "ledgers" / "ledger.db"
    prepare(store)
    assert told in refused(chosen(settings, **{"store": str(store)} | given))


def test_a_refused_engine_leaves_no_threads_and_no_shared_memory(settings: Engine, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    tiered = replace(chosen(settings, stroe="x"), tiers=[{"type": "fs", "root_dir": str(tmp_path / "fs")}])
    refused(tiered)
    assert set(threading.enumerate()) <= before
    assert not list(Path("/dev/shm").glob(f"*{tiered.engine_id}*"))


def test_a_corrupt_ledger_is_moved_aside_with_a_line_in_vllms_log(settings: Engine, tmp_path: Path) -> None:
    store = tmp_path / "ledger.db"
    store.write_bytes(b"not a database" * 100)
    with vllm_log() as log, connector(chosen(settings, store=str(store))) as made:
        assert made.ledger is not None
    (line,) = log
    assert "is not an SQLite database" in line
    assert "and a new store begun" in line


@pytest.mark.parametrize("role", list(KVConnectorRole))
def test_another_vllm_is_refused_in_one_line(
    role: KVConnectorRole, settings: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.vllm_config()
    monkeypatch.setattr(vllm, "__version__", "0.31.2")
    with (
        pytest.raises(UnsupportedVLLM, match=r"^kvledger: works with vLLM 0\.32 and 0\.33, this is 0\.31\.2; "),
        connector(settings, role),
    ):
        pass
