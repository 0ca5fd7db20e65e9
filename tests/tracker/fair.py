"""Which events of tiers a consumer can follow at all; changes with what is promised of places that flag no removals."""

from collections.abc import Iterator

from eventstore.domain.place import Place
from tests.scheduler import RawEvent, removed, stored
from tests.tracker.model import Model
from tests.tracker.samples import LATE, PEER, TIER_A, TIER_B, Sample

#: (removed, place, metadata only, chunks) as drawn, and the same with the flag as the model takes it.
Drawn = tuple[bool, Place, bool, list[Sample]]
Operation = tuple[bool, Place, bool, bool, list[Sample]]

#: Their stores always carry the flag.
FLAGGING = (PEER, TIER_A, TIER_B)


def fair(model: Model, batch: list[Drawn], events: list[RawEvent], *, turns: bool) -> Iterator[Operation]:
    """The batch without what no consumer could follow, one operation after the other, each as the model stands when
    its turn comes; `events` gets each as a tier reports it. `turns`: stores at LATE carry the flag from now on."""
    for is_removed, place, metadata_only, drawn in batch:
        flag = place in FLAGGING or (place == LATE and (turns or LATE in model.live.flagged))
        announces = flag or model.live.announces(place)
        samples = [one for one in drawn if _is_fair(model, is_removed, metadata_only, place, one, announces)]
        if not announces or place in model.unknown:
            # One at a time, so that each is judged by what the one before has left.
            samples = samples[:1]
        if not samples:
            continue
        keys = [sample.key for sample in samples]
        if is_removed:
            events.append(removed(place, *keys, metadata_only=metadata_only))
        else:
            events.append(stored(place, *keys, flag=flag))
        yield is_removed, place, flag, metadata_only, samples


def _is_fair(
    model: Model, is_removed: bool, metadata_only: bool, place: Place, sample: Sample, announces: bool
) -> bool:
    """Where memory does not know what is there, since the place announces no removals or did not when it was stored,
    what is reported is published as it comes: stored twice and removed once leaves a credit, and a removal of what is
    not there takes another chunk's. And a metadata-only removal is one of what was never announced."""
    live = model.live
    stay = live.open.get((sample.key, place))
    if (sample.key, place) in model.seen:
        return not (is_removed and metadata_only)
    if not is_removed:
        return stay is None or (place != LATE and not announces)
    if metadata_only:
        return stay is None
    if announces and place not in model.unknown:
        return True
    names = set(sample.hashes if sample.key in model.known else [sample.own_hash])
    if stay is not None:
        return stay.stores == 1 and stay.told == names
    return not any(other.told & names for (_, there), other in live.open.items() if there == place)
