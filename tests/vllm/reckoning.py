"""Compares what routers believe, what the log holds and what the tiers hold; changes with what must be equal.

What must hold when nothing is under way:
- a router believes of each place exactly what the log holds there: every hash of every chunk, and no other. Where
  removals are announced, with as many references as there are chunks. So does one that forgets everything each time
  the numbers begin again, where survivors are announced;
- at the CPU pool the log holds exactly the chunks that are ready there;
- at a storage tier the log holds nothing that is not there, and of a tier that the engine is without, nothing;
- what is there and not in the log was there and not in the log when some process was killed: written, and not yet
  announced. The tier itself never says of it that it is there: it comes into the log when it is stored again, and goes
  without a word;
- no store is without tokens, but for chunks of which no process has ever logged a description;
- no removal leaves out a member of its chunk.

With `publish: at_once` a router can have read what a kill kept from the log; nobody can take that back. There one that
never forgets may also credit what it credited at some kill and the log did not have then, and nothing else.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.vllm.beliefs import At, Beliefs, Chunk, Hash
from tests.vllm.deployment import OWNER, Deployment

PLACES: dict[str, At] = {"cpu": ("CPU", None), "fs": ("STORAGE", None), "evicting": ("STORAGE", OWNER)}
#: vLLM's own file tier never announces a removal, and announces a store of what it has already.
_UNCOUNTED = "fs"


class Reckoning:
    """The comparison over all lives of a deployment."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self.beliefs = Beliefs()
        self._announces_survivors = deployment.ledger.get("announce", "full") == "full"
        #: What a router believes that forgets whenever the numbers begin again.
        self.forgetful = Beliefs()
        self._places = ("cpu", *deployment.tiers)
        self._unannounced: dict[str, set[bytes]] = {tier: set() for tier in deployment.tiers}
        self._never_logged: dict[str, set[Hash]] = {place: set() for place in self._places}

    def killed(self) -> dict[str, int]:
        """Note, now that no process runs and the router has read what it got, what the log does not have; and how
        much of what there is."""
        found: dict[str, int] = {}
        for tier in self._deployment.tiers:
            logged, files = set(self._logged(tier)), set(self._deployment.files(tier))
            self._unannounced[tier] = files - logged
            found |= {f"{tier}: unannounced": len(files - logged), f"{tier}: gone": len(logged - files)}
        for place in self._places:
            believed, expected = self._believed_and_expected(place, self.beliefs)
            if self._deployment.ledger.get("publish") == "at_once":
                self._never_logged[place] |= (believed - expected).keys()
            found |= {f"{place}: untold stores": (expected - believed).total()}
            found |= {f"{place}: untold ends": (believed - expected).total()}
        return {what: count for what, count in found.items() if count}

    def differences(self, truth: dict[str, Any]) -> list[str]:
        """Everything that is not as it must be; `truth` is what the engine said of itself (`observed.py`)."""
        found = list(self._differences_of_log(truth))
        for place in self._places:
            found += self._differences_of_belief(place, "the router", self.beliefs, self._never_logged[place])
            if self._announces_survivors:
                found += self._differences_of_belief(place, "the router that forgets", self.forgetful, set())
        if torn := self.beliefs.torn_removals():
            found.append(f"{len(torn)} removals leave out members of a chunk: {_some(torn[0].block_hashes)} ...")
        if truth["lost"]:
            found.append(f"{truth['lost']} events were not logged")
        return found

    def _differences_of_log(self, truth: dict[str, Any]) -> Iterable[str]:
        yield from _diff("cpu", "the log", self._logged("cpu"), "the pool", map(bytes.fromhex, truth["cpu"]))
        for tier in self._deployment.tiers:
            logged, files = set(self._logged(tier)), set(self._deployment.files(tier))
            held = truth["tiers"].get("fs" if tier == "fs" else OWNER)
            if held is None:
                yield from _diff(tier, "the log", logged, "an engine without the tier", [])
                continue
            yield from _diff(tier, "the disk", files, "the tier", map(bytes.fromhex, held))
            known = files - (self._unannounced[tier] - logged)
            yield from _diff(tier, "the log", logged, "the disk, less what was never announced,", known)

    def _differences_of_belief(self, place: str, who: str, beliefs: Beliefs, tolerated: set[Hash]) -> Iterable[str]:
        believed, expected = self._believed_and_expected(place, beliefs)
        # However often: with each life that it could not be told of, a router may credit one more.
        if extra := {one for one in believed - expected if one not in tolerated}:
            yield f"{place}: {who} credits {len(extra)} hashes that the log does not: {_some(extra)}"
        if missing := expected - believed:
            yield f"{place}: the log has {len(missing)} hashes that {who} does not credit: {_some(missing)}"

    def _believed_and_expected(self, place: str, beliefs: Beliefs) -> tuple[Counter[Hash], Counter[Hash]]:
        """What a router credits to a place, and what it has to by the log."""
        believed, expected = beliefs.at(PLACES[place]), Counter[Hash]()
        for key, placeholder in self._logged(place).items():
            chunk = self._chunk(key)
            expected.update(chunk[1:] if placeholder else self.beliefs.hashes_of([chunk]))
        if place == _UNCOUNTED:
            return Counter(set(believed)), Counter(set(expected))
        return believed, expected

    def _logged(self, place: str) -> dict[bytes, bool]:
        """The keys that the log holds at a place, and whether each was announced without tokens."""
        rows = self.ask(
            'SELECT r."key", r.placeholder, c.described_seq FROM residency AS r JOIN chunks AS c ON c.chunk = r.chunk'
            " WHERE r.medium = ? AND r.ownership IS ?",
            *PLACES[place],
        )
        for key, placeholder, described in rows:
            assert not (placeholder and described), f"{key} was announced without tokens, and is described"
        return {bytes.fromhex(key): bool(placeholder) for key, placeholder, _ in rows}

    def ask(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Ask the ledger's file, as anyone can."""
        if not self._deployment.store.exists():
            return []
        connection = sqlite3.connect(f"file:{self._deployment.store}?mode=ro", uri=True)
        try:
            return connection.execute(statement, parameters).fetchall()
        finally:
            connection.close()

    def exercised(self) -> dict[str, int]:
        """How often each thing happened that a kill can fall into: by the log, over all lives."""
        ends = "SELECT count(*) FROM lifecycle WHERE medium = ? AND reason IN (SELECT value FROM json_each(?))"
        gone = json.dumps(["evicted", "demoted"])
        tier = "evicting" if "evicting" in self._deployment.tiers else "fs"
        ((evicted_cpu,),) = self.ask(ends, "CPU", gone)
        ((evicted_tier,),) = self.ask(ends, "STORAGE", gone)
        ((died,),) = self.ask(ends, "CPU", json.dumps(["engine_restart"]))
        ((survived,),) = self.ask(
            "SELECT count(*) FROM epochs AS e JOIN lifecycle AS l ON l.opened_seq < e.started_seq"
            " AND coalesce(l.closed_seq, e.started_seq + 1) > e.started_seq WHERE l.medium = ? AND l.ownership IS ?",
            *PLACES[tier],
        )
        ((promoted,),) = self.ask(
            "SELECT count(*) FROM lifecycle AS c JOIN lifecycle AS s ON s.chunk = c.chunk AND s.medium = 'STORAGE'"
            " AND s.opened_seq < c.opened_seq AND coalesce(s.closed_seq, c.opened_seq + 1) > c.opened_seq"
            " WHERE c.medium = 'CPU'"
        )
        found = {"died with a process": died, "survived a kill": survived, "came back from a tier": promoted}
        found |= {"evicted from the pool": evicted_cpu}
        return found | ({"evicted from the tier": evicted_tier} if tier == "evicting" else {})

    def _chunk(self, key: bytes) -> Chunk:
        last = key[:-4]
        named: Hash = int.from_bytes(last[-8:], "big") if self._deployment.integer_hashes else last
        return int.from_bytes(key[-4:], "big"), named


def _diff(where: str, one: str, left: Iterable[bytes], other: str, right: Iterable[bytes]) -> Iterable[str]:
    ours, theirs = set(left), set(right)
    if more := ours - theirs:
        yield f"{where}: {one} has {len(more)} that {other} has not: {_some(key.hex() for key in more)}"
    if more := theirs - ours:
        yield f"{where}: {other} has {len(more)} that {one} has not: {_some(key.hex() for key in more)}"


def _some(things: Iterable[Any]) -> str:
    return ", ".join(map(str, sorted(things, key=str)[:4]))
