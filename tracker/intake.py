"""What a tier's event does: to memory, to the log, and to what consumers are told; changes with that rule.

The rule is `eventstore.domain.residency`'s, said in bits. It runs on the engine thread, once for each chunk of each
event, so whatever few chunks need is kept out of the loops.
"""

from collections.abc import Container, Mapping, Sequence

from eventstore.domain.events import METADATA_ONLY, PLACEHOLDER, REMOVAL_EXPECTED, REPEATED, UNMATCHED, Kind
from eventstore.domain.key import GROUP_BYTES
from tracker.calls import OffloadingEvent
from tracker.index import Chunk, Index
from tracker.outbox import Run, Step
from tracker.places import Places
from tracker.publish import Publisher
from tracker.retell import Retelling

_STORED, _REMOVED = int(Kind.CHUNK_STORED), int(Kind.CHUNK_REMOVED)
_REPEATED, _UNMATCHED, _PLACEHOLDER = REPEATED << 4, UNMATCHED << 4, PLACEHOLDER << 4


class Intake:
    """Takes in what tiers report, one event after the other."""

    def __init__(self, index: Index, places: Places, publisher: Publisher, retelling: Retelling) -> None:
        #: Since the process began: stores published as placeholders; removals and stores that were not published.
        self.placeholders = 0
        self.unmatched_removals = 0
        self.repeated_stores = 0
        self._index, self._places, self._publisher, self._retelling = index, places, publisher, retelling

    def stored(self, step: Step, event: OffloadingEvent) -> None:
        """A tier holds the event's chunks now."""
        place = self._places.find(event.medium, event.ownership)
        flag = event.removal_expected
        if flag != place.announces or place.policy is not None:
            self._places.saw_flag(place, flag)
        if not place.announces:
            place.unknown = True
        locality_flags, locality = self._places.locality(event.locality)
        code = _STORED | (locality_flags | (REMOVAL_EXPECTED if flag else 0)) << 4 | place.code
        index, bit, announces, primary = self._index, place.bit, place.announces, place.primary
        known, keys = index.chunks, event.keys
        chunks: list[Chunk] = []
        odd: dict[int, int] = {}
        for key in keys:
            chunk = known.get(key)
            if chunk is None:
                chunk = Chunk(b"")
                if announces:
                    known[key] = chunk
            if not chunk.packed:
                odd[len(chunks)] = _PLACEHOLDER
            if announces:
                resident = chunk.resident
                if resident & bit:
                    odd[len(chunks)] = odd.get(len(chunks), 0) | _REPEATED
                else:
                    if not (resident or chunk.recorded):
                        index.unretain(key, chunk)
                    chunk.resident = resident | bit
                    if primary:
                        chunk.recorded = 0
            chunks.append(chunk)
        _add_runs(step, code, keys, chunks, odd)
        new: Sequence[bytes] = keys
        if odd:
            repeated = {at for at, flags in odd.items() if flags & _REPEATED}
            self.repeated_stores += len(repeated)
            self.placeholders += sum(flags == _PLACEHOLDER for flags in odd.values())
            if self._retelling.active:
                for at in repeated:
                    self._retelling.confirmation.noticed(place, keys[at])
            new, chunks = _without(keys, chunks, repeated)
        if self._retelling.active:
            for key, chunk in zip(new, chunks, strict=True):
                step.out += self._retelling.live(place, key, chunk, locality, stored=True)
        packed = [chunk.packed for chunk in chunks]
        step.out += self._publisher.stores(new, packed, place.word, place.place.ownership, locality)

    def removed(self, step: Step, event: OffloadingEvent) -> None:
        """A tier holds the event's chunks no longer."""
        place = self._places.find(event.medium, event.ownership)
        locality_flags, locality = self._places.locality(event.locality)
        metadata_only = getattr(event, "metadata_only", False)
        code = _REMOVED | (locality_flags | (METADATA_ONLY if metadata_only else 0)) << 4 | place.code
        index, bit, announces, primary = self._index, place.bit, place.announces, place.primary
        sure = announces and not place.unknown
        get, keys = index.chunks.get, event.keys
        chunks: list[Chunk] = []
        odd: dict[int, int] = {}
        for key in keys:
            chunk = get(key)
            if chunk is None:
                chunk = Chunk(b"")
                if sure:
                    odd[len(chunks)] = _UNMATCHED
            elif announces:
                resident = chunk.resident
                if resident & bit:
                    resident = chunk.resident = resident ^ bit
                elif sure:
                    odd[len(chunks)] = _UNMATCHED
                if primary:
                    chunk.recorded = 0
                if not (resident or chunk.recorded):
                    index.release(key, chunk)
            chunks.append(chunk)
        _add_runs(step, code, keys, chunks, odd)
        gone: Sequence[bytes] = keys
        if odd:
            gone, chunks = _without(keys, chunks, odd)
        if self._retelling.active:
            for key, chunk in zip(gone, chunks, strict=True):
                step.out += self._retelling.live(place, key, chunk, locality, stored=False)
        if metadata_only:
            return
        self.unmatched_removals += len(odd)
        # What is left out keeps its group's turn: the removals come in the order of upstream's.
        groups = {key[-GROUP_BYTES:]: None for key in keys}
        for group in groups:
            some, of_group = gone, chunks
            if len(groups) > 1:
                some, of_group = _without(gone, chunks, {at for at, key in enumerate(gone) if not key.endswith(group)})
            hashes = self._publisher.all_members(some, [chunk.packed for chunk in of_group])
            if hashes:
                number, owner = int.from_bytes(group), place.place.ownership
                step.out.append(self._publisher.remove(hashes, place.word, number, owner, locality))


def _without(keys: Sequence[bytes], chunks: list[Chunk], positions: Container[int]) -> tuple[list[bytes], list[Chunk]]:
    left = [at for at in range(len(keys)) if at not in positions]
    return [keys[at] for at in left], [chunks[at] for at in left]


def _add_runs(step: Step, code: int, keys: Sequence[bytes], chunks: list[Chunk], odd: Mapping[int, int]) -> None:
    """Give `step` the event's facts: a run, or several where flags differ. `odd`: by position, the flags of the few
    that have any."""
    step.count += len(chunks)
    start = 0
    for at in range(1, len(chunks)) if odd else ():
        if odd.get(at, 0) != odd.get(start, 0):
            step.runs.append(Run(code | odd.get(start, 0), keys[start:at], chunks[start:at]))
            start = at
    if chunks:
        whole = start == 0
        step.runs.append(
            Run(code | odd.get(start, 0), keys if whole else keys[start:], chunks if whole else chunks[start:])
        )
