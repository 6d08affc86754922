"""Fuzz the reader of studies for some minutes: `make fuzz`, `make fuzz SEED=3`.

A text that fails is made small and kept as `build/fuzz/failing.yaml`. The seed
that is printed repeats a round: `make fuzz SEED=3 ROUNDS=1`.
"""

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, settings

from tests.fuzz.examples import edited_example
from tests.fuzz.grammar import CASES, Case, random_case
from tests.fuzz.reader import HangError, check

BY_GRAMMAR, AT_RANDOM, OF_EXAMPLES = 300, 1500, 500  # texts of one round
FAILING = Path("build/fuzz/failing.yaml")


def fuzz_round(
    seed: int,
    checked: Callable[[Case], object],
    *,
    by_grammar: int = BY_GRAMMAR,
    at_random: int = AT_RANDOM,
    of_examples: int = OF_EXAMPLES,
) -> None:
    """Check the texts of one round: by grammar, at random, and edited examples."""

    @hypothesis.seed(seed)
    @settings(
        max_examples=by_grammar,
        database=None,
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )
    @hypothesis.given(CASES)
    def of_grammar(case: Case) -> None:
        checked(case)

    of_grammar()
    source = random.Random(seed)
    for _ in range(at_random):
        checked(random_case(source))
    for _ in range(of_examples):
        checked(edited_example(source))


def main() -> None:
    """Fuzz until the time is over, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=None)
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    begin, said, longest = time.monotonic(), Counter[str](), 0.0
    last: Case = ("", ())

    def checked(case: Case) -> None:
        nonlocal last, longest
        last, started = case, time.process_time()
        text = check(case)
        longest = max(longest, time.process_time() - started)
        said["planned" if text == "planned" else "refused"] += 1

    rounds = 0
    while time.monotonic() - begin < given.seconds and rounds != given.rounds:
        try:
            fuzz_round(seed + rounds, checked)
        except (Exception, HangError):
            FAILING.parent.mkdir(parents=True, exist_ok=True)
            FAILING.write_text(last[0], encoding="utf-8", errors="surrogatepass")
            sys.stdout.write(traceback.format_exc())
            repeat = f"make fuzz SEED={seed + rounds} ROUNDS=1"
            sys.stdout.write(
                f"--set of it: {last[1]}; text: {FAILING}\nagain: {repeat}\n"
            )
            sys.exit(1)
        rounds += 1
    seconds = time.monotonic() - begin
    sys.stdout.write(
        f"seed {seed}, {rounds} rounds in {seconds:.0f} s: {said.total():,} texts, "
        f"{said['planned']:,} planned, {said['refused']:,} refused on one line, the "
        f"longest in {longest:.2f} s of the processor\n"
    )


if __name__ == "__main__":
    main()
