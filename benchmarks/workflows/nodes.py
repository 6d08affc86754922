"""The work of both stages: nothing, told in 100 numbers, and one mark per call.

The marks show what a system computed, whatever it reports. As a program, for systems
whose nodes are commands; it imports nothing large, so that such a node costs little:

    python nodes.py first RATE SEED REPEAT OUT
    python nodes.py second SOURCE OUT
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterable
from pathlib import Path

LENGTH = 100


def first(rate: float, seed: int, repeat: int) -> list[float]:
    mark()
    # No two nodes alike for rates below 2, or curvflow would compute one for both.
    return [rate + 2 * seed + 100 * repeat + index / 3 for index in range(LENGTH)]


def second(values: Iterable[float]) -> list[float]:
    mark()
    return [2 * value for value in values]


def mark() -> None:
    """Append one byte to the file of calls; many processes may do so at once."""
    calls = os.open(os.environ["CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(calls, b".")
    os.close(calls)


def main(stage: str, *given: str) -> None:
    *arguments, out = given
    if stage == "first":
        rate, seed, repeat = arguments
        result = first(float(rate), int(seed), int(repeat))
    else:
        (source,) = arguments
        result = second(array("d", Path(source).read_bytes()))
    Path(out).write_bytes(array("d", result).tobytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
