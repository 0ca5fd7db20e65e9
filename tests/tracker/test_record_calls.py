"""What each record call captures and holds, by hand.

The rules are upstream's (vllm/.../offloading/events.py, 0.32 and 0.33).
"""

from dataclasses import replace

import pytest

from eventstore.domain.metadata import Metadata
from tests.scheduler import GroupSpec, Layout, Prompt, RawEvent, make_hash, make_key, removed, stored
from tests.tracker.process import Process, Start
from tests.tracker.published import full_store, placeholder, removal
from tests.tracker.samples import (
    A0,
    A1,
    FULL,
    LORA,
    PRIMARY,
    RECURRENT,
    SAMPLES,
    TAIL,
    TIER_A,
    WIDE,
    WIDE0,
    WINDOW0,
    A,
    H,
    Sample,
)
from tracker.publish import Publisher
from tracker.settings import Settings

DESCRIBABLE = [sample for sample in SAMPLES if sample.metadata is not None]


def held(process: Process, key: bytes) -> set[tuple[str, str | None]]:
    pending = process.tracker.pending
    return set(pending[key].active_residencies) if key in pending else set()


@pytest.mark.parametrize("sample", DESCRIBABLE, ids=repr)
@pytest.mark.parametrize("call", ["record_store", "record_lookup"])
def test_a_record_call_captures_the_chunk_and_holds_the_primary(start: Start, sample: Sample, call: str) -> None:
    process = start()
    getattr(sample, call)(process.tracker)
    assert process.tracker.metadata(sample.key) == sample.metadata
    assert held(process, sample.key) == {("CPU", None)}


@pytest.mark.parametrize("sample", DESCRIBABLE, ids=repr)
def test_a_recorded_chunk_is_published_in_full(start: Start, sample: Sample) -> None:
    process = start()
    sample.record_store(process.tracker)
    process.take(stored(PRIMARY, sample.key), removed(PRIMARY, sample.key))
    process.drain()
    assert process.handed_out == [full_store(PRIMARY, sample), removal(PRIMARY, sample.hashes, sample)]


@pytest.mark.parametrize("call", ["record_store", "record_lookup"])
def test_a_group_with_a_sliding_window_is_not_described(start: Start, call: str) -> None:
    process = start()
    getattr(WINDOW0, call)(process.tracker)
    getattr(WINDOW0._replace(partial=True, at=12), call)(process.tracker)
    assert held(process, WINDOW0.key) == set()
    process.take(stored(PRIMARY, WINDOW0.key), removed(PRIMARY, WINDOW0.key))
    process.drain()
    assert process.handed_out == [placeholder(PRIMARY, WINDOW0), removal(PRIMARY, [WINDOW0.own_hash], WINDOW0)]


def test_with_self_describing_off_nothing_is_captured(start: Start) -> None:
    process = start(Settings(self_describing=False))
    for sample in SAMPLES:
        sample.record_store(process.tracker)
        sample.record_lookup(process.tracker)
    assert len(process.tracker.pending) == 0
    process.take(stored(PRIMARY, A0.key), removed(PRIMARY, A0.key))
    process.drain()
    assert process.handed_out == [placeholder(PRIMARY, A0), removal(PRIMARY, [A0.own_hash], A0)]


