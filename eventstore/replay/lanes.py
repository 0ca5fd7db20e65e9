"""Residencies as lanes for trace viewers (Perfetto, chrome://tracing); changes with how they are drawn.

The form is Chrome's "Trace Event Format": a process a place, a lane a chunk, a bar a residency. Times there are
microseconds in a double, which cannot hold nanoseconds since 1970: they count from the first event, and the true ones
stand beside.
"""

from typing import Any

import msgspec

from eventstore.domain import clock
from eventstore.domain.events import Kind
from eventstore.replay.lives import Life, life_words, with_iso_times
from eventstore.replay.sinks import Output


class Lanes:
    """A sink for residencies. `began_ns` is time 0; what is still open is drawn up to `ends_ns`."""

    def __init__(
        self, file: Output, stream: str, began_ns: int, ends_ns: int, marks: list[tuple[int, int, Kind]]
    ) -> None:
        self._file, self._stream, self._began_ns, self._ends_ns = file, stream, began_ns, ends_ns
        self._encode = msgspec.json.Encoder().encode
        self._processes: set[int] = set()
        self._lanes: set[int] = set()
        self._chunk = self._lane = 0
        head = {"stream": stream, "began": clock.iso(began_ns), "began_ns": began_ns}
        file.write(b'{"displayTimeUnit":"ms","otherData":' + self._encode(head) + b',"traceEvents":[\n')
        self._first = True
        self._put([_meta("process_name", 0, 0, name=stream), *(self._mark(*mark) for mark in marks)])

    def take(self, contents: list[Life]) -> None:
        """Draw residencies, in order of their chunks."""
        drawn: list[dict[str, Any]] = []
        for life in contents:
            if life.chunk != self._chunk:
                self._chunk, self._lane = life.chunk, self._lane + 1
                self._lanes.clear()
            drawn += self._named(life)
            drawn.append(self._bar(life))
        self._put(drawn)

    def flush(self) -> None:
        """Send on what is buffered."""
        self._file.flush()

    def close(self) -> None:
        """The end of the document."""
        self._file.write(b"\n]}\n")
        self._file.flush()

    def _put(self, events: list[dict[str, Any]]) -> None:
        if events:
            lead = b"" if self._first else b",\n"
            self._file.write(lead + b",\n".join(map(self._encode, events)))
            self._first = False

    def _named(self, life: Life) -> list[dict[str, Any]]:
        """What a process and a lane are called, before the first bar in them."""
        number, out = life.place.number, []
        if number not in self._processes:
            self._processes.add(number)
            out.append(_meta("process_name", number, 0, name=str(life.place.place)))
            out.append(_meta("process_sort_index", number, 0, sort_index=number))
        if number not in self._lanes:
            self._lanes.add(number)
            out.append(_meta("thread_name", number, self._lane, name=life.key.hex()))
        return out

    def _bar(self, life: Life) -> dict[str, Any]:
        end = life.closed_ns if life.closed_ns is not None else self._ends_ns
        return {
            "ph": "X",
            "cat": "residency",
            "name": life.key.hex()[:12],
            "pid": life.place.number,
            "tid": self._lane,
            "ts": self._at(life.opened_ns),
            "dur": max(0, end - life.opened_ns) / 1e3,
            "args": with_iso_times(life_words(self._stream, life)),
        }

    def _mark(self, seq: int, time_ns: int, kind: Kind) -> dict[str, Any]:
        at = {"ts": self._at(time_ns), "pid": 0, "tid": 0, "args": {"seq": seq, "time": clock.iso(time_ns)}}
        return {"ph": "i", "s": "g", "cat": "stream", "name": kind.name.lower()} | at

    def _at(self, time_ns: int) -> float:
        # A viewer knows no time before 0; a clock that was stepped back does.
        return max(0, time_ns - self._began_ns) / 1e3


def _meta(what: str, process: int, lane: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": lane, "args": args}
