"""Requests with shared beginnings, by the seed: what an engine is loaded with; changes with what users ask.

There are several times more of them than the pools hold, so chunks are evicted, and they come back.
"""

import random
from collections.abc import Sequence

from tests.vllm.models import TOKENS_PER_BLOCK, VOCABULARY

TOPICS = 6
STEMS = 3
TOPIC_BLOCKS, STEM_BLOCKS = 4, 6
MOST_TAIL, MOST_ANSWER = 40, 40


class Prompts:
    """Draws prompts: a topic's beginning, one of its stems after it, both cut off anywhere, and a tail of its own."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self._beginnings: Sequence[Sequence[int]] = [
            topic + stem
            for topic in (_tokens(draw, TOPIC_BLOCKS * TOKENS_PER_BLOCK) for _ in range(TOPICS))
            for stem in (_tokens(draw, STEM_BLOCKS * TOKENS_PER_BLOCK) for _ in range(STEMS))
        ]

    def draw(self, draw: random.Random) -> tuple[list[int], int]:
        """Return a prompt's tokens, and how many to answer with."""
        beginning = draw.choice(self._beginnings)
        cut = draw.randint(TOKENS_PER_BLOCK, len(beginning))
        return [*beginning[:cut], *_tokens(draw, draw.randint(1, MOST_TAIL))], draw.randint(1, MOST_ANSWER)


def _tokens(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(3, VOCABULARY) for _ in range(count)]
