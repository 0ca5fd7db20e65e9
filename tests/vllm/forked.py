"""Engines in one process each, forked from one that has imported vLLM already: a life in seconds instead of a minute.

For killing often. What `vllm serve` has around the engine core, `serve.py` has.
"""

import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.vllm.deployment import Deployment
from tests.vllm.life import ANSWER_S, START_S, Life
from tests.vllm.load import Prompts
from tests.vllm.models import TOKENS_PER_BLOCK

IN_FLIGHT = 6
#: One step in so many, a request is given up by who sent it.
GIVEN_UP = 40
#: What begins a line that answers; the rest of the output is a log.
_ANSWER = "\x1eanswer "
_ONE_MORE, _DONE = "one more", "done"
_ROOT = Path(__file__).parents[2]


class Zygote:
    """The process that lives are forked from. Nothing runs in it: of a process with threads only half is forked."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._temporary = tempfile.TemporaryDirectory(prefix="kvl")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.vllm.forked", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=_ROOT,
                env=os.environ
                | {
                    "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")])),
                    "TMPDIR": self._temporary.name,
                    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                    "VLLM_CPU_KVCACHE_SPACE": "1",
                    "VLLM_NO_USAGE_STATS": "1",
                },
            )

    def fork(self, deployment: Deployment, load_seed: int) -> "ForkedLife":
        """Begin a life."""
        command_in, command_out = os.pipe()
        output_in, output_out = os.pipe()
        order = json.dumps({"deployment": asdict(deployment), "seed": load_seed}, default=str)
        socket.send_fds(self._ours, [order.encode()], [command_in, output_out])
        os.close(command_in)
        os.close(output_out)
        self._ours.settimeout(START_S)
        return ForkedLife(deployment, int(self._ours.recv(64)), command_out, output_in)

    def close(self) -> None:
        """End the process."""
        self._ours.close()
        self._process.wait()
        self._temporary.cleanup()


class ForkedLife(Life):
    """One engine in one process. Its output goes to `forked.log` of the deployment's folder."""

    stands_line = "the observed scheduler stands"
    ready_line = _ANSWER + "ready"

    def __init__(self, deployment: Deployment, pid: int, commands: int, output: int) -> None:
        super().__init__(deployment.folder / "forked.log")
        self._pid = pid
        self._commands = os.fdopen(commands, "w", buffering=1)
        self._answers: list[Any] = []
        self._reader = threading.Thread(target=self._read_output, args=(os.fdopen(output, errors="replace"),))
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._pid

    def observe(self) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("truth")
        return found

    def reset(self) -> None:
        assert self._ask("reset") in (True, False)

    def begin_load(self, seed: int) -> None:
        self._commands.write(f"load {seed}\n")

    def end_load(self) -> None:
        assert self._ask("end") == _DONE

    def _bury(self) -> None:
        self._reader.join()
        self._commands.close()

    def _ask(self, command: str) -> Any:
        self._commands.write(command + "\n")
        with self.news:
            self._wait(lambda: bool(self._answers), ANSWER_S, f"an answer to {command!r}")
            return self._answers.pop()

    def _heard(self, line: str) -> None:
        if line.startswith(_ANSWER) and not line.startswith(self.ready_line):
            answer = json.loads(line.removeprefix(_ANSWER))
            if answer == _ONE_MORE:
                self.answered += 1
            else:
                self._answers.append(answer)


def _be_zygote(orders: socket.socket) -> None:
    import vllm.model_executor.models.llama  # noqa: PLC0415
    import vllm.v1.engine.llm_engine  # noqa: PLC0415
    import vllm.v1.worker.cpu_worker  # noqa: F401, PLC0415

    import tests.vllm.observed  # noqa: F401, PLC0415
    import tracker.vllm.connector  # noqa: F401, PLC0415

    # The kernel buries the killed.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, 65536, 2)
        if not order:
            return
        pid = os.fork()
        if pid == 0:
            orders.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setpgid(0, 0)
            _live(json.loads(order), *descriptors)
            os._exit(0)
        os.setpgid(pid, pid)
        for one in descriptors:
            os.close(one)
        orders.send(str(pid).encode())


def _live(order: dict[str, Any], commands: int, output: int) -> None:
    os.dup2(output, 1)
    os.dup2(output, 2)
    given = order["deployment"]
    lists = {name: tuple(given[name]) for name in ("tiers", "ports")}
    deployment = Deployment(**given | lists | {"folder": Path(given["folder"])})
    os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = str(int(deployment.integer_hashes))
    Loop(_engine(deployment), Prompts(order["seed"]), commands).run()


def _engine(deployment: Deployment) -> Any:
    from vllm import LLM  # noqa: PLC0415
    from vllm.config import KVEventsConfig, KVTransferConfig  # noqa: PLC0415

    return LLM(
        model=str(deployment.model.folder),
        enforce_eager=True,
        dtype="float32",
        block_size=TOKENS_PER_BLOCK,
        num_gpu_blocks_override=deployment.gpu_blocks,
        max_model_len=deployment.max_model_len,
        max_num_seqs=4,
        seed=0,
        scheduler_cls="tests.vllm.observed.ObservedScheduler",
        kv_transfer_config=KVTransferConfig(**deployment.transfer_config(f"kvledger-{uuid.uuid4()}")),
        kv_events_config=KVEventsConfig(**deployment.events_config()),
    )


class Loop:
    """The life itself: commands in, steps of the engine, answers out."""

    def __init__(self, llm: Any, prompts: Prompts, commands: int) -> None:
        self._llm, self._prompts = llm, prompts
        self._engine, self._core = llm.llm_engine, llm.llm_engine.engine_core.engine_core
        self._commands = commands
        self._draw: random.Random | None = None
        self._requests = 0

    def run(self) -> None:
        """Live until killed."""
        _say_answer("ready")
        while True:
            working = self._draw is not None or self._core.scheduler.has_requests()
            if select.select([self._commands], [], [], 0 if working else None)[0]:
                for command in os.read(self._commands, 4096).decode().splitlines():
                    self._obey(*command.split())
            self._work()

    def _obey(self, command: str, argument: str = "") -> None:
        if command == "load":
            self._draw = random.Random(argument)
        elif command == "end":
            self._draw = None
            while self._engine.has_unfinished_requests():
                self._work()
            _say_answer(_DONE)
        elif command == "truth":
            _say_answer(self._core.offloading_observed())
        elif command == "reset":
            # False: blocks of running requests stay on the GPU. What is offloaded is reset all the same.
            _say_answer(self._llm.reset_prefix_cache(reset_connector=True))

    def _work(self) -> None:
        from vllm import SamplingParams  # noqa: PLC0415
        from vllm.inputs import TokensPrompt  # noqa: PLC0415

        while self._draw is not None and self._engine.get_num_unfinished_requests() < IN_FLIGHT:
            tokens, answer = self._prompts.draw(self._draw)
            self._requests += 1
            parameters = SamplingParams(temperature=0, max_tokens=answer, ignore_eos=True, detokenize=False)
            self._engine.add_request(str(self._requests), TokensPrompt(prompt_token_ids=tokens), parameters)
        if self._draw is not None and not self._draw.randrange(GIVEN_UP):
            self._engine.abort_request([str(self._requests - self._draw.randrange(IN_FLIGHT))])
        for output in self._engine.step():
            if output.finished:
                _say_answer(_ONE_MORE)


def _say_answer(answer: Any) -> None:
    text = answer if answer == "ready" else json.dumps(answer)
    os.write(1, f"{_ANSWER}{text}\n".encode())


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as _orders:
        _be_zygote(_orders)
