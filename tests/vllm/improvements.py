"""The ways in which our tracker may differ from upstream's, by the names that docs/differences.md uses."""

import enum


class Improvement(enum.Enum):
    """Each explains a difference in what one call publishes, or in what it leaves held."""

    REMEMBERED = "A chunk that was described stays described"
    REPEATED = "A repeated store is not published"
    UNMATCHED = "An unmatched removal is not published"
    DESCRIBED_LATE = "A placeholder is announced again once its chunk is described"
    RESET_TOLD = "A reset is told to consumers"
    RESET_KEEPS = "A reset keeps what survives it"
    TIER_DECIDES = "The tier decides what holds, not each event"
    UNDESCRIBED_TRACKED = "A chunk that was never described is tracked too"
    LOOKUP_HOLDS = "A lookup's hit holds the primary place"
    RECORDS_LAPSE = "A record call that nothing follows stops holding"
    COMMITTED_FIRST = "Events go out once they are in the log"
