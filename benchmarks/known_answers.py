"""Known coefficients beside the estimates of curvflow and of devinterp.

    curvflow run studies/llc-truth.yaml
    python -m benchmarks.known_answers [--store FOLDER] [--draws N]

Populations, true weights, temperatures, seeds and curvflow's estimates are those in the
study's store. devinterp 1.3.2, installed beforehand, is given the same networks in
single precision and the whole population as a batch, so that a loss is the exact K(w).

Its settings are, once, chosen for it, as its documentation asks: the study's
temperature, the localization that curvflow found, hence the same posterior, eight
chains of 2,000 draws, one step each, or `--draws`, as many steps of burn-in, and the
step that a sweep finds. Of steps from 0.1 downwards by factors of √10, with chains a
quarter as long, it takes the first whose estimate is positive and within 5 % or two
standard errors of that of the one before, √10 times as large; none is taken where there
is no such step. Once, they are its defaults: SGLD, lr 0.01, an inverse temperature of
B / ln B for a batch of B, no localization, 10 chains of 100 draws, no burn-in. An
estimate is the mean of chains with its standard error; where one leaves the finite
numbers it is shown as diverged.
Prints a table in Markdown, whose last row counts what is within 5 % or two standard
errors, as the study asks.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import curvflow
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.problems import read

STUDY = Path(__file__).parents[1] / "studies" / "llc-truth.yaml"
SHARE, STANDARD_ERRORS = 0.05, 2
HEADS = ("case", "λ, m", "nβ", "curvflow", "devinterp", "its nβ", "by its defaults")
# Of chains whose settings are chosen; those of a sweep are a quarter as long.
CHAINS, DRAWS = 8, 2000
STEPS = [10 ** (-half / 2) for half in range(2, 19)]


class Estimate(NamedTuple):
    """What a system found, and what it says is wrong with it."""

    mean: float
    sem: float
    wrong: str = ""

    def __str__(self) -> str:
        """Return it to two digits of its error."""
        if not math.isfinite(self.mean):
            return self.wrong or "diverged"
        places = max(0, 1 - math.floor(math.log10(self.sem)))
        shown = f"{self.mean:.{places}f} ± {self.sem:.{places}f}"
        return f"{shown} ({self.wrong})" if self.wrong else shown

    def holds(self, known: float) -> bool:
        """Return whether it is as near the truth as the study asks."""
        return abs(self.mean - known) <= max(SHARE * known, STANDARD_ERRORS * self.sem)


class Flat(nn.Module):
    """A network as a module whose one parameter is the vector of its weights."""

    def __init__(self, network: Network, weights_D: Tensor) -> None:
        """Begin at some weights."""
        super().__init__()
        self.network, self.weights = network, nn.Parameter(weights_D)

    def forward(self, inputs_NI: Tensor) -> Tensor:
        """Return the outputs, (N, C)."""
        return self.network.outputs(self.weights[None], inputs_NI[None])[0]


class Case(NamedTuple):
    """A population, and the network at its truth."""

    module: Flat
    inputs: Tensor
    targets: Tensor


def stored(results: curvflow.Results, name: str) -> Case:
    """Return a case of the study; where shapes differ, the store pads with NaN."""
    truth = results["truth"].sel(case=name)
    network = read(truth["network"].item()).network
    weights_D = torch.tensor(truth["weights"].values[: network.num_parameters])
    population = results["population"].sel(case=name)
    padded = (torch.tensor(population[one].values) for one in ("inputs", "targets"))
    inputs_NI, targets_NC = (
        one[~one[:, 0].isnan()][:, ~one[0].isnan()].float() for one in padded
    )
    return Case(Flat(network, weights_D.float()), inputs_NI, targets_NC)


def mean_sse(outputs_NC: Tensor, targets_NC: Tensor) -> Tensor:
    """Return K: the mean over samples of the sum of squared errors."""
    return (outputs_NC - targets_NC).square().sum(1).mean()


def of_study(results: curvflow.Results, name: str) -> list[Estimate]:
    """Return what the study's calibrated chains find, of each seed."""
    found = results["llc"].sel(case=name, sampler="calibrated")
    wrong = [
        status if status != "ok" else "" if verdict == "converged" else verdict
        for status, verdict in zip(
            found["status"].values, map(str, found["verdict"].values), strict=True
        )
    ]
    return [*map(Estimate, found["llc_mean"].values, found["llc_sem"].values, wrong)]


