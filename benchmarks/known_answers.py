"""Known coefficients beside the estimates of curvflow and of devinterp's defaults.

    curvflow run studies/llc-truth.yaml
    python -m benchmarks.known_answers [--store FOLDER]

Populations, true weights, temperatures, seeds and curvflow's estimates are those in the
study's store. devinterp 1.3.2, installed beforehand, is given the same networks in
single precision and the whole population as a batch, so that a loss is the exact K(w),
and nothing else but the temperature: once the study's, once its own default, B / ln B
for a batch of B. All other settings are its defaults: SGLD, lr 0.01, no localization,
10 chains of 100 draws, one step each, no burn-in. An estimate is the mean of chains
with its standard error; where one leaves the finite numbers it is shown as diverged.
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
HEADS = ("case", "λ, m", "nβ", "curvflow", "devinterp", "its nβ", "devinterp")


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


def of_peer(case: Case, seed: int, **temperature: float) -> Estimate:
    """Return what devinterp finds by its defaults."""
    data = TensorDataset(case.inputs, case.targets)
    loader: Any = DataLoader(data, batch_size=len(data))
    sampler = import_module("devinterp.slt.sampler")
    try:
        found = sampler.estimate_learning_coeff_with_summary(
            case.module,
            loader,
            evaluate=import_module("devinterp.utils").make_evaluate(mean_sse),
            optimizer_kwargs=temperature,
            seed=seed,
            verbose=False,
        )
    except RuntimeError as error:
        if "NaN detected" not in str(error):
            raise
        return Estimate(math.nan, math.nan)
    chains = sum(name.startswith("llc-chain/") for name in found)
    return Estimate(found["llc/mean"], found["llc/std"] / math.sqrt(chains))


class Row(NamedTuple):
    """A case, and what each system finds of it, seed by seed."""

    name: str
    known: float
    multiplicity: int
    nbeta: float
    systems: tuple[list[Estimate], ...]
    default_nbeta: float


def compared(results: curvflow.Results) -> Iterator[Row]:
    """Yield the cases of the study."""
    truth, llc = results["truth"], results["llc"].sel(sampler="calibrated")
    seeds = llc["seed"].values.tolist()
    for name in map(str, truth["case"].values):
        case, known = stored(results, name), truth.sel(case=name)
        nbeta, batch = llc["nbeta"].sel(case=name).values[0].item(), len(case.inputs)
        yield Row(
            name,
            known["llc_true"].item(),
            known["llc_multiplicity"].item(),
            nbeta,
            (
                of_study(results, name),
                [of_peer(case, seed, nbeta=nbeta) for seed in seeds],
                [of_peer(case, seed) for seed in seeds],
            ),
            batch / math.log(batch),
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="of the study; by default beside it")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"| {' | '.join(HEADS)} |")
    print("|---" * len(HEADS) + "|")
    held: list[list[bool]] = [[], [], []]
    for row in compared(curvflow.open(STUDY, store=asked.store)):
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
