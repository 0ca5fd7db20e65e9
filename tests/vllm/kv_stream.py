"""The KV events that an engine published, read back whole from its publisher's replay buffer, and folded."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import zmq
from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVCacheEvent, KVEventBatch
from vllm.v1.kv_offload.base import make_offload_key

from tests.consumer import Credit, Router

DEADLINE_S = 30.0
_END = -1


class KVStream:
    """Every event from the engine's first on, in order. Nothing is missed, however late one starts to listen."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = socket
        self._decoder = msgspec.msgpack.Decoder(KVEventBatch)
        self._next_seq = 0
        self.events: list[KVCacheEvent] = []

    def read_until(self, done: Callable[[list[KVCacheEvent]], bool]) -> bool:
        """Read on until `done` is true of all events so far, or time is up; say whether it is true."""
        give_up = time.monotonic() + DEADLINE_S
        self._read_once()
        while not done(self.events) and time.monotonic() < give_up:
            self._read_once()
        return done(self.events)

    def _read_once(self) -> None:
        self._socket.send_multipart([b"", self._next_seq.to_bytes(8, "big")])
        while True:
            if not self._socket.poll(int(1000 * DEADLINE_S)):
                raise TimeoutError("the publisher did not answer a replay request")
            _, _, seq_bytes, payload = self._socket.recv_multipart()
            seq = int.from_bytes(seq_bytes, "big", signed=True)
            if seq == _END:
                return
            self.events += self._decoder.decode(payload).events
            self._next_seq = seq + 1


@contextmanager
def read_stream(replay_endpoint: str) -> Iterator[KVStream]:
    """Connect to a publisher's replay socket."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(replay_endpoint)
        yield KVStream(socket)


def fold(events: Iterable[KVCacheEvent], medium: str, owner: str | None) -> set[bytes]:
    """Return the keys that a consumer credits to a place, when each event names chunks by their last block alone.

    That is how vLLM publishes without `self_describing_kv_events`. A store of what is credited already, or a removal
    of what is not, is an error: a consumer that counts references would go wrong on it.
    """
    credited: set[bytes] = set()
    for event in events:
        if not isinstance(event, BlockStored | BlockRemoved) or (event.medium, event.ownership) != (medium, owner):
            continue
        keys = {bytes(make_offload_key(bytes(block), event.group_idx or 0)) for block in event.block_hashes}
        if isinstance(event, BlockStored):
            assert not keys & credited, "stored twice"
            credited |= keys
        else:
            assert keys <= credited, "removed and never stored"
            credited -= keys
    return credited


def offloaded(events: Iterable[KVCacheEvent]) -> Iterator[dict[str, Any]]:
    """What a consumer of offloading reads of a stream: the stores and removals off the GPU, as plain values."""
    for event in events:
        if isinstance(event, BlockStored | BlockRemoved) and event.medium != "GPU":
            yield msgspec.to_builtins(event, builtin_types=(bytes,))


def believed(events: Iterable[KVCacheEvent]) -> Counter[Credit]:
    """What a router that counts references ends with: how often each (medium, owner, block hash) is credited."""
    router = Router()
    router.read(offloaded(events))
    return router.believed


class Members:
    """Which block hashes each chunk has, from the stores that say so; a placeholder's chunk has its own alone."""

    def __init__(self, events: Iterable[KVCacheEvent]) -> None:
        self._known: dict[tuple[bytes, str, str | None], list[bytes]] = {}
        for event in events:
            if isinstance(event, BlockStored) and event.medium != "GPU":
                key = make_offload_key(event.block_hashes[-1], event.group_idx or 0)
                self._known[key, event.medium, event.ownership] = event.block_hashes

    def credits(self, held: Mapping[tuple[str, str | None], Iterable[bytes]]) -> Counter[Credit]:
        """What a router should credit where `held` says, by place, which keys are there: each block once a chunk."""
        return Counter(
            (medium, owner, block)
            for (medium, owner), keys in held.items()
            for key in keys
            for block in self._known.get((key, medium, owner), [key[:-4]])
        )
