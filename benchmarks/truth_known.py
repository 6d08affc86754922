"""What is known of the operators of a case, formed as `Kind.truth_of` asks for it.

Matrices are written out by products with the identity, that of each sample from data of
this sample alone; gradients are those of `torch.func`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch

import curvflow
from benchmarks.truth_cases import EXACT, PLANTED
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Array, Data, Factors, Member, NodeData, Weights
from curvflow.tasks.curvature.network_operators import problem_of
from curvflow.tasks.curvature.operators import dense_matrices, tile_operator
from curvflow.tasks.curvature.stored_factors import block_operator
from curvflow.tasks.networks.problems import load_samples
from curvflow.tasks.registry import Machine

# Columns multiplied at once.
COLUMNS = 64
PROBE = "probe.trace"


class Known:
    """Matrices, gradients and eigenvalues of the stages of a case."""

    def __init__(
        self,
        stages: Mapping[str, Mapping[str, Any]],
        results: curvflow.Results,
        eigenvalues: Array,
    ) -> None:
        """Take stages as written, their results, and the operator's eigenvalues."""
        self._stages, self._results = stages, results
        self.eigenvalues = np.sort(eigenvalues)
        self._matrix = cache(self._formed)

    def of(self, truth_of: str, stage: str) -> Array:
        """Return what a kind's truth is computed from, of one stage."""
        if truth_of == "eigenvalues" and stage.startswith(PLANTED):
            return np.sort(self._arrays(f"{PLANTED}{EXACT}")["eigenvalues"])
        if truth_of == "eigenvalues":
            return self.eigenvalues
        written = self._stages[stage]
        params = find_kind(written["use"]).params.model_fields
        default = params["operator"].default if "operator" in params else ""
        operator = str(written.get("operator", default))
        formed: dict[str, Callable[[], Array]] = {
            "matrix": lambda: self._matrix(operator),
            "samples": lambda: self._of_samples(operator),
            "gradients": self._gradients,
            "checkpoints": lambda: self._of_checkpoints(operator),
            "factors": lambda: self._of_factors(operator, written["factors"]),
        }
        return formed[truth_of]()

    def _arrays(self, stage: str) -> dict[str, Array]:
        variables = self._results[stage].variables
        return {str(name): array.values for name, array in variables.items()}

    def _weights(self, checkpoint: int = -1) -> Weights:
        arrays = self._arrays("fit")
        taken = {
            "weights": arrays["weights"][checkpoint],
            "network": arrays["network"],
        }
        return Weights("fit", "train", {}, taken, f"fit{checkpoint}")

    def _data(self) -> Data:
        return Data("data", "data", {}, self._arrays("data"), "data")

    def _probe(self, operator: str, checkpoint: int = -1) -> Member:
        """Return a probe of what all probes of the case are of."""
        params = find_kind(PROBE).params.model_validate({"operator": operator})
        if "fit" in self._stages:
            inputs: dict[str, NodeData] = {
                "weights": self._weights(checkpoint),
                "data": self._data(),
            }
        else:
            name = next(name for name in ("matrix", "graph") if name in self._stages)
            kind = find_kind(self._stages[name]["use"])
            given = kind.returns(name, kind.name, {}, self._arrays(name), name)
            inputs = {name: given}
        return Member(params, {name: [node] for name, node in inputs.items()})

    def _formed(self, operator: str) -> Array:
        return matrices([self._probe(operator)])[0]

    def _of_samples(self, operator: str) -> Array:
        probe, data = self._probe(operator), self._data()
        members = []
        for row in range(len(data["inputs"])):
            few = {name: data[name][row : row + 1] for name in ("inputs", "targets")}
            alone = replace(data, arrays={**data.arrays, **few}, digest=f"data{row}")
            members.append(Member(probe.params, {**probe.inputs, "data": [alone]}))
        return np.concatenate([matrices([member]) for member in members])

    def _gradients(self) -> Array:
        probe = self._probe("hessian")
        problem = problem_of(probe)
        weights = torch.as_tensor(probe.one("weights")["weights"])
        samples = load_samples(problem, [probe.one("data")], "", "cpu", weights.dtype)

        def losses(weights_W: torch.Tensor) -> torch.Tensor:
            return problem.losses(weights_W[None], samples.inputs, samples.targets)[0]

        jacobian: torch.Tensor = torch.func.jacrev(losses)(weights)
        return jacobian.numpy()

    def _of_checkpoints(self, operator: str) -> Array:
        count = len(self._arrays("fit")["weights"])
        each = [matrices([self._probe(operator, number)])[0] for number in range(count)]
        return np.stack([np.linalg.eigvalsh(matrix) for matrix in each])

    def _of_factors(self, operator: str, stage: str) -> Array:
        G = self._matrix(operator)
        node = Factors(stage, "probe.factors", {}, self._arrays(stage), stage)
        blocks, eye = block_operator([node]), torch.eye(len(G), dtype=torch.float64)
        numbers = np.full_like(G, -1)
        for number, block in enumerate(blocks.blocks):
            columns = block.columns.numpy()
            numbers[columns[:, None], columns] = number
        return np.stack([G, numbers, (blocks @ eye[None])[0].numpy()])


def matrices(members: Sequence[Member]) -> Array:
    """Return the matrices of probes of like operators, (M, D, D)."""
    operator = tile_operator(members, Machine(), columns=COLUMNS).operator
    formed: Array = dense_matrices(operator).numpy()
    return formed
