"""Networks as functions of stacked parameter vectors, for a batch of models."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from itertools import accumulate

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.operators import nearest_pattern
from curvflow.tasks.numerics.derivatives.differentiation_modes import Derivatives
from curvflow.tasks.numerics.kronecker.uses import AnyUse

# Weight of the present batch in the running statistics of a batch norm.
MOMENTUM = 0.1


@dataclass
class ForwardPass:
    """Weights and mode of one forward pass: evaluation, training or path counting.

    A network is declared once; its layers read their mode here.

    Attributes:
        tensors: parameters and statistics by name, each (M, *shape).
        draw: from a shape to uniform numbers (M, *shape) in [0, 1), each model's from
            its own stream; None when not in training.
        power: p, where weights are |w|^p and inputs are ones, to count paths:
            activations are the identity, averages weigh by (1/m)^p, a maximum becomes
            a sum.
        uses: of parameters, appended by the layers; None where they are not recorded.
        holds_statistics: in training, nothing is derived by those of the batch.
        updated: statistics after this pass, written by layers in training.
        leaves: parameters of the one model there is, *shape each, which a module of
            the user's own is called with; then `tensors` lack them.
    """

    tensors: Mapping[str, Tensor]
    draw: Callable[[tuple[int, ...]], Tensor] | None = None
    power: float | None = None
    uses: list[AnyUse] | None = None
    holds_statistics: bool = False
    updated: dict[str, Tensor] = field(default_factory=dict)
    leaves: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def in_training(self) -> bool:
        """Training mode: dropout is on, and statistics are those of the batch."""
        return self.draw is not None

    @property
    def counts_paths(self) -> bool:
        """Path-counting mode: activations are the identity."""
        return self.power is not None


# From a forward pass and inputs (M or 1, N, ...) to outputs (M, N, C).
Forward = Callable[[ForwardPass, Tensor], Tensor]


@lru_cache(maxsize=256)
def _matching(names: tuple[str, ...], patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that some pattern fits, in order.

    Raises:
        InputError: a pattern fits no name.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InputError(
                f"layers: expected names of parameter tensors, got {pattern}. "
                f"{nearest_pattern(pattern, names)}"
            )
    return tuple(n for n in names if any(fnmatchcase(n, p) for p in patterns))


@dataclass(frozen=True)
class Layout:
    """Names and shapes of tensors, in the order of a flat vector."""

    names: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def sizes(self) -> list[int]:
        """Number of entries of each tensor."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def size(self) -> int:
        """Number of entries of all tensors."""
        return sum(self.sizes)

    @cached_property
    def _places(self) -> list[tuple[tuple[int, ...], tuple[int, ...], int]]:
        """Shape, strides and first entry of each tensor in a vector."""
        strides = [
            tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
            for shape in self.shapes
        ]
        firsts = accumulate(self.sizes, initial=0)
        return list(zip(self.shapes, strides, firsts, strict=False))

    def only(self, names: Collection[str]) -> Layout:
        """Return the layout of the tensors of these names."""
        pairs = zip(self.names, self.shapes, strict=True)
        chosen = [(name, shape) for name, shape in pairs if name in names]
        return Layout(tuple(n for n, _ in chosen), tuple(s for _, s in chosen))

    def matching(self, patterns: Sequence[str] | None) -> tuple[str, ...]:
        """Return the names that some pattern fits, in order; all without patterns.

        Raises:
            InputError: a pattern fits no name.
        """
        return (
            self.names if patterns is None else _matching(self.names, tuple(patterns))
        )

    def modules(self) -> dict[str, Tensor]:
        """Return the places of the parameters of each module by its name, in order."""
        places = torch.split(torch.arange(self.size), self.sizes)
        tensors: dict[str, list[Tensor]] = {}
        for name, at in zip(self.names, places, strict=True):
            tensors.setdefault(name.rpartition(".")[0] or name, []).append(at)
        return {name: torch.cat(several) for name, several in tensors.items()}

    def unflatten(self, weights_MD: Tensor) -> list[Tensor]:
        """Return stacked vectors (M, D) cut into stacked tensors (M, *shape)."""
        pieces = weights_MD.split_with_sizes(self.sizes, dim=1)
        return [
            piece.reshape(-1, *shape)
            for piece, shape in zip(pieces, self.shapes, strict=True)
        ]

    def views(self, weights_D: Tensor) -> list[Tensor]:
        """Return the tensors of one vector (D,), each by one view of it."""
        weights_D = weights_D.contiguous()
        start = weights_D.storage_offset()
        return [
            weights_D.as_strided(shape, strides, start + first)
            for shape, strides, first in self._places
        ]

    def named(self, weights_MD: Tensor) -> dict[str, Tensor]:
        """Return stacked vectors (M, D) as stacked tensors (M, *shape) by name."""
        if not self.names:
            return {}
        return dict(zip(self.names, self.unflatten(weights_MD), strict=True))

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return stacked tensors by name as stacked vectors (M, D)."""
        stacked = [tensors[name] for name in self.names]
        return torch.cat([t.reshape(len(t), -1) for t in stacked], dim=1)

    def norms(self, weights_MD: Tensor) -> Tensor:
        """Return the Frobenius norm of each of the L tensors, (M, L)."""
        pieces = torch.split(weights_MD, self.sizes, dim=1)
        return torch.stack([piece.norm(dim=1) for piece in pieces], dim=1)


@dataclass(frozen=True)
class Network:
    """A parametric function, without its parameters.

    Weights are stored as one vector (D + S,): the parameters, which are trained, and
    the statistics that the network keeps of its data, which are not.

    Attributes:
        layout: names and shapes of the D parameters.
        forward: the function.
        width: activations per sample, which sets the memory needed.
        draw_initial: the module's initial parameters (D,) from a stream; None for
            zeros.
        statistics: layout of the S statistics, such as a batch norm's running means.
        start: values of the statistics before training, by name or its last part.
        draw_statistics: the statistics (S,) before training from a stream, where some
            are drawn, such as the frozen parameters of a user's module.
        moves_statistics: training moves the statistics, by means over a batch; else
            they stay, as most buffers of a user's module do.
        shares: weight of a batch, in the first batch from zero, in each statistic that
            moves, by name: 0 of a count of batches, NaN if it is no running mean.
            None if all are running means of one weight, `MOMENTUM`.
        pass_bytes: bytes that activations of one model may take in one pass of
            products; None for the usual bound.
        aliases: further names of tensors that have several, with the first of each.
        constants: tensors that files of it hold beside, on which it depends.
        has_paths: outputs are sums over paths of products of weights, so that a path
            norm is defined.
        note: how it is computed, where that is slower than users may expect.
        vocabulary: number of tokens that inputs may name; None where they name none.
        takes_leaves: one model is computed from the leaves of a pass, if it has some.
        derivatives: `all`; `reverse`, of which the second are taken by reverse mode
            alone; or `first`, where there are no others.
        lacking: the layer for which it is so, such as `Act at '1'`.
        notes_all: of each tensor all uses are noted or none, and samples do not meet,
            as in layers of the package's own, which write to nothing that they are
            given, and all of whose derivatives torch has.
    """

    layout: Layout
    forward: Forward
    width: int
    draw_initial: Callable[[torch.Generator], Tensor] | None = None
    statistics: Layout = field(default_factory=Layout)
    start: Mapping[str, float | Tensor] = field(default_factory=dict)
    draw_statistics: Callable[[torch.Generator], Tensor] | None = None
    moves_statistics: bool = True
    shares: Mapping[str, float] | None = None
    pass_bytes: int | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    has_paths: bool = True
    note: str = ""
    vocabulary: int | None = None
    takes_leaves: bool = False
    derivatives: Derivatives = "all"
    lacking: str = ""
    notes_all: bool = False

    @property
    def num_parameters(self) -> int:
        """Number of parameters, D."""
        return self.layout.size

    def check_derivatives(self) -> None:
        """Refuse second derivatives that there are not.

        Raises:
            InputError: a layer lacks them.
        """
        if self.derivatives == "first":
            raise InputError(
                f"model: expected second derivatives, got {self.lacking} with first "
                "ones alone. Replace that layer, or take what needs gradients alone, "
                "such as the operator fisher_empirical or probe.gradient_variance."
            )

    def of_parameters(self, names: Collection[str]) -> Network:
        """Return the same function of some parameters; nothing is derived by the rest.

        Args:
            names: of the parameters; the others stand before the statistics.
        """
        free = self.layout.only(names)
        rest = self.layout.only(set(self.layout.names) - set(names))
        fixed = Layout(
            rest.names + self.statistics.names, rest.shapes + self.statistics.shapes
        )
        return replace(self, layout=free, statistics=fixed)

    def places(self, names: Collection[str]) -> Tensor:
        """Return where stored weights have those of `of_parameters`, (D + S,)."""
        layouts = self.layout, self.statistics
        is_named = [name in names for name in self.layout.names]
        is_free = [*is_named, *(False for _ in self.statistics.names)]
        sizes = [size for layout in layouts for size in layout.sizes]
        free_W = torch.tensor(is_free).repeat_interleave(torch.tensor(sizes))
        return torch.cat([free_W.nonzero(), (~free_W).nonzero()]).squeeze(1)

    def split(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return stored weights (..., D + S) as parameters and statistics."""
        if not self.statistics.names:
            return weights, weights[..., :0]
        parts = [self.layout.size, self.statistics.size]
        parameters, statistics = weights.split_with_sizes(parts, dim=-1)
        return parameters, statistics

    def first_statistics(self, generator: torch.Generator | None = None) -> Tensor:
        """Return the statistics before training, (S,), by a stream if one is given."""
        if generator is not None and self.draw_statistics is not None:
            return self.draw_statistics(generator)
        layout = self.statistics
        values = []
        for name, shape in zip(layout.names, layout.shapes, strict=True):
            part = name if name in self.start else name.rpartition(".")[2]
            value = torch.as_tensor(self.start[part], dtype=torch.float64)
            values.append(value.expand(shape).flatten())
        return torch.cat([torch.zeros(0, dtype=torch.float64), *values])

    def batch_shares(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weight of a batch in each statistic, and which move.

        Args:
            like: a tensor of the dtype and device of the weights.

        Returns:
            Numbers and flags, (S,) or () if all are equal.

        Raises:
            InputError: a statistic that moves is no running mean.
        """
        if self.shares is None:
            # Like a number of Python's, it takes the dtype and device of the other.
            return torch.tensor(MOMENTUM, dtype=torch.float64), torch.tensor(True)
        shares = self.shares
        if unknown := [name for name, share in shares.items() if math.isnan(share)]:
            raise InputError(
                "rule: expected buffers that are running means where weights are "
                f"averaged, got '{unknown[0]}', which changes otherwise. Take a rule "
                "that averages no weights."
            )
        entries = zip(self.statistics.names, self.statistics.sizes, strict=True)
        rows = [(n in shares, shares.get(n, 0.0), size) for n, size in entries]
        sizes = torch.tensor([size for *_, size in rows], dtype=torch.int64)
        share_S = torch.tensor([share for _, share, _ in rows], dtype=like.dtype)
        moves_S = torch.tensor([moves for moves, *_ in rows])
        return (
            share_S.repeat_interleave(sizes).to(like.device),
            moves_S.repeat_interleave(sizes).to(like.device),
        )

    def outputs(
        self,
        weights_MW: Tensor,
        inputs: Tensor,
        draw: Callable[[tuple[int, ...]], Tensor] | None = None,
    ) -> Tensor:
        """Return the outputs (M, N, C) of M trained networks.

        Args:
            weights_MW: parameters and statistics, (M, D + S).
            inputs: shape (M or 1, N, ...).
            draw: uniform numbers (M, *shape), for dropout; None for evaluation.

        Returns:
            Outputs in evaluation: dropout off, statistics as stored; or in training,
            with the statistics of these samples, and those stored left as they are.
        """
        parameters_MD, statistics_MS = self.split(weights_MW)
        # Else a derivative by all of them would be taken, and left.
        fixed_MS = statistics_MS.detach()
        return self.forward(self._passage(parameters_MD, fixed_MS, draw=draw), inputs)

    def outputs_and_uses(
        self, weights_MW: Tensor, inputs: Tensor
    ) -> tuple[Tensor, list[AnyUse]]:
        """Return the outputs, as `outputs` does, and the uses of parameters.

        Args:
            weights_MW: parameters and statistics, (M, D + S).
            inputs: shape (M or 1, N, ...).

        Returns:
            Outputs, and each use of a weight by a layer that records it, in the order
            of the pass.
        """
        forward_pass = self._passage(*self.split(weights_MW))
        forward_pass.uses = []
        return self.forward(forward_pass, inputs), forward_pass.uses

    def training_outputs(
        self,
        parameters_MD: Tensor,
        statistics_MS: Tensor,
        inputs: Tensor,
        draw: Callable[[tuple[int, ...]], Tensor],
        leaves: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs (M, N, C) in training, and the new statistics (M, S).

        Args:
            parameters_MD: parameters.
            statistics_MS: statistics so far.
            inputs: shape (M or 1, N, ...).
            draw: uniform numbers (M, *shape) from each model's stream, for dropout.
            leaves: the same parameters of one model by name, of a network that takes
                them: a graph of them needs no views of a vector.

        Returns:
            Outputs, which depend on the whole batch where there is a batch norm, and
            the statistics after it.
        """
        if leaves is None:
            forward_pass = self._passage(parameters_MD, statistics_MS, draw=draw)
        else:
            statistics = self.statistics.named(statistics_MS)
            forward_pass = ForwardPass(statistics, draw, leaves=leaves)
        outputs_MNC = self.forward(forward_pass, inputs)
        if not forward_pass.updated:
            return outputs_MNC, statistics_MS
        return outputs_MNC, self.statistics.flatten(forward_pass.updated).detach()

    def held_outputs(
        self,
        parameters_MD: Tensor,
        statistics_MS: Tensor,
        inputs: Tensor,
        draw: Callable[[tuple[int, ...]], Tensor],
        uses: list[AnyUse] | None = None,
    ) -> Tensor:
        """Return the outputs (M, N, C) in training, whose derivatives hold statistics.

        Those of the batch are taken as constants, so that samples do not meet.

        Args:
            parameters_MD: parameters.
            statistics_MS: statistics so far.
            inputs: shape (M or 1, N, ...).
            draw: uniform numbers (M, *shape) from each model's stream, for dropout.
            uses: to which uses of parameters are appended.
        """
        forward_pass = self._passage(parameters_MD, statistics_MS, draw=draw)
        forward_pass.uses, forward_pass.holds_statistics = uses, True
        return self.forward(forward_pass, inputs)

    def path_sums(
        self, powers_MD: Tensor, inputs_shape: tuple[int, ...], p: float
    ) -> Tensor:
        """Return the sum over all paths of the product of their weights' powers, (M,).

        Args:
            powers_MD: |w|^p for each parameter w.
            inputs_shape: shape of one sample.
            p: the power to which the fixed weights of averages are raised.

        Returns:
            ||pi||_p^p of each model, the path norm to the p-th power.

        Reference:
            Neyshabur, Salakhutdinov and Srebro (2015), arXiv:1506.02617, section 4:
            one forward pass of ones through the network without its activations.
        """
        statistics_MS = self.first_statistics().to(powers_MD).expand(len(powers_MD), -1)
        forward_pass = self._passage(powers_MD, statistics_MS, power=p)
        ones = powers_MD.new_ones(1, 1, *inputs_shape)
        return self.forward(forward_pass, ones).flatten(1).sum(1)

    def _passage(
        self,
        parameters_MD: Tensor,
        statistics_MS: Tensor,
        *,
        draw: Callable[[tuple[int, ...]], Tensor] | None = None,
        power: float | None = None,
    ) -> ForwardPass:
        tensors = self.layout.named(parameters_MD)
        if self.statistics.names:
            tensors |= self.statistics.named(statistics_MS)
        return ForwardPass(tensors, draw, power)
