"""`vllm serve` over a deployment, loaded over HTTP by several clients; changes with vLLM's server and its options."""

import http.client
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.vllm.deployment import Deployment, word
from tests.vllm.life import ANSWER_S, Life
from tests.vllm.load import Prompts
from tests.vllm.models import TOKENS_PER_BLOCK
from tests.vllm.observed import RESET_PATH, SCHEDULER_STANDS, TRUTH_PATH, ObservedScheduler, ObservingRoutes

CLIENTS = 6
#: One request in so many is given up by who sent it, after at most so long.
GIVEN_UP, PATIENCE_S = 10, 0.2
_ROOT = Path(__file__).parents[2]


class ServedLife(Life):
    """One `vllm serve`. Its output goes to `served.log` of the deployment's folder."""

    stands_line = SCHEDULER_STANDS
    ready_line = "Application startup complete"

    def __init__(self, deployment: Deployment, load_seed: int) -> None:
        super().__init__(deployment.folder / "served.log")
        self._deployment = deployment
        self._prompts = Prompts(load_seed)
        self._clients: list[threading.Thread] = []
        self._enough = threading.Event()
        # A socket's path has room for about 100 characters, which a test's own folder can exceed.
        self._temporary = Path(tempfile.mkdtemp(prefix="kvl"))
        self._process = subprocess.Popen(
            self._command(),
            env=self._environment(),
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert self._process.stdout is not None
        threading.Thread(target=self._read_output, args=(self._process.stdout,), daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ready(self) -> None:
        super().ready()
        # It says so just before it listens, and nothing once it does.
        give_up = time.monotonic() + ANSWER_S
        while True:
            try:
                self._connect().close()
                return
            except ConnectionRefusedError:
                if time.monotonic() > give_up:
                    raise
                self._enough.wait(0.05)

    def observe(self) -> dict[str, Any]:
        found: dict[str, Any] = self._post(self._connect(), TRUTH_PATH)
        return found

    def reset(self) -> None:
        assert self._post(self._connect(), RESET_PATH) in (True, False)

    def begin_load(self, seed: int) -> None:
        self._enough.clear()
        self._clients = [
            threading.Thread(target=self._client, args=(random.Random(f"{seed} {number}"),), daemon=True)
            for number in range(CLIENTS)
        ]
        for client in self._clients:
            client.start()

    def end_load(self) -> None:
        self._enough.set()
        for client in self._clients:
            client.join(ANSWER_S)
            assert not client.is_alive(), "a request is not answered"
        self._raise_failures()

    def _bury(self) -> None:
        self._enough.set()
        self._process.wait()
        for client in self._clients:
            client.join()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _client(self, draw: random.Random) -> None:
        try:
            connection = self._connect()
            while not self._enough.is_set():
                tokens, answer = self._prompts.draw(draw)
                body = {
                    "model": "tiny",
                    "prompt": " ".join(map(word, tokens)),
                    "max_tokens": answer,
                    "temperature": 0,
                    "ignore_eos": True,
                }
                if not draw.randrange(GIVEN_UP):
                    connection.request(
                        "POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"}
                    )
                    self._enough.wait(draw.uniform(0, PATIENCE_S))
                    connection.close()
                    connection = self._connect()
                    continue
                usage = self._post(connection, "/v1/completions", body)["usage"]
                assert usage["prompt_tokens"] == len(tokens)
                with self.news:
                    self.answered += 1
                    self.news.notify_all()
        except Exception as failure:  # noqa: BLE001 - told to whoever waits; of no interest once it is killed
            self._failed(f"a client failed: {failure!r}")

    def _connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("localhost", timeout=ANSWER_S)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(ANSWER_S)
        connection.sock.connect(str(self._temporary / "http"))
        return connection

    @staticmethod
    def _post(connection: http.client.HTTPConnection, path: str, body: Any = None) -> Any:
        connection.request("POST", path, json.dumps(body or {}), {"content-type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        assert response.status == http.HTTPStatus.OK, answer.decode(errors="replace")
        return json.loads(answer)

    def _command(self) -> list[str]:
        one = self._deployment
        transfer = one.transfer_config(f"kvledger-{uuid.uuid4()}")
        return [
            *(str(Path(sys.executable).with_name("vllm")), "serve", str(one.model.folder)),
            *("--served-model-name", "tiny", "--uds", str(self._temporary / "http"), "--disable-uvicorn-access-log"),
            *("--enforce-eager", "--dtype", "float32", "--seed", "0"),
            *("--block-size", str(TOKENS_PER_BLOCK), "--num-gpu-blocks-override", str(one.gpu_blocks)),
            *("--max-model-len", str(one.max_model_len), "--max-num-seqs", "4"),
            *("--scheduler-cls", f"{ObservedScheduler.__module__}.{ObservedScheduler.__name__}"),
            *("--middleware", f"{ObservingRoutes.__module__}.{ObservingRoutes.__name__}"),
            *("--kv-transfer-config", json.dumps(transfer)),
            *("--kv-events-config", json.dumps(one.events_config())),
        ]

    def _environment(self) -> dict[str, str]:
        paths = [str(_ROOT), str(_name_of_vllm(self._temporary)), os.environ.get("PYTHONPATH", "")]
        return os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "TMPDIR": str(self._temporary),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": str(int(self._deployment.integer_hashes)),
            "VLLM_NO_USAGE_STATS": "1",
        }


def _name_of_vllm(folder: Path) -> Path:
    """A folder that tells the `vllm` command its version: it asks for a package `vllm`, which vllm-cpu is not."""
    try:
        version("vllm")
    except PackageNotFoundError:
        info = folder / "vllm.dist-info"
        info.mkdir()
        # What vLLM itself makes of it in `vllm/platforms/__init__.py`.
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version('vllm-cpu')}+cpu\n")
    return folder
