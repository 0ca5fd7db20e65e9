"""Kills an engine again and again over one deployment, and reckons after each restart; changes with how it is killed.

`python -m tests.vllm.torture --kills 20 --seed 7` runs it at length (`make torture`).
"""

import argparse
import contextlib
import functools
import json
import random
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from vllm.distributed.kv_events import KVCacheEvent

from tests.vllm.careful_router import CarefulRouter
from tests.vllm.deployment import Deployment
from tests.vllm.forked import Zygote
from tests.vllm.life import ANSWER_S, START_S, Life
from tests.vllm.reckoning import Reckoning
from tests.vllm.serve import ServedLife

#: One life in so many is killed while it starts, its epoch just open; one as it begins to tell.
START_KILLED, TELLING_KILLED = 5, 5
#: One in so many has its caches reset under load; one is without one of its tiers; after one in so many kills, files of
#: the tiers are gone.
RESET, ONE_TIER, FILES_GONE = 3, 8, 4
Start = Callable[[Deployment, int], Life]


class WentWrong(AssertionError):
    """After a restart something was not as it must be."""


class Torture:
    """Lives over one deployment, and a router that reads all of them through one connection."""

    def __init__(self, deployment: Deployment, seed: int, start: Start, say: Callable[[str], None]) -> None:
        self._deployment, self._seed, self._start, self._say = deployment, seed, start, say
        self._draw = random.Random(seed)
        self.reckoning = Reckoning(deployment)
        self.router = CarefulRouter(*deployment.endpoints, self._believe, self.reckoning.forgetful.forget)
        self.kills = 0

    def run(self, kills: int) -> None:
        """Kill so many times; raises `WentWrong` at the first that is not survived."""
        self.router.start()
        life = self._start(self._deployment, self._seed)
        try:
            while True:
                life.ready()
                self._reckon(life, "idle, after its start")
                if self.kills >= kills:
                    self._work_calmly(life)
                    return
                if not self._draw.randrange(2):
                    self._work_calmly(life)
                self._kill_under_load(life)
                life = self._next_life()
                if not self._draw.randrange(START_KILLED):
                    life.stands()
                    self._pause(1.0)
                    self._kill(life, "while it starts")
                    life = self._next_life()
                if not self._draw.randrange(TELLING_KILLED):
                    self._kill_telling(life)
                    life = self._next_life()
        finally:
            life.kill()
            self.router.stop()

    def _believe(self, event: KVCacheEvent) -> None:
        self.reckoning.beliefs.read(event)
        self.reckoning.forgetful.read(event)

    def _next_life(self) -> Life:
        deployment = self._deployment
        if not self._draw.randrange(ONE_TIER):
            deployment = replace(deployment, tiers=deployment.tiers[-1:])
            self._say(f"a life with no tier but {deployment.tiers[0]}")
        return self._start(deployment, self._seed)

    def _work_calmly(self, life: Life) -> None:
        life.begin_load(self._draw.getrandbits(32))
        life.wait_for_answers(self._draw.randint(20, 60))
        if not self._draw.randrange(RESET):
            life.reset()
            life.wait_for_answers(self._draw.randint(5, 30))
        life.end_load()
        self._reckon(life, "idle, after some load")

    def _kill_under_load(self, life: Life) -> None:
        life.begin_load(self._draw.getrandbits(32))
        life.wait_for_answers(self._draw.randint(1, 80))
        if not self._draw.randrange(RESET):
            life.reset()
            life.wait_for_answers(self._draw.randint(0, 10))
        self._pause(0.1)
        self._kill(life, f"under load, after {life.answered} answers")

    def _kill_telling(self, life: Life) -> None:
        """Kill as the first frame of this life arrives, or soon after."""
        before = self.router.beginnings
        assert self.router.wait_until(lambda: self.router.beginnings > before and self.router.frames > 0, START_S)
        self._pause(0.01)
        self._kill(life, f"as it tells, after {self.router.frames} frames")

    def _kill(self, life: Life, when: str) -> None:
        life.kill()
        self.kills += 1
        assert self.router.wait_until_idle(ANSWER_S)
        if not self._draw.randrange(FILES_GONE):
            when += f"; {self._delete_files()} files are deleted"
        with self.router.news:
            found = self.reckoning.killed()
        self._say(f"kill {self.kills}: {when}; {found}")

    def _delete_files(self) -> int:
        doomed = []
        for tier in self._deployment.tiers:
            files = sorted(self._deployment.files(tier).values())
            doomed += self._draw.sample(files, min(len(files), 3))
        for path in doomed:
            path.unlink()
        return len(doomed)

    def _pause(self, most_s: float) -> None:
        # Not for anything to happen: the moment is random, so the length is.
        threading.Event().wait(self._draw.uniform(0, most_s))

    def _reckon(self, life: Life, when: str) -> None:
        truth = life.observe()
        wanted = (truth["frames"], truth["last_ts"])
        if not self.router.wait_until(lambda: (self.router.frames, self.router.last_ts) == wanted, ANSWER_S):
            raise WentWrong(f"the router has read {self.router.frames} frames, the engine has published {wanted[0]}")
        with self.router.news:
            differences = self.reckoning.differences(truth)
        if differences:
            told = "\n  ".join(differences)
            raise WentWrong(f"seed {self._seed}, {self.kills} kills, {when}:\n  {told}")
        self._say(f"  all well, {when}: {_summary(truth)}")


def _summary(truth: dict[str, Any]) -> str:
    tiers = ", ".join(f"{name} {len(keys)}" for name, keys in truth["tiers"].items())
    return f"cpu {len(truth['cpu'])}, {tiers}; {truth['frames']} frames, {truth['unmatched_removals']} unmatched"


def main() -> None:
    """Torture an engine at length: kill it at random moments, restart it over the same store and storage, compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.vllm.torture", description=main.__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, help="of the prompts and of the moments; by default a new one, printed")
    parser.add_argument("--life", choices=["served", "forked"], default="served", help="vllm serve, or a bare engine")
    parser.add_argument("--tiers", default="fs,evicting", help="one or both, with a comma")
    parser.add_argument("--blocks-per-chunk", type=int, default=2)
    parser.add_argument("--hybrid", action="store_true", help="a model with two KV-cache groups, one with a window")
    parser.add_argument("--bytes", action="store_true", help="whole block hashes in events, as bytes")
    parser.add_argument("--ledger", type=json.loads, default={}, help="settings of kvledger, as JSON")
    parser.add_argument("--folder", type=Path, help="leave everything in this folder")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().getrandbits(32)
    print(f"seed {seed}", flush=True)
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvledger-torture-")))
        folder.mkdir(parents=True, exist_ok=True)
        deployment = Deployment(
            folder,
            tiers=tuple(given.tiers.split(",")),
            blocks_per_chunk=given.blocks_per_chunk,
            integer_hashes=not given.bytes,
            hybrid=given.hybrid,
            ledger=given.ledger,
        )
        start: Start = ServedLife
        if given.life == "forked":
            zygote = Zygote()
            stack.callback(zygote.close)
            start = zygote.fork
        try:
            torture = Torture(deployment, seed, start, functools.partial(print, flush=True))
            torture.run(given.kills)
        except WentWrong as wrong:
            sys.exit(str(wrong))
        print(f"survived {torture.kills} kills: {torture.reckoning.exercised()}")


if __name__ == "__main__":
    main()
