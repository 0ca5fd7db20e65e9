"""vLLM's own decoder reads what a replay in the KV form gives."""

from pathlib import Path

import msgspec
import pytest
from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVEventBatch

from eventstore.log.cursor import beginning
from eventstore.log.stream import one_stream
from eventstore.replay.kvsteps import KVSteps
from eventstore.replay.reader import Reader, pages
from eventstore.storage.store import open_for_reading
from tests.facts import FACTS, NAMES
from tests.replay.driving import drive


@pytest.mark.parametrize("name", NAMES)
def test_every_event_of_a_replay_is_one_that_vllm_decodes(name: str, tmp_path: Path) -> None:
    encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(KVEventBatch).decode
    engine = open_for_reading(str(drive(name, tmp_path).store))
    with engine.begin() as connection:
        last = one_stream(connection, name).last_seq
    stored = 0
    for page in pages(engine, Reader(KVSteps(), beginning(name), last)):
        for item in page.items:
            frame = decode(encode(item.content.frame()))
            assert frame.ts == item.content.ts
            for theirs, ours in zip(frame.events, item.content.events, strict=True):
                assert isinstance(theirs, BlockStored | BlockRemoved)
                assert msgspec.to_builtins(theirs) == msgspec.to_builtins(ours)
                stored += isinstance(theirs, BlockStored)
    engine.dispose()
    counts = FACTS[name].counts
    assert stored == counts["stored"] - counts["repeated"]
