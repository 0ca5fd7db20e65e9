"""A router that reads an engine's ZMQ stream as a careful one does; changes with vLLM's publisher.

PUB/SUB loses what is sent while a subscriber is not connected, and the numbers of a restarted publisher begin at 0
again. So it asks the replay endpoint for what it has missed, and by the last frame that it has whether the numbers are
still the ones that it knows. It does not know of restarts: it forgets nothing of what it believes, and numbers that
begin again mean to it only that there is more to read.
"""

import threading
from collections.abc import Callable

import msgspec
import zmq
from vllm.distributed.kv_events import KVCacheEvent, KVEventBatch
from zmq.utils.monitor import recv_monitor_message

#: After so long without a frame it asks whether it has missed one.
QUIET_MS = 200
ANSWER_MS = 2_000
_END = -1


class CarefulRouter(threading.Thread):
    """Reads until it is stopped; `believe` gets every event once, in order. `news` guards all that it changes."""

    def __init__(
        self,
        endpoint: str,
        replay_endpoint: str,
        believe: Callable[[KVCacheEvent], None],
        begins_again: Callable[[], None] = lambda: None,
    ) -> None:
        """`begins_again` is called when the numbers do, before `believe` of what comes after."""
        super().__init__(name="careful-router", daemon=True)
        self.news = threading.Condition()
        #: Frames read of the present numbering and when the last was made; how often the numbers began again; frames
        #: that only a replay brought.
        self.frames = 0
        self.last_ts: float | None = None
        self.beginnings = 0
        self.replayed = 0
        #: How often it has found that there was nothing to read.
        self.idle = 0
        self._endpoint, self._replay_endpoint = endpoint, replay_endpoint
        self._believe, self._begins_again = believe, begins_again
        self._decoder = msgspec.msgpack.Decoder(KVEventBatch)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._asking: zmq.Socket[bytes] | None = None
        self._last = b""
        self._stopping = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        """The thread's life."""
        try:
            self._read()
        except BaseException as failure:  # noqa: BLE001 - told to whoever waits
            with self.news:
                self._failure = failure
                self.news.notify_all()
        finally:
            self._context.destroy(linger=0)

    def stop(self) -> None:
        """Read no more."""
        self._stopping.set()
        self.join()

    def wait_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `done` is true of what was read, or time is up; say whether it is true."""
        with self.news:
            self.news.wait_for(lambda: self._failure is not None or done(), timeout_s)
            if self._failure is not None:
                raise self._failure
            return done()

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Wait until it has read all that has reached it by now; say whether it has."""
        with self.news:
            # The look under way may have begun before now.
            wanted = self.idle + 2
        return self.wait_until(lambda: self.idle >= wanted, timeout_s)

    def _read(self) -> None:
        subscriber = self._context.socket(zmq.SUB)
        subscriber.rcvhwm = 0
        subscriber.reconnect_ivl = 20
        changes = subscriber.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        subscriber.subscribe(b"")
        subscriber.connect(self._endpoint)
        poller = zmq.Poller()
        poller.register(subscriber, zmq.POLLIN)
        poller.register(changes, zmq.POLLIN)
        behind = True
        while not self._stopping.is_set():
            ready = dict(poller.poll(QUIET_MS))
            if changes in ready:
                recv_monitor_message(changes)
                behind = True
            elif subscriber in ready:
                _, seq, payload = subscriber.recv_multipart()
                behind = behind or not self._takes(int.from_bytes(seq, "big"), payload)
            else:
                behind = True
                with self.news:
                    self.idle += 1
                    self.news.notify_all()
            if behind:
                behind = not self._catch_up()

    def _takes(self, seq: int, payload: bytes) -> bool:
        """Take a frame if it is the next one; say whether it is plain that none was missed."""
        if seq == self.frames:
            self._accept(payload)
            return True
        return seq == self.frames - 1 and payload == self._last

    def _accept(self, payload: bytes) -> None:
        batch = self._decoder.decode(payload)
        with self.news:
            for event in batch.events:
                self._believe(event)
            self._last, self.last_ts = payload, batch.ts
            self.frames += 1
            self.news.notify_all()

    def _catch_up(self) -> bool:
        """Read what was missed; say whether the publisher answered."""
        answer = self._replay(max(0, self.frames - 1))
        if answer is not None and self.frames:
            if answer and answer[0] == (self.frames - 1, self._last):
                del answer[0]
            else:
                answer = self._replay(0)
                if answer is not None:
                    with self.news:
                        self.frames, self._last, self.last_ts = 0, b"", None
                        self.beginnings += 1
                        self._begins_again()
                        self.news.notify_all()
        for seq, payload in answer or ():
            if seq != self.frames:
                raise AssertionError(f"the publisher's replay buffer begins at {seq}, wanted {self.frames}")
            self._accept(payload)
            self.replayed += 1
        return answer is not None

    def _replay(self, first: int) -> list[tuple[int, bytes]] | None:
        """Every frame from number `first` on that the publisher still has; None if nobody answers."""
        if self._asking is None:
            self._asking = self._context.socket(zmq.DEALER)
            self._asking.connect(self._replay_endpoint)
        self._asking.send_multipart([b"", first.to_bytes(8, "big")])
        frames: list[tuple[int, bytes]] = []
        while self._asking.poll(ANSWER_MS):
            _, _, seq_bytes, payload = self._asking.recv_multipart()
            seq = int.from_bytes(seq_bytes, "big", signed=True)
            if seq == _END:
                return frames
            frames.append((seq, payload))
        # What it may still answer to this socket belongs to no question any more.
        self._asking.close(linger=0)
        self._asking = None
        return None