@pytest.mark.parametrize(
    ("boundary", "expected"),
    [
        pytest.param(4, Metadata((H[1],), None, (100, 101, 102, 103), 4, 3, "mamba"), id="first chunk, half full"),
        pytest.param(8, Metadata((H[1], H[2]), None, tuple(range(100, 108)), 4, 3, "mamba"), id="on the first edge"),
        pytest.param(12, Metadata((H[3],), H[2], (108, 109, 110, 111), 4, 3, "mamba"), id="later chunk, half full"),
        pytest.param(16, Metadata((H[3], H[4]), H[2], tuple(range(108, 116)), 4, 3, "mamba"), id="on a later edge"),
    ],
)
@pytest.mark.parametrize("call", ["record_partial_store", "record_partial_lookup"])
def test_a_partial_tail_describes_its_valid_tokens_and_hashes_alone(
    start: Start, call: str, boundary: int, expected: Metadata
) -> None:
    process = start()
    key = make_key(H[boundary // 4], RECURRENT.group_idx)
    getattr(process.tracker, call)(A, RECURRENT, boundary, key)
    assert process.tracker.metadata(key) == expected


def test_a_partial_tail_counts_tokens_by_hash_and_not_by_block(start: Start) -> None:
    # Blocks of 8 tokens, hashes of 4: a tail of 12 tokens is one whole block and half of the next.
    process = start()
    layout = replace(RECURRENT, tokens_per_block=8, tokens_per_chunk=16, hashes_per_chunk=4)
    process.tracker.record_partial_store(A, layout, 12, make_key(H[3], 3))
    expected = Metadata((H[1], H[2], H[3]), None, tuple(range(100, 112)), 4, 3, "mamba")
    assert process.tracker.metadata(make_key(H[3], 3)) == expected


def test_a_lookup_of_a_known_partial_tail_holds_nothing(start: Start) -> None:
    process = start()
    TAIL.record_store(process.tracker)
    process.take(removed(PRIMARY, TAIL.key))
    TAIL.record_lookup(process.tracker)
    assert held(process, TAIL.key) == set()


def test_a_lookup_of_a_known_chunk_holds_the_primary(start: Start) -> None:
    # As vLLM 0.33 has it; 0.32 leaves a known chunk as it is.
    process = start()
    A0.record_store(process.tracker)
    process.take(stored(TIER_A, A0.key, flag=True), removed(PRIMARY, A0.key))
    A0.record_lookup(process.tracker)
    assert held(process, A0.key) == {("CPU", None), ("STORAGE", "a")}


def test_a_lookup_does_not_describe_anew_what_is_known(start: Start) -> None:
    process = start()
    A0.record_store(process.tracker)
    other = Prompt([H[7], H[2]], list(range(8)))
    process.tracker.record_lookup(other, FULL, 0, A0.key)
    assert process.tracker.metadata(A0.key) == A0.metadata


def test_a_store_describes_anew_and_keeps_the_holds(start: Start) -> None:
    process = start()
    A0.record_store(process.tracker)
    process.take(stored(TIER_A, A0.key, flag=True))
    other = Prompt([H[7], H[2]], list(range(8)))
    process.tracker.record_store(other, FULL, 0, A0.key)
    assert process.tracker.metadata(A0.key) == Metadata((H[7], H[2]), None, tuple(range(8)), 4, 0, "full_attention")
    assert held(process, A0.key) == {("CPU", None), ("STORAGE", "a")}


def test_a_group_with_larger_blocks_takes_the_last_hash_of_each(start: Start) -> None:
    process = start()
    layout = replace(WIDE, tokens_per_chunk=16, hashes_per_chunk=4)
    process.tracker.record_store(A, layout, 0, make_key(H[4], 2))
    expected = Metadata((H[2], H[4]), None, tuple(range(100, 116)), 8, 2, "full_attention")
    assert process.tracker.metadata(make_key(H[4], 2)) == expected


def test_one_removal_a_group_where_an_event_spans_groups(start: Start) -> None:
    process = start()
    for sample in (A0, WIDE0, A1):
        sample.record_store(process.tracker)
    process.take(stored(PRIMARY, A0.key, WIDE0.key, A1.key))
    process.take(removed(PRIMARY, A0.key, WIDE0.key, A1.key))
    process.drain()
    assert process.handed_out[3:] == [
        removal(PRIMARY, [1, 2, 3, 4], A0),
        removal(PRIMARY, [2], WIDE0),
    ]


def test_a_metadata_only_removal_releases_the_place_and_announces_nothing(start: Start) -> None:
    # vLLM 0.33, where a write to the primary failed; 0.32's events have no such field.
    process = start()
    A0.record_store(process.tracker)
    process.take(removed(PRIMARY, A0.key, metadata_only=True))
    process.drain()
    assert held(process, A0.key) == set()
    assert process.handed_out == []
    assert process.tracker.unmatched_removals == 0


def test_events_without_the_field_metadata_only_are_taken(start: Start) -> None:
    class OlderEvent:
        """vLLM 0.32's."""

        def __init__(self, event: RawEvent) -> None:
            self.keys, self.medium, self.removed = event.keys, event.medium, event.removed
            self.locality, self.ownership, self.removal_expected = None, None, False

    process = start()
    A0.record_store(process.tracker)
    process.handed_out += process.tracker.take_events(
        [OlderEvent(stored(PRIMARY, A0.key)), OlderEvent(removed(PRIMARY, A0.key))]
    )
    process.drain()
    assert process.handed_out == [full_store(PRIMARY, A0), removal(PRIMARY, A0.hashes, A0)]


def test_placeholders_say_what_is_known_of_their_group(start: Start) -> None:
    # vLLM 0.33's `group_specs`.
    specs = {1: GroupSpec("sliding_window", 16)}
    process = start(publisher=Publisher(group_specs=specs))
    process.take(stored(PRIMARY, WINDOW0.key, A0.key))
    process.drain()
    first, second = process.handed_out
    assert (first.kv_cache_spec_kind, first.kv_cache_spec_sliding_window) == ("sliding_window", 16)
    assert (second.kv_cache_spec_kind, second.kv_cache_spec_sliding_window) == (None, None)


def test_the_window_of_a_described_group_is_published(start: Start) -> None:
    process = start()
    layout = Layout(kv_event_group_spec=GroupSpec("chunked_local_attention", 512))
    process.tracker.record_store(A, layout, 0, A0.key)
    process.take(stored(PRIMARY, A0.key))
    process.drain()
    (event,) = process.handed_out
    assert (event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window) == ("chunked_local_attention", 512)


@pytest.mark.parametrize("sample", [A1, LORA, WIDE0, TAIL, WINDOW0], ids=repr)
def test_hashes_go_out_whole_where_the_engine_publishes_them_as_bytes(start: Start, sample: Sample) -> None:
    process = start(publisher=Publisher(integer_hashes=False))
    sample.record_store(process.tracker)
    process.take(stored(PRIMARY, sample.key), removed(PRIMARY, sample.key))
    process.drain()
    event, gone = process.handed_out
    whole = list(sample.metadata.block_hashes) if sample.metadata is not None else [sample.key[:-4]]
    assert event.block_hashes == gone.block_hashes == whole
    assert event.parent_block_hash == (sample.metadata.parent_block_hash if sample.metadata is not None else None)


@pytest.mark.parametrize("size", [8, 20, 32, 64])
def test_hashes_of_any_size_keep_their_low_64_bits(start: Start, size: int) -> None:
    process = start()
    hashes = [make_hash(number, size) for number in (2**64 - 1, 2**63, 3, 0)]
    prompt = Prompt(hashes, list(range(16)))
    process.tracker.record_store(prompt, FULL, 1, make_key(hashes[3]))
    process.take(stored(PRIMARY, make_key(hashes[3])))
    process.drain()
    assert process.handed_out[0].block_hashes == [3, 0]
    assert process.handed_out[0].parent_block_hash == 2**63


def test_requests_with_and_without_an_adapter_share_a_group(start: Start) -> None:
    process = start()
    for sample in (A0, LORA, A1):
        sample.record_store(process.tracker)
    for sample in (A0, LORA, A1):
        assert process.tracker.metadata(sample.key) == sample.metadata
