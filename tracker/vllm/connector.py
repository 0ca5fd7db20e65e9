"""The connector: vLLM's offloading connector with our tracker in the scheduler's place for it.

It changes nothing of what is offloaded or how; upstream's code does that. docs/vllm.md says how it is switched on.
"""

import atexit
import socket
import time
from typing import TYPE_CHECKING, Any

import vllm

from eventstore.domain.errors import LedgerError
from tracker.configuration import Configuration, configure
from tracker.opening import Engineside, Ledger, open_stream
from tracker.publish import Publisher
from tracker.vllm.engine_tracker import EngineTracker
from tracker.vllm.versions import TRACKER_ATTRIBUTE, cannot_import, check_scheduler, check_version

try:
    from vllm import envs
    from vllm.distributed.kv_events import BlockRemoved, BlockStored
    from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
    from vllm.logger import init_logger

    from tracker.vllm.fingerprint import checks, fingerprint, place_of
except ImportError as error:
    raise cannot_import(vllm.__version__, error) from None

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

# A name below vLLM's, so that what is said appears in its log, in its form.
logger = init_logger(f"vllm.{__name__}")

#: How long an idle engine that waits for a commit or an answer naps before it looks again: doubled from the first to
#: the last, in seconds. vLLM asks only when it has no request to serve, and would ask again at once.
FIRST_NAP_S, LAST_NAP_S = 0.0005, 0.008


class KvledgerError(RuntimeError):
    """The engine cannot start with this ledger; the message says what to change."""


class KvledgerConnector(OffloadingConnector):
    """vLLM's `OffloadingConnector`, whose chunks' metadata and residency survive a crash."""

    def __init__(self, vllm_config: "VllmConfig", role: KVConnectorRole, kv_cache_config: "KVCacheConfig") -> None:
        """Check and open everything before the engine serves. Raises `KvledgerError` with one line."""
        check_version(vllm.__version__)
        extra: dict[str, Any] = vllm_config.kv_transfer_config.kv_connector_extra_config
        # Before the spec is built: it copies the value.
        extra.setdefault("self_describing_kv_events", True)
        super().__init__(vllm_config, role, kv_cache_config)
        self._ledger: Ledger | None = None
        self._events: EngineTracker | None = None
        self._nap_s = FIRST_NAP_S
        # The workers, of which there can be many, have nothing to say about a ledger.
        if role == KVConnectorRole.SCHEDULER:
            try:
                self._open(vllm_config, configure(extra.get("kvledger", {})))
            except Exception as error:
                # The tiers' threads and shared memory would outlive the refusal.
                super().shutdown()
                if isinstance(error, LedgerError):
                    raise KvledgerError(f"kvledger: {error}") from None
                raise

    def _open(self, vllm_config: "VllmConfig", configuration: Configuration) -> None:
        scheduler: Any = self.connector_scheduler
        check_scheduler(scheduler, vllm.__version__)
        events = vllm_config.kv_events_config
        if events is None or not events.enable_kv_cache_events:
            logger.warning(
                "kvledger records nothing: KV events are off, so no connector is told of a store or a removal. "
                "Start vLLM with --kv-events-config '{\"enable_kv_cache_events\": true}'; "
                'with "publisher": "null" in it, events are logged without a port being opened.'
            )
            return
        stream = configuration.stream or _default_stream(vllm_config)
        theirs, manager = getattr(scheduler, TRACKER_ATTRIBUTE), scheduler.manager
        tiers = list(getattr(manager, "secondary_tiers", ()))
        offloading = build_offloading_config(vllm_config, self._kv_cache_config)
        entries = list(offloading.extra_config.get("secondary_tiers", ()))
        _name_silent_tiers(tiers, entries)
        engineside = Engineside(
            self_describing=theirs.self_describing_enabled,
            publisher=Publisher(
                BlockStored,
                BlockRemoved,
                integer_hashes=bool(envs.VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES),
                group_specs=getattr(theirs, "_group_specs", None) if theirs.self_describing_enabled else None,
            ),
            versions={"vllm": vllm.__version__},
            fingerprint=fingerprint(vllm_config, offloading, tiers, entries),
            checks=checks(tiers),
        )
        self._ledger = open_stream(configuration, stream, engineside, _warn)
        session = self._ledger.session
        self._events = EngineTracker(session.tracker, manager.take_events)
        setattr(scheduler, TRACKER_ATTRIBUTE, self._events)
        atexit.register(self._close)
        logger.info(
            "kvledger: stream %r, epoch %d in %s; %d chunks survive from before",
            stream,
            session.opened.epoch,
            self._ledger.store,
            session.tracker.index.held_count(),
        )

    @property
    def ledger(self) -> Ledger | None:
        """The open stream, on the scheduler's side of an engine with KV events on."""
        return self._ledger

    def has_pending_push_work(self) -> bool:
        """Upstream's, and while consumers have yet to be told something: an idle engine speaks without traffic."""
        if super().has_pending_push_work():
            return True
        events = self._events
        if events is None or not events.tracker.has_something_to_say:
            self._nap_s = FIRST_NAP_S
            return False
        if events.tracker.has_news:
            self._nap_s = FIRST_NAP_S
        else:
            time.sleep(self._nap_s)
            self._nap_s = min(2 * self._nap_s, LAST_NAP_S)
        return True

    @classmethod
    def build_prom_metrics(cls, *given: Any, **named: Any) -> Any:
        """Upstream's. Raises `KvledgerError` where another offloading connector has registered the same ones."""
        try:
            return super().build_prom_metrics(*given, **named)
        except ValueError as error:
            if "Duplicated timeseries" not in str(error):
                raise
            raise KvledgerError(
                "kvledger: another offloading connector of this engine registers the same metrics, and vLLM starts with"
                ' one of them only: remove "OffloadingConnector" from the "connectors" of MultiConnector'
            ) from None

    def shutdown(self) -> None:
        """Upstream's, then drain and end the epoch, within a deadline."""
        try:
            if self._events is not None:
                self._events.drain()
            super().shutdown()
        finally:
            self._close()

    def _close(self) -> None:
        ledger, self._ledger = self._ledger, None
        if ledger is None:
            return
        atexit.unregister(self._close)
        if not ledger.close():
            logger.warning("kvledger: %s", ledger.session.writer.trouble or "not everything was committed in time")


def _warn(text: str) -> None:
    logger.warning("kvledger: %s", text)


def _default_stream(vllm_config: "VllmConfig") -> str:
    """What consumers know the publisher by: host, KV-events endpoint, data-parallel rank.

    vLLM's `engine_id` is a new one at every start, so it says nothing across a restart.
    """
    events: Any = vllm_config.kv_events_config
    if events.publisher == "null" or not events.endpoint:
        raise KvledgerError(
            "kvledger: without a KV-events endpoint the stream has no name of its own; "
            'set "stream" in kv_connector_extra_config.kvledger, or KVLEDGER_STREAM'
        )
    return f"{socket.gethostname()}/{events.endpoint}/{vllm_config.parallel_config.data_parallel_index}"


def _name_silent_tiers(tiers: list[Any], entries: list[dict[str, Any]]) -> None:
    for tier, entry in zip(tiers, entries, strict=False):
        if not entry.get("enable_kv_events", False) and hasattr(tier, "take_events"):
            logger.warning(
                "kvledger: tier %s (%s) announces nothing, so the ledger does not know what it holds: "
                'set "enable_kv_events": true in its entry of secondary_tiers',
                place_of(tier),
                entry.get("type"),
            )
