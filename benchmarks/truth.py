"""Hold what kinds state of random operators against what is known of these.

    python -m benchmarks.truth                        # today's seed, 20 minutes
    python -m benchmarks.truth --seed 3 --minutes 2
    python -m benchmarks.truth --seed 3 --studies 40  # as many, however long they take
    python -m benchmarks.truth --only posteriors      # leave out the other cases
    python -m benchmarks.truth --case 1234            # one case again, with all numbers
    python -m benchmarks.truth --only networks --kind probe.trace --seeds 50

Cases are drawn by `truth_cases.py`. Each kind that declares `Kind.truth` takes part;
what is known of operators `truth_known.py` forms. Numbers that state an error and are
not compared stand in `truth_left_out.py`, each with the reason. One kind alone is run
by several seeds a case, for a share of its intervals that few cases would leave open.

Prints per variable: numbers compared, how many of their 95 % intervals hold the truth,
with a binomial interval of 95 %, median |z|, how many are flagged as converged, how
many of these and of the others are covered, how many of their flags are right, and the
worst case with the command that repeats it. Intervals are `x_low` to `x_high` where a
kind has them, else a bound either way, or Student's t times `x_sem`. Of what is given
at many points a dozen are compared.

A flag of a quadrature says how far the rule may be off, whatever the random vectors
are. It is right if the same probe with as many steps as there are dimensions, whose
rule is exact for the very vectors, is that close. A flag of chains is right if the
truth is within two standard errors, one of an eigenvalue if the one that is wanted, and
not only some eigenvalue, is within the bound.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML
from scipy.stats import beta, t

import curvflow
from benchmarks.truth_cases import ALLOWED, EXACT, SORTS, cases, repeated, study
from benchmarks.truth_known import Known
from benchmarks.truth_left_out import LEFT_OUT, states_errors
from curvflow import RunOptions
from curvflow.flows.graph.open_study import open_study
from curvflow.schemas.kind import Kind, error_of
from curvflow.schemas.kinds import all_kinds, find_kind

MANY = 10**6  # degrees of freedom where a kind states no interval and no sample size
SLACK = 1e-7  # of the truth: rounding of products and of the dense matrix
ROUNDING = 1e-13  # of the eigenvalue of largest magnitude
POINTS = 12  # compared of what is given at many
IN_VAIN = 300  # cases in a row without the one kind


@dataclass(frozen=True)
class Compared:
    """One number that a kind stated, and what is true.

    Attributes:
        variable: kind and variable.
        case: seed of the study.
        value: stated.
        truth: known.
        sem: standard error stated.
        low: lower end of its interval.
        high: upper end.
        converged: the flag; None if the kind has none.
        off: how far the rule is off, in parts of what the flag says that it may be; NaN
            where the flag is not about a rule.
        is_bound: the error is a bound.
        slack: rounding that is allowed.
    """

    variable: str
    case: int
    value: float
    truth: float
    sem: float
    low: float
    high: float
    converged: bool | None
    off: float = math.nan
    is_bound: bool = False
    slack: float = 0.0

    @property
    def z(self) -> float:
        """Error in standard errors."""
        away = max(0.0, abs(self.value - self.truth) - self.slack)
        return away / self.sem if self.sem > 0 else (math.inf if away else 0.0)

    @property
    def is_covered(self) -> bool:
        """Whether the interval holds the truth."""
        return self.low - self.slack <= self.truth <= self.high + self.slack

    @property
    def is_right(self) -> bool:
        """Whether what the flag says is true."""
        if not math.isnan(self.off):
            return self.off <= 1
        return self.is_covered or (self.z <= 2 and not self.is_bound)


def compared(
    case: int,
    kind: Kind,
    name: str,
    result: Mapping[str, Any],
    truth: Any,
    *,
    offs: Iterable[float] = (),
    rounding: float = 1e-12,
) -> Iterator[Compared]:
    """Yield the numbers of one variable; those without a finite error are left out."""
    values, truths = np.ravel(result[name]), np.ravel(truth)
    error = error_of(kind, name)
    is_bound = not error
    if is_bound:
        error = next(v.name for v in kind.outputs if v.error_of == name)
    errors = np.ravel(result[error])
    if is_bound:
        lows, highs = values - errors, values + errors
    elif f"{name}_low" in result:
        lows, highs = (np.ravel(result[f"{name}_{end}"]) for end in ("low", "high"))
    else:
        freedom = max(1, int(result.get("ess_bulk", MANY)))
        half = t.ppf(0.975, freedom) * errors
        lows, highs = values - half, values + half
    declared = kind.output(name)
    flag = declared.judged_by if declared else None
    flags: Iterable[Any] = [None] * len(values)
    if flag:
        flags = np.ravel(result[flag])
        flags = flags == "converged" if flag == "verdict" else flags
    judged = zip_longest(flags, offs, fillvalue=math.nan)
    every = max(1, len(values) // POINTS)
    for number, (is_converged, off) in enumerate(judged):
        if number % every:
            continue
        if np.isfinite(errors[number]) or np.isfinite(lows[number]):
            yield Compared(
                f"{kind.name.removeprefix('probe.')}.{name}",
                case,
                float(values[number]),
                float(truths[number]),
                float(errors[number]),
                float(lows[number]),
                float(highs[number]),
                None if is_converged is None else bool(is_converged),
                off,
                is_bound,
                SLACK * abs(float(truths[number])) + rounding,
            )


def coefficient(case: int, results: curvflow.Results) -> Iterator[Compared]:
    """Yield a learning coefficient beside what is known of it."""
    found, known = results["llc"], results["known"]
    arrays = {str(name): array.values for name, array in found.variables.items()}
    error = float(known["llc_known_sem"])
    arrays["llc_sem"] = np.hypot(arrays["llc_sem"], error)
    kind = find_kind("probe.llc")
    yield from compared(case, kind, "llc_mean", arrays, known["llc_known"].values)


def run(case: int, kind: str | None = None, seeds: int = 1) -> list[Compared]:
    """Run the study of a case and compare all that is known.

    Args:
        case: seed of the study.
        kind: the one kind that is run; None for all.
        seeds: of that kind's random numbers.

    Returns:
        The numbers; none if the case has no stage of the kind.
    """
    written, values = study(case)
    stages: dict[str, dict[str, Any]] = written["stages"]
    if kind is not None:
        stages = written["stages"] = repeated(stages, kind, seeds)
    if not stages:
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.yaml"
        with path.open("w", encoding="utf-8") as file:
            YAML(typ="safe").dump(written, file)
        options = RunOptions(workers=1)
        with contextlib.redirect_stderr(io.StringIO()):  # refusals are counted
            results = curvflow.run(path, store=Path(folder) / "store", options=options)
        parsed = open_study(path, store="memory:").study.stages
        if values is None:
            values = results["exact"]["eigenvalues"].values.reshape(-1)
        if "known" in stages:
            return (
                [] if "known" in failed(results) else list(coefficient(case, results))
            )
        known = Known(stages, results, values)
        return [
            number
            for stage in stages
            for number in of_stage(
                case,
                stage,
                stages=stages,
                params=parsed[stage].params({}),
                results=results,
                known=known,
            )
        ]


def failed(results: curvflow.Results) -> set[str]:
    """Return the stages that failed."""
    record = results.run
    return {failure["stage"] for failure in (record.failures if record else ())}


def of_stage(
    case: int,
    stage: str,
    *,
    stages: Mapping[str, Mapping[str, Any]],
    params: Any,
    results: curvflow.Results,
    known: Known,
) -> Iterator[Compared]:
    """Yield the numbers of one stage, if its kind declares its truth and it was run."""
    kind, without = find_kind(stages[stage]["use"]), failed(results)
    if kind.truth is None or stage in without or stage.endswith(EXACT):
        return
    result, exact = arrays_of(results, stage), f"{stage}{EXACT}"
    rounding = 1e-12 + ROUNDING * float(np.abs(known.eigenvalues).max())
    for name, truth in kind.truth(
        params, known.of(kind.truth_of, stage), result
    ).items():
        offs: Iterable[float] = ()
        if kind.name in ALLOWED and exact not in without:
            allowed = ALLOWED[kind.name]
            offs = off(allowed, name, result, arrays_of(results, exact))
        for number in compared(
            case, kind, name, result, truth, offs=offs, rounding=rounding
        ):
            by_batches = stages[stage].get("probes_per") == "batch"
            named = f"{number.variable}{', by batches' if by_batches else ''}"
            yield replace(number, variable=named)


def arrays_of(results: curvflow.Results, stage: str) -> dict[str, Any]:
    """Return the variables of a stage."""
    return {str(name): a.values for name, a in results[stage].variables.items()}


def off(
    allowed: tuple[float, float],
    name: str,
    result: Mapping[str, Any],
    exact: Mapping[str, Any],
) -> list[float]:
    """Return how far rules are off, in parts of what their flag says."""
    values, vectors, truths = (
        np.atleast_1d(array)
        for array in (result[name], result[f"{name}_vectors"], exact[name])
    )
    errors, part = allowed
    may = np.maximum(errors * vectors, part * np.abs(values)) + 1e-300
    apart = np.maximum(np.abs(values - truths) - SLACK * np.abs(values), 0.0)
    return [float(share) for share in apart / may]


def share(count: int, whole: int) -> str:
    """Return a share in per cent with its binomial interval of 95 %."""
    if not whole:
        return "-"
    low = beta.ppf(0.025, count, whole - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, whole - count) if count < whole else 1.0
    return f"{100 * count / whole:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def report(numbers: list[Compared]) -> None:
    """Print the table in Markdown."""
    print(
        "| variable | numbers | covered, % | median z | converged, % of all | "
        "of these covered, % | of others, % | flags right, % | worst, z | case |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    by_variable: dict[str, list[Compared]] = defaultdict(list)
    for number in numbers:
        by_variable[number.variable].append(number)
    for variable, same in sorted(by_variable.items()):
        flagged = [number for number in same if number.converged]
        is_judged = same[0].converged is not None
        right = sum(number.is_right for number in flagged)
        held = sum(number.is_covered for number in flagged)
        others = [number.is_covered for number in same if not number.converged]
        worst = max(same, key=lambda number: number.z)
        covered = share(sum(number.is_covered for number in same), len(same))
        median = np.median([number.z for number in same])
        columns = (
            variable,
            str(len(same)),
            covered,
            f"{median:.2f}",
            f"{100 * len(flagged) / len(same):.0f}" if is_judged else "-",
            share(held, len(flagged)) if is_judged else "-",
            share(sum(others), len(others)) if is_judged else "-",
            share(right, len(flagged)) if is_judged else "-",
            f"{worst.z:.1f}",
            f"`--case {worst.case}`",
        )
        print(f"| {' | '.join(columns)} |")


def drawn_numbers(options: argparse.Namespace) -> tuple[list[Compared], int]:
    """Run cases until there are enough, or time is up; return numbers and studies."""
    numbers, count, in_vain, start = list[Compared](), 0, 0, time.perf_counter()
    most = options.studies or math.inf
    minutes = math.inf if options.studies else options.minutes
    drawn = cases(options.seed, options.only)
    while count < most and time.perf_counter() - start < 60 * minutes:
        found = run(next(drawn), options.kind, options.seeds)
        numbers += found
        count += bool(found or options.kind is None)
        in_vain = 0 if found else in_vain + 1
        if options.kind and in_vain == IN_VAIN:
            break
    return numbers, count


def main() -> None:
    """Run cases, as many as asked for or until time is up, and print what they show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    today = int(datetime.datetime.now(tz=datetime.UTC).strftime("%Y%m%d"))
    parser.add_argument(
        "--seed", type=int, default=today, help="today's date if not given"
    )
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--studies", type=int, help="so many, in place of minutes")
    parser.add_argument("--only", choices=SORTS, help="the sort of cases")
    parser.add_argument(
        "--kind", help="the only one that is run, beside what it reads: probe.trace"
    )
    parser.add_argument("--seeds", type=int, default=1, help="a case, with --kind")
    parser.add_argument("--case", type=int, help="only this one, with its numbers")
    options = parser.parse_args()
    if options.kind and find_kind(options.kind).truth is None:
        parser.error(
            f"--kind: expected one that declares its truth, got {options.kind}"
        )
    if options.seeds > 1 and not options.kind:
        parser.error("--seeds: expected --kind beside it, got none")
    if options.case is not None:
        for number in run(options.case, options.kind, options.seeds):
            print(number, f"z = {number.z:.2f}")
        return
    numbers, count = drawn_numbers(options)
    if not numbers and options.kind:
        parser.error(f"--kind: expected cases that have it, got {IN_VAIN} without")
    without = [
        f"{name}: {LEFT_OUT[name]}"
        for name, kind in sorted(all_kinds().items())
        if kind.truth is None and states_errors(kind) and name in LEFT_OUT
    ]
    print(f"seed {options.seed}, {count} studies, {len(numbers)} numbers\n")
    report(numbers)
    if options.kind:
        return
    print("\nwithout a declared truth:\n")
    for line in without:
        print(f"- {line}")


if __name__ == "__main__":
    main()
