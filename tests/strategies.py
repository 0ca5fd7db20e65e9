"""All Hypothesis strategies; changes when a test draws something new."""

from hypothesis import strategies as st

from eventstore.domain.place import Place
from tests.tracker.samples import LATE, PEER, PRIMARY, SAMPLES, STORE_ONLY, TIER_A, TIER_B
from tests.tracker.world import Policy

PLACES = (PRIMARY, PEER, TIER_A, TIER_B, LATE, STORE_ONLY)

#: What a user can say of places that makes a difference.
POLICY_TABLES: tuple[dict[Place, Policy], ...] = (
    {},
    {STORE_ONLY: Policy(None, True, False), TIER_B: Policy(None, False, True)},
    {STORE_ONLY: Policy(True, True, True), PEER: Policy(None, True, False), LATE: Policy(False, True, True)},
    {TIER_A: Policy(None, True, False), TIER_B: Policy(None, True, False)},
)

#: A run has few chunks and few places, so that the same ones meet often.
_cast = st.shared(st.lists(st.sampled_from(SAMPLES), min_size=2, max_size=4, unique_by=repr), key="samples")
_stage = st.shared(st.lists(st.sampled_from(PLACES), min_size=2, max_size=3, unique=True), key="places")
samples = _cast.flatmap(st.sampled_from)
#: (removed, place, metadata only, chunks) of one event of a tier.
operations = st.tuples(
    st.booleans(), _stage.flatmap(st.sampled_from), st.booleans(), st.lists(samples, min_size=1, max_size=3)
)
batches = st.lists(operations, max_size=5)
announces = st.sampled_from(("full", "full", "full", "closes", "none"))
publishes = st.sampled_from(("after_commit", "after_commit", "at_once"))
