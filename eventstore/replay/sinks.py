"""Where a replay goes, one sink a class; changes when there is another kind of place to go."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec


class Output(Protocol):
    """What bytes are written to, each time all of them."""

    def write(self, data: bytes, /) -> object: ...  # noqa: D102
    def flush(self) -> object: ...  # noqa: D102


class Sink(Protocol):
    """Takes what goes out, in order."""

    def take(self, contents: list[Any]) -> None:
        """The next ones: words of the log, or KV steps."""

    def flush(self) -> None:
        """Nothing may be kept back: the next ones may be long in coming."""

    def close(self) -> None:
        """The end. What was taken is whole then."""


class JsonLines:
    """One JSON object a line. `file` is the caller's to close."""

    def __init__(self, file: Output) -> None:
        self._file = file
        self._encode = msgspec.json.Encoder().encode_lines

    def take(self, contents: list[Any]) -> None:
        """Write whole lines."""
        self._file.write(self._encode(contents))

    def flush(self) -> None:
        """Send on what is buffered."""
        self._file.flush()

    def close(self) -> None:
        """The same: a line is whole as soon as it is written."""
        self._file.flush()


class Callback:
    """Any Python callable, called once for each."""

    def __init__(self, function: Callable[[Any], object]) -> None:
        self._function = function

    def take(self, contents: list[Any]) -> None:
        """Call it."""
        for content in contents:
            self._function(content)

    def flush(self) -> None:
        """Nothing is kept back."""

    def close(self) -> None:
        """Nothing is kept back."""
