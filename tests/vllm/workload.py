"""Requests as a busy server sees them: many, short, over a few long prefixes that some share; seeded."""

import random
from collections.abc import Iterator

from tests.vllm.models import TOKENS_PER_BLOCK, VOCABULARY

AT_ONCE = 4


def batches(seed: int, requests: int, *, prefixes: int = 12, prefix_blocks: int = 8) -> Iterator[list[list[int]]]:
    """Prompts, `AT_ONCE` at a time. Each is a part of one of the prefixes and something of its own after it."""
    draw = random.Random(seed)
    shared = [_tokens(draw, prefix_blocks * TOKENS_PER_BLOCK) for _ in range(prefixes)]
    for _ in range(requests // AT_ONCE):
        yield [
            draw.choice(shared)[: draw.randint(1, prefix_blocks) * TOKENS_PER_BLOCK]
            + _tokens(draw, draw.randint(1, 40))
            for _ in range(AT_ONCE)
        ]


def _tokens(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(3, VOCABULARY) for _ in range(count)]
