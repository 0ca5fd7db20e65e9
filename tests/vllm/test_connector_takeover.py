"""Two engines on one stream: the second waits, is refused, and takes over once the first is dead."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.vllm.engine import Engine
from tests.vllm.ledgers import CPU, assert_sound, ends, query, resident
from tests.vllm.models import Model
from tests.vllm.workload import batches
from tracker.vllm.connector import KvledgerError


def engine(model: Model, folder: Path, wait_s: float, *, in_process: bool) -> Engine:
    ledger = {"store": str(folder / "ledger.db"), "stream": "shared", "takeover_wait_s": wait_s}
    return Engine(
        model,
        in_process=in_process,
        events=True,
        connector="KvledgerConnector",
        extra_config={"kvledger": ledger},
    )


@contextmanager
def on_line(part: str, react: Callable[[], None]) -> Iterator[list[str]]:
    """React to each line of vLLM's log that has `part` in it; the lines."""
    lines: list[str] = []
    handler = logging.Handler()

    def emit(record: logging.LogRecord) -> None:
        if part in record.getMessage():
            lines.append(record.getMessage())
            react()

    handler.emit = emit  # type: ignore[method-assign]
    log = logging.getLogger("vllm")
    log.addHandler(handler)
    try:
        yield lines
    finally:
        log.removeHandler(handler)


def test_the_second_engine_waits_is_refused_in_one_line_and_takes_over_once_the_first_is_killed(
    llama: Model, tmp_path: Path
) -> None:
    store = tmp_path / "ledger.db"
    with engine(llama, tmp_path, 0, in_process=False) as first:
        for prompts in batches(seed=3, requests=8):
            first.generate(prompts, tokens=2)
        held = len(first.truth().cpu)
        with pytest.raises(KvledgerError) as refusal, engine(llama, tmp_path, 0.5, in_process=True):
            pass
        assert "stream 'shared' is being written by another live process (process " in str(refusal.value)
        assert "waited 0.5 s. " in str(refusal.value)
        assert "\n" not in str(refusal.value)
        # The refusal has cost the first one nothing.
        assert query(store, "SELECT state, epoch FROM streams") == [("live", 1)]

        with (
            on_line("waiting up to 300 s", first.kill) as waits,
            engine(llama, tmp_path, 300, in_process=True) as second,
        ):
            assert len(waits) == 1
            assert query(store, "SELECT state, epoch FROM streams") == [("live", 2)]
            assert ends(store) == {(*CPU, "engine_restart"): held}
            for prompts in batches(seed=4, requests=8):
                second.generate(prompts, tokens=2)
            assert resident(store) == {CPU: set(second.truth().cpu)}
    assert_sound(store)