def of_peer(
    case: Case, seed: int, optimizer: dict[str, float] | None = None, **chains: int
) -> Estimate:
    """Return what devinterp finds; what is not given is its default."""
    data = TensorDataset(case.inputs, case.targets)
    loader: Any = DataLoader(data, batch_size=len(data))
    sampler = import_module("devinterp.slt.sampler")
    try:
        found = sampler.estimate_learning_coeff_with_summary(
            case.module,
            loader,
            evaluate=import_module("devinterp.utils").make_evaluate(mean_sse),
            optimizer_kwargs=optimizer or {},
            seed=seed,
            verbose=False,
            **chains,
        )
    except RuntimeError as error:
        if "NaN detected" not in str(error):
            raise
        return Estimate(math.nan, math.nan)
    count = sum(name.startswith("llc-chain/") for name in found)
    return Estimate(found["llc/mean"], found["llc/std"] / math.sqrt(count))


def swept(
    case: Case, seed: int, *, nbeta: float, localization: float, draws: int
) -> Estimate:
    """Return what devinterp finds by a step from a sweep of its own."""

    def by_step(lr: float, length: int, seed: int) -> Estimate:
        optimizer = {"lr": lr, "nbeta": nbeta, "localization": localization}
        lengths = {"num_draws": length, "num_burnin_steps": length}
        return of_peer(case, seed, optimizer, num_chains=CHAINS, **lengths)

    before = Estimate(math.nan, math.nan)
    for lr in STEPS:
        trial = by_step(lr, draws // 4, seed + 1000)
        if agree(before, trial):
            return by_step(lr, draws, seed)
        before = trial
    return Estimate(math.nan, math.nan, "no step")


def agree(before: Estimate, trial: Estimate) -> bool:
    """Return whether two trials of a sweep are on a plateau."""
    if not (math.isfinite(before.mean) and trial.mean > 0):
        return False
    apart = abs(before.mean - trial.mean)
    errors = STANDARD_ERRORS * math.hypot(before.sem, trial.sem)
    return apart <= max(SHARE * trial.mean, errors)


class Row(NamedTuple):
    """A case, and what each system finds of it, seed by seed."""

    name: str
    known: float
    multiplicity: int
    nbeta: float
    systems: tuple[list[Estimate], ...]
    default_nbeta: float


def compared(results: curvflow.Results, draws: int) -> Iterator[Row]:
    """Yield the cases of the study."""
    truth, llc = results["truth"], results["llc"].sel(sampler="calibrated")
    seeds = llc["seed"].values.tolist()
    for name in map(str, truth["case"].values):
        case, known = stored(results, name), truth.sel(case=name)
        chosen, batch = llc.sel(case=name), len(case.inputs)
        nbeta = chosen["nbeta"].values[0].item()
        held = chosen["localization"].values.tolist()
        yield Row(
            name,
            known["llc_true"].item(),
            known["llc_multiplicity"].item(),
            nbeta,
            (
                of_study(results, name),
                [
                    swept(case, seed, nbeta=nbeta, localization=gamma, draws=draws)
                    for seed, gamma in zip(seeds, held, strict=True)
                ],
                [of_peer(case, seed) for seed in seeds],
            ),
            batch / math.log(batch),
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="of the study; by default beside it")
    parser.add_argument("--draws", type=int, default=DRAWS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"| {' | '.join(HEADS)} |")
    print("|---" * len(HEADS) + "|")
    held: list[list[bool]] = [[], [], []]
    for row in compared(curvflow.open(STUDY, store=asked.store), asked.draws):
        for found, several in zip(held, row.systems, strict=True):
            found += [one.holds(row.known) for one in several]
        own, same, default = (", ".join(map(str, found)) for found in row.systems)
        known = f"{row.known:.4g}, {row.multiplicity}"
        nbetas = f"{row.nbeta:.0e}", f"{row.default_nbeta:.1f}"
        cells = (row.name, known, nbetas[0], own, same, nbetas[1], default)
        print(f"| {' | '.join(cells)} |", flush=True)
    own, same, default = (f"{sum(found)} of {len(found)}" for found in held)
    print(f"| hold | | | {own} | {same} | | {default} |")


if __name__ == "__main__":
    main()
