"""The router of these tests, against vLLM's own publisher: it misses nothing, and it reads nothing twice."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from vllm.distributed.kv_events import BlockRemoved, KVCacheEvent, KVEventBatch, ZmqEventPublisher

from tests.vllm.careful_router import CarefulRouter
from tests.vllm.deployment import free_ports

DEADLINE_S = 60.0


@pytest.fixture
def ports() -> tuple[int, int]:
    return free_ports()


def someone_listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def publishing(ports: tuple[int, int]) -> Iterator[ZmqEventPublisher]:
    # The sockets of a publisher before are closed by a thread of ZMQ's, some time after it said that they are.
    give_up = time.monotonic() + DEADLINE_S
    while any(map(someone_listens, ports)):
        assert time.monotonic() < give_up
    publisher = ZmqEventPublisher(0, f"tcp://*:{ports[0]}", f"tcp://*:{ports[1]}")
    try:
        yield publisher
    finally:
        publisher.shutdown()


def publish(publisher: ZmqEventPublisher, *numbers: int) -> None:
    for number in numbers:
        publisher.publish(KVEventBatch(ts=float(number), events=[BlockRemoved(block_hashes=[number], medium="CPU")]))


class Reader:
    """A router, and the numbers of the events that it was given, in order."""

    def __init__(self, ports: tuple[int, int]) -> None:
        self.read: list[int] = []
        self.router = CarefulRouter(f"tcp://127.0.0.1:{ports[0]}", f"tcp://127.0.0.1:{ports[1]}", self._believe)

    def _believe(self, event: KVCacheEvent) -> None:
        assert isinstance(event, BlockRemoved)
        self.read += [one for one in event.block_hashes if isinstance(one, int)]

    def reads(self, *numbers: int) -> bool:
        return self.router.wait_until(lambda: self.read == list(numbers), DEADLINE_S)


@pytest.fixture
def reader(ports: tuple[int, int]) -> Iterator[Reader]:
    made = Reader(ports)
    yield made
    made.router.stop()


def test_what_was_published_before_it_connected_is_read(reader: Reader, ports: tuple[int, int]) -> None:
    with publishing(ports) as publisher:
        publish(publisher, 1, 2, 3)
        reader.router.start()
        assert reader.reads(1, 2, 3)
        publish(publisher, 4)
        assert reader.reads(1, 2, 3, 4)


def test_a_publisher_that_begins_its_numbers_again_is_read_from_its_first_frame(
    reader: Reader, ports: tuple[int, int]
) -> None:
    reader.router.start()
    with publishing(ports) as publisher:
        publish(publisher, 1, 2, 3)
        assert reader.reads(1, 2, 3)
    with publishing(ports) as publisher:
        # More than the router has read of the first: no number looks out of turn.
        publish(publisher, 11, 12, 13, 14, 15)
        assert reader.reads(1, 2, 3, 11, 12, 13, 14, 15)
        publish(publisher, 16)
        assert reader.reads(1, 2, 3, 11, 12, 13, 14, 15, 16)


def test_as_many_frames_as_were_read_before_are_not_taken_for_them(reader: Reader, ports: tuple[int, int]) -> None:
    reader.router.start()
    with publishing(ports) as publisher:
        publish(publisher, 1, 2)
        assert reader.reads(1, 2)
    with publishing(ports) as publisher:
        publish(publisher, 11, 12)
        assert reader.reads(1, 2, 11, 12)
