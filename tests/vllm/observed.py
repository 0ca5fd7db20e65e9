"""A running engine that can be asked what it holds and how much it has published, over HTTP or in its own process.

vLLM loads both classes by name: `--scheduler-cls tests.vllm.observed.ObservedScheduler`
`--middleware tests.vllm.observed.ObservingRoutes`.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from vllm.v1.engine.core import EngineCore

from tests.vllm.inspection import SETTLE_S, InspectedScheduler, connector_of

#: Printed when the scheduler stands: the connector has opened its epoch, the publisher is bound, nothing is told yet.
SCHEDULER_STANDS = "the observed scheduler stands"
TRUTH_PATH, RESET_PATH = "/observed/truth", "/observed/reset"


class ObservedScheduler(InspectedScheduler):
    """vLLM's scheduler, which counts the frames that it publishes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        EngineCore.offloading_observed = _observe  # type: ignore[attr-defined]
        self.frames_published = 0
        self.last_ts: float | None = None
        self._publish, self.kv_event_publisher.publish = self.kv_event_publisher.publish, self._counted  # type: ignore[method-assign]
        print(SCHEDULER_STANDS, flush=True)

    def _counted(self, events: Any) -> None:
        self._publish(events)
        self.frames_published += 1
        self.last_ts = events.ts


def _observe(core: Any) -> dict[str, Any]:
    """What the managers hold once nothing is under way, and how many frames consumers will have got by then."""
    core.offloading_settled()
    ledger = getattr(connector_of(core), "ledger", None)
    if ledger is not None and not ledger.session.writer.wait_idle(SETTLE_S):
        raise TimeoutError(f"not everything was committed: {ledger.session.writer.trouble}")
    core.offloading_settled()
    tracker = ledger.session.tracker if ledger is not None else None
    held: dict[str, Any] = core.offloading_truth()
    return held | {
        "frames": core.scheduler.frames_published,
        "last_ts": core.scheduler.last_ts,
        "lost": tracker.outbox.lost_events if tracker is not None else 0,
        "placeholders": tracker.placeholders if tracker is not None else 0,
        "unmatched_removals": tracker.unmatched_removals if tracker is not None else 0,
    }


Message = MutableMapping[str, Any]


class ObservingRoutes:
    """Two more routes for vLLM's server, as ASGI middleware."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        path = scope.get("path")
        if scope["type"] != "http" or path not in (TRUTH_PATH, RESET_PATH):
            await self._app(scope, receive, send)
            return
        client = scope["app"].state.engine_client
        if path == RESET_PATH:
            # False: blocks of running requests stay on the GPU. What is offloaded is reset all the same.
            answer = await client.reset_prefix_cache(reset_connector=True)
        else:
            answer = await client.engine_core.call_utility_async("offloading_observed")
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})
