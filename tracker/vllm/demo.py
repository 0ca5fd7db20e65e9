"""The main job on a live engine: serve, kill -9, start again over the same storage, serve; changes with what is shown.

Run once with upstream's connector and once with ours: the same prompts, killed after the same answer. What is published
is read back from the publisher's replay buffer, so that nothing is missed and both are seen at their best.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import zmq

from eventstore.domain.errors import LedgerError
from tracker.vllm.demo_engine import Order, State, write_model

UPSTREAM, OURS = "OffloadingConnector", "KvledgerConnector"
#: Requests until the first look, until the kill (of those, some are under way), and after the restart.
FIRST, KILLED_AFTER, THEN = 50, 12, 60
ANSWER_S = 300.0
_END = -1


class EngineFailed(LedgerError):
    """The live engine did not do what it should; the message has the last it said."""


class Moment(msgspec.Struct):
    """A look at one engine: what was true, and what it had published since the look before.

    `cpu`, `tier`: the keys held. `events`: as builtins, `type` and fields.
    """

    name: str
    cpu: list[bytes]
    tier: list[bytes]
    events: list[dict[str, Any]]


def run(connector: str, folder: Path, say: Callable[[str], None]) -> list[Moment]:
    """Both lives of an engine with `connector`, over `folder`. Raises `EngineFailed`."""
    write_model(folder.parent / "model")
    folder.mkdir()
    # A socket's path has room for about 100 characters. Both lives publish at one endpoint, as an engine does.
    sockets = Path(tempfile.mkdtemp(prefix="kvl"))
    try:
        return _both_lives(connector, folder, sockets, say)
    finally:
        shutil.rmtree(sockets, ignore_errors=True)


def _both_lives(connector: str, folder: Path, sockets: Path, say: Callable[[str], None]) -> list[Moment]:
    say(f"{connector}: an engine starts, serves {FIRST + KILLED_AFTER} prompts, is killed with requests under way ...")
    with _Process(connector, folder, sockets) as first:
        moments = [first.look("served", f"serve 0 {FIRST}")]
        last = FIRST + 2 * KILLED_AFTER
        moments.append(first.look("killed", f"serve {FIRST} {last} {KILLED_AFTER}"))
        first.kill()
    say(f"{connector}: an engine starts over the same storage and serves {THEN} prompts ...")
    with _Process(connector, folder, sockets) as second:
        moments.append(second.look("restarted", "serve 0 0"))
        moments.append(second.look("served again", f"serve {FIRST} {FIRST + THEN}"))
        second.end()
    return moments


class _Process:
    """One life of the engine."""

    def __init__(self, connector: str, folder: Path, sockets: Path) -> None:
        self._log = folder / "engine.log"
        self._engine_id = f"kvledger-demo-{uuid.uuid4()}"
        self._replay = f"ipc://{sockets}/replay"
        self._seen = 0
        commands, commands_end = os.pipe()
        answers_end, answers = os.pipe()
        publish = f"ipc://{sockets}/publish"
        order = Order(connector, str(folder), publish, self._replay, self._engine_id, commands, answers)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tracker.vllm.demo_engine", msgspec.json.encode(order).decode()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[commands, answers],
            )
        os.close(commands)
        os.close(answers)
        self._commands = os.fdopen(commands_end, "w", buffering=1)
        self._answers = os.fdopen(answers_end)

    def __enter__(self) -> "_Process":
        try:
            self._answer()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self._commands, self._answers):
            pipe.close()
        # An engine that is killed leaves the memory that it shared with its tiers.
        for region in Path("/dev/shm").glob(f"vllm_offload_{self._engine_id}*"):  # noqa: S108
            region.unlink(missing_ok=True)

    def look(self, name: str, command: str) -> Moment:
        """Have the engine do something, then look."""
        self._commands.write(command + "\n")
        state = self._answer()
        events = list(self._published(state.frames))
        return Moment(
            name, [bytes.fromhex(key) for key in state.cpu], [bytes.fromhex(key) for key in state.tier], events
        )

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """Let it end by itself."""
        self._commands.close()
        self._process.wait(ANSWER_S)

    def _answer(self) -> State:
        line = self._answers.readline()
        if not line:
            self._process.wait()
            raise EngineFailed(f"the vLLM engine ended with status {self._process.returncode}: {self._last_words()}")
        return msgspec.json.decode(line, type=State)

    def _last_words(self) -> str:
        """The last error in its log, else the last line."""
        lines = self._log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        return next((line for line in reversed(lines) if re.search(r"\b\w*(Error|Exception|VLLM): ", line)), lines[-1])

    def _published(self, frames: int) -> Iterator[dict[str, Any]]:
        """The events of every frame up to number `frames` that were not read yet."""
        with _asking(self._replay) as socket:
            while self._seen < frames:
                socket.send_multipart([b"", self._seen.to_bytes(8, "big")])
                while True:
                    if not socket.poll(int(1000 * ANSWER_S)):
                        raise EngineFailed("the engine's publisher does not answer")
                    _, _, seq, payload = socket.recv_multipart()
                    if int.from_bytes(seq, "big", signed=True) == _END:
                        break
                    yield from msgspec.msgpack.decode(payload)[1]
                    self._seen += 1


@contextmanager
def _asking(endpoint: str) -> Iterator["zmq.Socket[bytes]"]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(endpoint)
        yield socket
