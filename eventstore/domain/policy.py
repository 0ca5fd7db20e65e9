"""What is true of a place, and where that is looked up; changes when a tier gets a new property.

The defaults are the table of docs/architecture.md, "Tier policies". An entry may leave a property open (None):
whether the place announces removals is then the event's own `removal_expected` flag.
"""

import msgspec

from eventstore.domain.place import Medium, Place


class TierPolicy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Does a place announce removals, does it survive a restart, does it survive a cache reset."""

    announces_removals: bool | None = None
    survives_restart: bool | None = None
    survives_reset: bool | None = None


_VOLATILE = TierPolicy(announces_removals=True, survives_restart=False, survives_reset=False)
_DEFAULT_PRIMARY = {Place(Medium.CPU): _VOLATILE, Place(Medium.GPU): _VOLATILE}
_DEFAULT_MEDIUM = {
    Medium.GPU: TierPolicy(survives_restart=False, survives_reset=True),
    Medium.CPU: TierPolicy(survives_restart=False, survives_reset=True),
    Medium.STORAGE: TierPolicy(survives_restart=True, survives_reset=True),
}


class PolicyTable(msgspec.Struct, frozen=True):
    """Policies by exact place, then by medium; the first that knows a property decides it.

    `places` and `media` are the user's words. An exact word beats one about a medium, the defaults' included: what is
    said of the medium CPU is not said of the primary.
    """

    places: dict[Place, TierPolicy] = {}
    media: dict[Medium, TierPolicy] = {}

    def announces(self, place: Place) -> bool | None:
        """Whether removals are announced there; None leaves it to each store event's own flag."""
        for policy in self._chain(place):
            if policy.announces_removals is not None:
                return policy.announces_removals
        return None

    def survives_restart(self, place: Place) -> bool:
        """Whether what is there outlives the process. The primary never does, whatever is configured."""
        if place.ownership is None and place.medium is not Medium.STORAGE:
            return False
        return self._first(place, "survives_restart")

    def survives_reset(self, place: Place) -> bool:
        """Whether what is there outlives a cache reset."""
        return self._first(place, "survives_reset")

    def _first(self, place: Place, name: str) -> bool:
        for policy in self._chain(place):
            value: bool | None = getattr(policy, name)
            if value is not None:
                return value
        return False

    def _chain(self, place: Place) -> list[TierPolicy]:
        candidates = (
            self.places.get(place),
            _DEFAULT_PRIMARY.get(place),
            self.media.get(place.medium),
            _DEFAULT_MEDIUM[place.medium],
        )
        return [policy for policy in candidates if policy is not None]
