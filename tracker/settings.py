"""What a user can choose of a tracker; changes when there is one more thing to choose."""

from typing import Literal

import msgspec

from eventstore.domain.policy import PolicyTable

Publish = Literal["after_commit", "at_once"]
Announce = Literal["full", "closes", "none"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a user can choose of a tracker. Sizes in bytes and events, times in milliseconds."""

    self_describing: bool = True
    publish: Publish = "after_commit"
    announce: Announce = "full"
    policies: PolicyTable = PolicyTable()
    retained_bytes: int = 64 * 1024 * 1024
    record_window: int = 65_536
    outbox_events: int = 1_000_000
    degraded_after_ms: int = 1_000
    survivors_a_call: int = 256
