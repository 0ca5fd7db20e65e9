"""What the tracker knows of the places of its stream; changes with how a place is found to announce removals."""

from typing import Any

import msgspec

from eventstore.domain.errors import BadInput
from eventstore.domain.events import MOST_PLACES, PLACE_SHIFT, PlaceRow, locality_flag
from eventstore.domain.place import PRIMARY, Locality, Place, parse_locality, parse_medium
from eventstore.domain.policy import PolicyTable


class PlaceState(msgspec.Struct):
    """One place at work. `announces` is its policy's word or, where that has none, turns true with the first store
    that carries the flag and stays so, across epochs."""

    number: int
    place: Place
    word: str
    bit: int
    code: int
    policy: bool | None
    announces: bool
    flagged: bool
    primary: bool
    survives_reset: bool
    #: Chunks may be there that memory does not know of: from before it turned out to announce removals. What is not
    #: known to be there is then taken as at a place that announces none.
    unknown: bool = False


class Places:
    """The places by what events call them. `new` are those that the log has yet to learn, or to learn more of."""

    def __init__(self, policies: PolicyTable, known: list[PlaceRow]) -> None:
        self._policies = policies
        self._by_words: dict[tuple[Any, str | None], PlaceState] = {}
        self._localities: dict[Any, tuple[int, str | None]] = {None: (0, None)}
        self.by_number: dict[int, PlaceState] = {}
        self.new: list[PlaceRow] = []
        self.policy_disagreements = 0
        for row in known:
            self._add(row)
        self.primary = self.find(PRIMARY.medium, None)

    def find(self, medium: Any, ownership: str | None) -> PlaceState:
        """The place that an event names, made known where it is new.

        Raises `BadInput` for an unknown medium and where a stream would have more places than the log can number.
        """
        state = self._by_words.get((medium, ownership))
        if state is None:
            word = str(getattr(medium, "value", medium))
            place = Place(parse_medium(word), ownership)
            state = next((one for one in self.by_number.values() if one.place == place), None)
            if state is None:
                number = len(self.by_number) + 1
                if number > MOST_PLACES:
                    raise BadInput(f"place {place}: a stream has at most {MOST_PLACES} places")
                row = PlaceRow(number, place, word)
                self.new.append(row)
                state = self._add(row)
            self._by_words[medium, ownership] = state
        return state

    def _add(self, row: PlaceRow) -> PlaceState:
        policy = self._policies.announces(row.place)
        state = PlaceState(
            number=row.number,
            place=row.place,
            word=row.word,
            bit=1 << row.number,
            code=row.number << PLACE_SHIFT,
            policy=policy,
            announces=row.flagged if policy is None else policy,
            flagged=row.flagged,
            primary=row.place == PRIMARY,
            survives_reset=self._policies.survives_reset(row.place),
        )
        self.by_number[row.number] = state
        return state

    def saw_flag(self, state: PlaceState, flag: bool) -> None:
        """A store at `state` came with or without `removal_expected`."""
        if flag and not state.flagged:
            state.flagged = True
            self.new.append(PlaceRow(state.number, state.place, state.word, flagged=True))
            if state.policy is None:
                state.announces = True
        # vLLM's primary announces every removal and leaves the flag at its default.
        if state.policy is not None and flag != state.policy and (flag or not state.primary):
            self.policy_disagreements += 1

    def locality(self, value: Any) -> tuple[int, str | None]:
        """An event's locality as flag bits and as the word that consumers get."""
        found = self._localities.get(value)
        if found is None:
            parsed: Locality | None = parse_locality(str(getattr(value, "value", value)))
            found = (locality_flag(parsed), parsed.value if parsed else None)
            self._localities[value] = found
        return found
