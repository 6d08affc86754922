"""Kronecker factors of any torch module, without a study."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from curvflow.errors import InputError
from curvflow.schemas.keys import array_digest, sha256
from curvflow.schemas.kinds.probes.kronecker.factors import FactorsParams
from curvflow.schemas.kinds.shared.operators import OperatorName
from curvflow.schemas.nodes import Factors as FactorsNode
from curvflow.tasks.curvature.network_factors import (
    OutputLoss,
    choices_of,
    output_roots,
    output_slopes,
)
from curvflow.tasks.curvature.stored_factors import stored_blocks
from curvflow.tasks.library.operators import SymmetricOperator
from curvflow.tasks.networks.recorder import UseRecorder, stacked_uses
from curvflow.tasks.numerics.derivatives.modules import check_mean
from curvflow.tasks.numerics.derivatives.output_laws import LAWS, FisherForm, OutputLaw
from curvflow.tasks.numerics.derivatives.precision import differentiable
from curvflow.tasks.numerics.derivatives.subjects import (
    Loss,
    Subject,
    chosen_parameters,
    named_failures,
    subject,
)
from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.numerics.kronecker.factors import factors
from curvflow.tasks.numerics.kronecker.forms import Pi
from curvflow.tasks.numerics.kronecker.hessian_parts import HessianPart, PartName
from curvflow.tasks.numerics.kronecker.moments import Spread
from curvflow.tasks.numerics.kronecker.recorded import Recorded
from curvflow.tasks.numerics.kronecker.uses import AnyUse
from curvflow.tasks.numerics.operators.algebra import PrincipalBlock
from curvflow.tasks.numerics.operators.base import BatchedOperator, columns_of

# Numbers that may go back through a module at once.
MOST_NUMBERS = 1 << 24

# Samples whose outputs are compared with those by themselves.
MOST_COMPARED = 16


@dataclass(frozen=True, repr=False)
class KroneckerFactors:
    """Curvature of a module by blocks of layers.

    Attributes:
        operator: the same as an operator that can be measured, (D, D).
        blocks: eigenvectors and eigenvalues of each block.
        spreads: relative standard errors of the factors, by the names of blocks.
        params: which factors.
        chain: layers of which these are blocks of the Hessian; None for other factors.

    Examples:
        >>> import curvflow, torch
        >>> net = torch.nn.Linear(2, 1, bias=False).double()
        >>> x = torch.eye(2).double()
        >>> K = curvflow.kronecker(net, "sse", (x, x[:, :1]))
        >>> K
        KroneckerFactors(ggn, 2 by 2, 1 block, float64, cpu)
        >>> K.sizes
        {'weight': 2}
    """

    operator: SymmetricOperator
    blocks: BlockOperator
    spreads: Mapping[str, Spread]
    params: FactorsParams
    chain: Recorded | None = None

    def __repr__(self) -> str:
        """Return whose factors, their size and where they are."""
        of, count = self.operator, len(self.blocks.blocks)
        D, counted = of.shape[0], f"{count} block{'s' if count > 1 else ''}"
        name, dtype = of.name, str(of.dtype).removeprefix("torch.")
        return f"KroneckerFactors({name}, {D} by {D}, {counted}, {dtype}, {of.device})"

    @property
    def sizes(self) -> Mapping[str, int]:
        """Entries of each parameter by name, in their order."""
        return self.operator.sizes

    @cached_property
    def node(self) -> FactorsNode:
        """The factors as a stage would be given them, known by their content."""
        (arrays,) = stored_blocks(self.blocks)
        arrays["size"] = np.array(self.blocks.shape[1], dtype=np.int64)
        digest = sha256({name: array_digest(array) for name, array in arrays.items()})
        return FactorsNode("preconditioner", "probe.factors", {}, arrays, digest)

    @property
    def second_order(self) -> SymmetricOperator:
        """Part of the Hessian by the second derivatives of layers' outputs, (D, D).

        Its diagonal blocks are those of the Hessian. With `first_order` it adds up to
        the Hessian.

        Raises:
            InputError: these are no factors of the Hessian, or of one whose negative
                eigenvalues by the outputs `psd` has changed.

        Examples:
            >>> import curvflow, torch
            >>> net = torch.nn.Sequential(
            ...     torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False)
            ... ).double()
            >>> _ = [torch.nn.init.ones_(p) for p in net.parameters()]
            >>> x = torch.ones(1, 1).double()
            >>> B = curvflow.kronecker(  # (vw - 3)^2 at v = w = 1
            ...     net, "sse", (x, 3 * x), curvature="hessian", structure="block"
            ... )
            >>> (B.second_order @ torch.eye(2).double()).round(decimals=6)
            tensor([[2., 2.],
                    [2., 2.]], dtype=torch.float64)

        Reference:
            Botev (2020), lemma 3.15.
        """
        if self.params.psd != "refuse":
            raise InputError(
                f"psd: expected refuse for the Hessian itself, got {self.params.psd}, "
                "which may change it. Take curvflow.hessian minus first_order."
            )
        return self._part("second_order")

    @property
    def first_order(self) -> SymmetricOperator:
        """Part of the Hessian by first derivatives alone, (D, D).

        It has nothing in the blocks of layers: how inputs of a layer move with the
        parameters of those before it, times the gradient by its outputs.

        Raises:
            InputError: these are no factors of the Hessian.

        Examples:
            >>> (B.first_order @ torch.eye(2).double()).round(decimals=6)
            tensor([[ 0., -4.],
                    [-4.,  0.]], dtype=torch.float64)

        Reference:
            Botev (2020), lemma 3.15.
        """
        return self._part("first_order")

    @property
    def off_diagonal(self) -> SymmetricOperator:
        """The Hessian without these blocks, (D, D).

        Raises:
            InputError: these are no exact blocks of the Hessian, as of `second_order`.

        Examples:
            >>> (B.off_diagonal @ torch.eye(2).double()).round(decimals=6)
            tensor([[ 0., -2.],
                    [-2.,  0.]], dtype=torch.float64)
        """
        if self.params.structure != "block":
            raise InputError(
                "structure: expected block for off_diagonal, got "
                f"{self.params.structure}. Take curvflow.hessian minus operator for "
                "what products leave out."
            )
        return self.second_order + self.first_order - self.operator

    def _part(self, name: PartName) -> SymmetricOperator:
        if self.chain is None:
            raise InputError(
                f"curvature: expected hessian for {name}, got ggn. Pass "
                "curvature='hessian'."
            )
        part: BatchedOperator = HessianPart(self.chain, name)
        if len(self.sizes) < len(self.chain.names):
            starts = self.chain.starts()
            places = [starts[n] + torch.arange(size) for n, size in self.sizes.items()]
            part = PrincipalBlock(part, torch.cat(places))
        return SymmetricOperator(part, dict(self.sizes))

    def __matmul__(self, vectors: Tensor) -> Tensor:
        """Return the products with a vector (D,) or columns (D, S).

        Raises:
            InputError: the vectors are no tensor, complex, or of another length.
        """
        columns = columns_of(self.operator, vectors)
        return (self.blocks @ columns.unsqueeze(0)).squeeze(0)

    def solve(
        self, vectors: Tensor, damping: float = 0.0, *, pi: Pi | float | None = None
    ) -> Tensor:
        """Return (K + damping)^-1 v of a vector (D,) or columns (D, S).

        Args:
            vectors: v.
            damping: added to every eigenvalue.
            pi: splits the root of the damping between both factors, `trace`,
                `frobenius`, `spectral` or a number; None inverts K + damping itself.

        Returns:
            The solutions; not finite where K is singular and nothing is added.

        Raises:
            InputError: the damping is negative, or the vectors are no tensor, complex,
                or of another length.

        Examples:
            >>> K.solve(torch.ones(2).double(), damping=1.0).round(decimals=6)
            tensor([0.5000, 0.5000], dtype=torch.float64)
        """
        columns = columns_of(self.operator, vectors).unsqueeze(0)
        return self.blocks.solve(columns, damping, pi=pi).squeeze(0)

    def logdet(self, damping: float = 0.0) -> float:
        """Return log det(K + damping) on the parameters in blocks; NaN if indefinite.

        Args:
            damping: added to every eigenvalue, at least 0.

        Examples:
            >>> round(K.logdet(damping=1.0), 6)  # 2 ln 2
            1.386294
        """
        return float(self.blocks.logdet(damping))


def kronecker_factors(
    module: nn.Module, loss: Loss | str, data: Any, params: FactorsParams
) -> KroneckerFactors:
    """Find the factors of a module.

    Args:
        module: as it is to be called.
        loss: of outputs (N, C) or (N,), or values of any shape, and targets.
        data: a batch (inputs, targets) of tensors, a list of such, or a loader.
        params: which factors.

    Returns:
        The factors.

    Raises:
        InputError: module, loss or data cannot be taken, a parameter has no entries,
            samples meet, the loss is no mean over samples, or has no likelihood to draw
            from.
    """
    layers = params.layers and list(params.layers)
    recurs = params.curvature == "hessian" or params.fisher_type == "recursive"
    # What a recursion goes through is all of a module.
    of = subject(module, loss, data, {"params": None if recurs else layers})
    names = tuple(chosen_parameters(module, layers)) if recurs else of.names
    _check_entries(of, names)
    inputs, targets = _joined(of)
    _check_apart(of, inputs, targets)
    output = _output_loss(of, loss, inputs, targets)
    check_mean(of)
    unselected = _unselected(of)
    recorded = Recorded(
        _call(of, unselected),
        of.names,
        of.shapes,
        of.weights.unsqueeze(0),
        of.weights.new_zeros(1, 0),
        inputs.unsqueeze(0),
        targets.unsqueeze(0),
        output_roots(output, [params], len(inputs)),
        max(1, MOST_NUMBERS // max(1, output.outputs * inputs[0].numel())),
        1,
        output_slopes(output),
        variances=output.variances,
        unselected={name: tuple(tensor.shape) for name, tensor in unselected.items()},
    )
    with named_failures(of):
        computed = factors(recorded, choices_of(params, names))
    sizes = {n: s for n, s in zip(of.names, of.sizes, strict=True) if n in names}
    name: OperatorName = "hessian" if params.curvature == "hessian" else "ggn"
    operator = SymmetricOperator(computed.operator, sizes, name=name)
    chain = recorded if params.curvature == "hessian" else None
    return KroneckerFactors(
        operator, computed.operator, computed.spreads, params, chain
    )


def _check_entries(of: Subject, names: Collection[str]) -> None:
    """Refuse parameters without entries, which have no factors.

    Args:
        of: the module.
        names: of the parameters looked at.

    Raises:
        InputError: there is one; it is named.
    """
    for name, shape, size in zip(of.names, of.shapes, of.sizes, strict=True):
        if name in names and not size:
            raise InputError(
                f"module: expected parameters with entries, got '{name}' of shape "
                f"{shape}. Remove it, or take the others by layers."
            )


def _joined(of: Subject) -> tuple[Tensor, Tensor]:
    """Return all samples as one batch.

    Raises:
        InputError: a batch is no pair of tensors, samples differ in their shape, or
            there are none.
    """
    batches = list(of.batches())
    for batch in batches:
        is_pair = isinstance(batch, tuple | list) and len(batch) == 2
        if not (is_pair and all(isinstance(part, Tensor) for part in batch)):
            raise InputError(
                "data: expected batches (inputs, targets) of tensors, got "
                f"{type(batch).__name__}. Take a module of one input, or ggn."
            )
    for parts in zip(*batches, strict=True):
        if len(shapes := {tuple(part.shape[1:]) for part in parts}) > 1:
            raise InputError(
                "data: expected samples of one shape in all batches, got "
                f"{', '.join(map(str, sorted(shapes)))}. Fill them up, or take ggn."
            )
    inputs, targets = (torch.cat(list(parts)) for parts in zip(*batches, strict=True))
    if not len(inputs):
        raise InputError("data: expected samples, got none. Pass some.")
    return inputs, targets


def _check_apart(of: Subject, inputs: Tensor, targets: Tensor) -> None:
    """Refuse a module whose outputs of a sample depend on others.

    In half precision its rounding would hide much: there a copy in single is compared.

    Raises:
        InputError: those of some samples are others by themselves.
    """
    is_apart = None
    if of.weights.dtype.itemsize < torch.float32.itemsize:
        # Copies of modules may fail in any way, as those that cast by themselves.
        with suppress(Exception):
            called = copy.deepcopy(of.called).float()
            single = replace(of, called=called, weights=of.weights.float())
            given = inputs.float() if inputs.is_floating_point() else inputs
            is_apart = _is_apart(single, given, targets)
    if is_apart is None:
        is_apart = _is_apart(of, inputs, targets)
    if not is_apart:
        raise InputError(
            "module: expected samples that do not meet, got outputs of some that "
            "depend on others of the batch. Take ggn."
        )


def _is_apart(of: Subject, inputs: Tensor, targets: Tensor) -> bool:
    """Return whether each sample has the outputs that it has by itself."""

    def outputs(*bounds: int) -> Tensor:
        rows = [slice(*pair) for pair in pairwise(bounds)]
        return torch.cat(
            [of.outputs(of.weights, (inputs[few], targets[few])) for few in rows]
        ).reshape(count, -1)

    count = min(len(inputs), MOST_COMPARED)
    with torch.no_grad(), differentiable():
        together = outputs(0, count)
        apart = outputs(*sorted({0, 1, count // 2, count}))
    # Of each by itself, for one that meets few others would be lost among all.
    room = torch.finfo(together.dtype).eps ** 0.5 * together.norm() / math.sqrt(count)
    return bool(((together - apart).norm(dim=1) <= room).all())


def _unselected(of: Subject) -> dict[str, Tensor]:
    """Return the parameters that are left out, by which biases know their layers."""
    every = of.called.module.named_parameters()
    return {n: p for n, p in every if p.requires_grad and n not in of.names}


def _call(of: Subject, unselected: Mapping[str, Tensor]) -> Any:
    """Return the module as a function of stacked weights that records its uses."""

    def call(weights: Tensor, inputs: Tensor) -> tuple[Tensor, list[AnyUse]]:
        outputs, records = [], []
        for number, row in enumerate(weights):
            parts = [
                part.reshape(shape)
                for part, shape in zip(
                    torch.split(row, of.sizes), of.shapes, strict=True
                )
            ]
            recorder = UseRecorder(dict(zip(of.names, parts, strict=True)), unselected)
            rows = inputs[number if len(inputs) > 1 else 0]
            computed = recorder.recorded(partial(of.outputs, parts, (rows, rows)))
            outputs.append(computed.reshape(len(computed), -1))
            records.append(recorder.uses)
        together = outputs[0][None] if len(outputs) == 1 else torch.stack(outputs)
        return together, stacked_uses(records)

    return call


def _output_loss(
    of: Subject, loss: Loss | str, inputs: Tensor, targets: Tensor
) -> OutputLoss:
    """Return the loss as a function of outputs (1, N, C), all values of a sample.

    Raises:
        InputError: outputs have another shape, or labels that do not count.
    """
    with torch.no_grad():
        shape = of.outputs(of.weights, (inputs[:2], targets[:2])).shape
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", "")
    is_labels = of.likelihood is not None and of.likelihood.name == "cross_entropy"
    if is_labels and len(shape) != 2:
        raise InputError(
            f"module: expected outputs of shape (N, C), got {tuple(shape)}. Take a "
            "study, whose models have labels of tokens."
        )
    if of.likelihood is None and len(shape) > 2:
        raise InputError(
            f"module: expected outputs of shape (N, C) for this loss, got "
            f"{tuple(shape)}. Put torch.nn.Flatten() behind the module, and give them "
            "their shape again in the loss."
        )
    ignored = of.likelihood and of.likelihood.ignore_index
    has_labels = ignored is not None and not targets.is_floating_point()
    if has_labels and ignored in targets:
        raise InputError(
            f"data: expected labels that all count, got {ignored}. Leave such samples "
            "out."
        )

    law = LAWS.get(of.likelihood.name) if of.likelihood else None
    if law is not None and is_labels and targets.is_floating_point():
        law = _of_probabilities(law, targets)

    def of_samples(outputs: Tensor, given: Tensor) -> Tensor:
        each = [
            of.losses(
                output.reshape(len(output), *shape[1:]),
                (output, given[number if len(given) > 1 else 0]),
            )
            for number, output in enumerate(outputs)
        ]
        return torch.stack(each)

    return OutputLoss(
        name or type(loss).__name__, of_samples, law, math.prod(shape[1:]), None
    )


def _of_probabilities(law: OutputLaw, targets_NC: Tensor) -> OutputLaw:
    """Return the law of labels whose probabilities are targets.

    Of a sum over classes k of q_k times -log p_k the Hessian is that of one label times
    the sum of q_k.

    Raises:
        InputError: a sample's sum is negative, or NaN.
    """
    least = float(targets_NC.sum(1).min())
    if not least >= 0:
        raise InputError(
            "data: expected sums of a sample's probabilities of at least 0, got "
            f"{least:.4g}. Pass labels, or probabilities."
        )

    def roots(
        form: FisherForm, outputs: Tensor, targets: Tensor, uniform: Tensor | None
    ) -> Tensor:
        rows = law.roots(form, outputs, targets, uniform)
        return targets.sum(-1).sqrt()[..., None, None] * rows

    return replace(law, roots=roots)
