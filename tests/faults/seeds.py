"""What a test draws: something else in each run, told where the test fails, and the same again with FAULTS_SEED."""

import os
import random
from typing import Final

#: Whether nothing is left out (`make faults`).
IS_WHOLE: Final = os.environ.get("FAULTS") == "all"


def drawn() -> random.Random:
    """The dice of this test; pytest shows what is printed here where the test fails."""
    seed = int(os.environ.get("FAULTS_SEED") or random.SystemRandom().randrange(2**32))
    print(f"drawn with FAULTS_SEED={seed}")
    return random.Random(seed)
