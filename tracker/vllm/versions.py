"""The vLLM versions that the connector is tested with, and what of them it relies on; the one place that knows.

docs/vllm.md lists them from here.
"""

from typing import Any

#: Tested. A patch release of a listed minor version is taken for the same.
SUPPORTED = ("0.32", "0.33")

#: What we call and what calls us, by upstream's names (vllm/.../offloading/scheduler.py, events.py).
TRACKER_ATTRIBUTE = "_events_tracker"
TRACKER_METHODS = (
    "record_store",
    "record_lookup",
    "record_partial_store",
    "record_partial_lookup",
    "take_events",
    "reset",
)


class UnsupportedVLLM(RuntimeError):
    """This vLLM is not one that the connector can work in."""


def check_version(found: str) -> None:
    """Raise `UnsupportedVLLM` where `found` is no tested version."""
    major, _, rest = found.partition(".")
    minor = f"{major}.{rest.partition('.')[0]}"
    if minor not in SUPPORTED:
        raise UnsupportedVLLM(
            f"kvledger: works with vLLM {' and '.join(SUPPORTED)}, this is {found};"
            " install one of them, or a kvledger that knows it"
        )


def cannot_import(found: str, error: ImportError) -> Exception:
    """What to raise where something of vLLM that the connector needs cannot be imported."""
    try:
        check_version(found)
    except UnsupportedVLLM as unsupported:
        return unsupported
    return UnsupportedVLLM(_cannot(found, str(error)))


def check_scheduler(scheduler: Any, found: str) -> None:
    """Raise `UnsupportedVLLM` where the scheduler's side has no tracker, or one that is called in another way."""
    tracker = getattr(scheduler, TRACKER_ATTRIBUTE, None)
    if tracker is None:
        raise UnsupportedVLLM(_cannot(found, f"{type(scheduler).__name__} has no {TRACKER_ATTRIBUTE}"))
    missing = [name for name in TRACKER_METHODS if not callable(getattr(tracker, name, None))]
    if missing:
        raise UnsupportedVLLM(_cannot(found, f"{type(tracker).__name__} has no {', '.join(missing)}"))
    if not callable(getattr(getattr(scheduler, "manager", None), "take_events", None)):
        raise UnsupportedVLLM(_cannot(found, f"{type(scheduler).__name__} has no manager with take_events"))


def _cannot(found: str, problem: str) -> str:
    return f"kvledger: vLLM {found}: {problem}, which kvledger relies on; it works with {' and '.join(SUPPORTED)}"
