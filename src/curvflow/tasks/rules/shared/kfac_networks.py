"""Networks and loss of a step's batch, as its gradient was derived of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.rules.kfac._quadratic import QuadraticRule
from curvflow.tasks.networks.problems import PASS_COPIES, Problem
from curvflow.tasks.numerics.derivatives.fishers import (
    Psd,
    fisher_draws,
    fisher_roots,
    ggn_roots,
)
from curvflow.tasks.numerics.derivatives.gauss_newton import (
    outer_products,
    output_hessian,
    sandwich,
)
from curvflow.tasks.numerics.derivatives.output_laws import FisherForm, OutputLaw
from curvflow.tasks.numerics.derivatives.passes import Part, Product, spans
from curvflow.tasks.numerics.derivatives.precision import (
    derivative_along,
    differentiable,
)
from curvflow.tasks.numerics.kronecker.layers import Pass
from curvflow.tasks.numerics.kronecker.recorded import (
    Recorded,
    UnlikeUsesError,
    backward,
    check_confirmed,
)
from curvflow.tasks.numerics.kronecker.uses import AnyUse
from curvflow.tasks.rules.shared.kfac_parts import Parts
from curvflow.tasks.training.cache_blocks import GPU_PASS_BYTES
from curvflow.tasks.training.step_context import Step

# Bytes that the graph of one pass may hold on a CPU.
CPU_GRAPH_BYTES = 1 << 26

FORMS: Mapping[str, FisherForm] = {
    "mc": "sampled",
    "type-2": "exact",
    "recursive": "exact",
    "empirical": "empirical",
}


@dataclass(frozen=True)
class Labels:
    """Whose labels factors are of.

    Attributes:
        fisher_type: `mc`, `type-2`, `recursive` or `empirical`.
        count: labels drawn for each sample of `mc`.
        exact: roots of a sample of `type-2`; None for one of each output.
    """

    fisher_type: str
    count: int
    exact: int | None = None

    def num_roots(self, outputs: int) -> int:
        """Return how many roots a sample has, of C outputs."""
        exact = self.exact or outputs
        return {"mc": self.count, "type-2": exact}.get(self.fisher_type, 1)


def labels_of(rule: QuadraticRule, problem: Problem) -> Labels:
    """Return whose labels a rule has its factors of.

    Args:
        rule: its specification.
        problem: network and loss.

    Raises:
        InputError: by the Fisher matrix of a mixture of too many values.
    """
    law, exact = problem.criterion.law, None
    if law is not None and law.depends_on_targets and rule.psd == "fisher":
        outputs = torch.zeros(1, 1, problem.num_outputs)
        exact = law.roots("exact", outputs, outputs, None).shape[2]
    return Labels(rule.fisher_type, rule.mc_samples, exact)


@dataclass(frozen=True)
class Swept:
    """A pass with the record of uses, and the derivatives taken in it.

    Attributes:
        pass_: the pass, with what comes back through each use.
        signed: derivatives by the weights of the sum over samples and roots, each with
            a random sign, (M, D); None where they are not wanted.
    """

    pass_: Pass
    signed: Tensor | None


@contextmanager
def _named_uses() -> Iterator[None]:
    """Refuse within the block a batch that does not use tensors as others do.

    Raises:
        InputError: it does not.
    """
    try:
        yield
    except UnlikeUsesError as error:
        raise InputError(
            "model: expected tensors that all batches use alike, got numbers that "
            f"decide on the uses of {error}. Take another rule."
        ) from error


class Networks:
    """The models of a step with their batch, dropout and all.

    A batch norm's statistics are those of the batch, and constant in derivatives.
    """

    def __init__(self, context: Step, like: Tensor, psd: Psd = "refuse") -> None:
        """Take the step, and a tensor of the dtype and device of the weights.

        Args:
            context: of the step.
            like: the tensor.
            psd: treatment where the Hessian of the loss by the outputs is
                indefinite; `refuse` takes it as it is, for rules without factors.
        """
        self._context, self._like, self._psd = context, like, psd
        self._uniform: Tensor | None = None
        self.problem, self.count = context.problem, context.batch.count

    @property
    def scale(self) -> int:
        """Multiple of the mean over samples that is minimised: N for a sum, else 1."""
        return self.count if self.problem.criterion.is_sum else 1

    def spans(self, models: int, copies: int) -> list[slice]:
        """Cut models into spans whose graphs fit into memory.

        Args:
            models: how many.
            copies: of activations that a graph holds.

        Returns:
            The spans, in order.
        """
        each = self._like.element_size() * copies * self.count
        each *= self.problem.network.width
        on_cpu = self._like.device.type == "cpu"
        return spans(models, (CPU_GRAPH_BYTES if on_cpu else GPU_PASS_BYTES) // each)

    def recorded(self, weights_MD: Tensor) -> Recorded:
        """Return the models with their batch as one pass, with all roots of the loss.

        Args:
            weights_MD: of all models.
        """
        layout, span = self.problem.network.layout, slice(0, len(weights_MD))
        labels, variances = Labels("recursive", 1), self._law.variances

        def call(full: Tensor, _: Tensor) -> tuple[Tensor, list[AnyUse]]:
            record: list[AnyUse] = []
            parameters, _ = self.problem.network.split(full)
            return self._outputs(span, parameters, record), record

        return Recorded(
            call,
            layout.names,
            layout.shapes,
            weights_MD,
            self._context.statistics.to(weights_MD),
            self._context.batch.inputs,
            self._context.batch.targets,
            lambda part, outputs: self._roots(labels, outputs, part.targets, None),
            self.count,
            len(weights_MD),
            variances=None
            if variances is None or self.problem.tokens
            else lambda outputs: self.scale * variances(outputs),
        )

    def swept(
        self, weights_MD: Tensor, labels: Labels, parts: Parts, *, is_signed: bool
    ) -> Iterator[Swept]:
        """Yield passes over spans of models with roots of the loss sent back.

        Args:
            weights_MD: of all models.
            labels: whose roots are taken.
            parts: of the networks, by whose uses they are numbered.
            is_signed: derivatives of a sum with random signs are wanted.

        Raises:
            InputError: numbers decide how samples use a tensor.
        """
        outputs = self.problem.num_outputs
        uniform = self._drawn(labels, outputs)
        signs = None
        if is_signed:
            shape = (self.count, labels.num_roots(outputs))
            numbers = self._context.draw(shape)
            signs = torch.where(numbers < 0.5, -1.0, 1.0).to(numbers)
        copies = PASS_COPIES + labels.num_roots(outputs)
        for span in self.spans(len(weights_MD), copies):
            batch = self._context.batch.models(span)
            weights = weights_MD[span].detach().requires_grad_()
            record: list[AnyUse] = []
            with torch.enable_grad(), differentiable():
                outputs_MNC = self._outputs(span, weights, record)
            with _named_uses():
                record = self._kept(record, parts, outputs_MNC, weights)
            drawn = None if uniform is None else uniform[span]
            roots = self._roots(labels, outputs_MNC.detach(), batch.targets, drawn)
            part = Part(
                span,
                slice(0, self.count),
                weights.detach(),
                self._context.statistics[span],
                batch.inputs,
                batch.targets,
            )
            signed = None
            if signs is not None:
                together = torch.einsum("mnr,mnr...->mn...", signs[span], roots)
                (signed,) = torch.autograd.grad(
                    outputs_MNC, weights, together, retain_graph=True
                )
            yield Swept(
                Pass(part, record, backward(outputs_MNC, record, roots)), signed
            )

    def _kept(
        self, record: list[AnyUse], parts: Parts, outputs: Tensor, weights: Tensor
    ) -> list[AnyUse]:
        """Return the uses that parts are numbered by.

        Where something else may be computed of their tensors, or rows are picked, what
        comes of it in the drawn inputs says nothing of a batch.

        Raises:
            UnlikeUsesError: they are not those of other batches.
        """
        kept = parts.manner.kept(record, self.count)
        if parts.manner.is_certain(kept):
            return kept
        layout = self.problem.network.layout
        ends = accumulate(map(math.prod, layout.shapes), initial=0)
        starts = dict(zip(layout.names, ends, strict=False))
        with differentiable():
            check_confirmed(parts.reading, kept, outputs, weights, starts)
        return kept

    def _drawn(self, labels: Labels, outputs: int) -> Tensor | None:
        """Return the numbers that labels are drawn by, the same in all sweeps."""
        if labels.fisher_type == "mc" and self._uniform is None:
            draws = fisher_draws(self._law, outputs, labels.count)
            terms = () if self.problem.tokens is None else (self.problem.tokens,)
            self._uniform = self._context.draw((self.count, *terms, *draws))
        return self._uniform

    @property
    def _law(self) -> OutputLaw:
        law = self.problem.criterion.law
        assert law is not None  # others are refused before the first step
        return law

    def _outputs(
        self, span: slice, weights_MD: Tensor, uses: list[AnyUse] | None = None
    ) -> Tensor:
        context = self._context
        return self.problem.network.held_outputs(
            weights_MD,
            context.statistics[span].to(weights_MD),
            context.batch.models(span).inputs,
            context.dropout(span),
            uses,
        )

    def _roots(
        self, labels: Labels, outputs: Tensor, targets: Tensor, uniform: Tensor | None
    ) -> Tensor:
        """Return roots of the Fisher matrix of the loss that is minimised."""
        form, law = FORMS[labels.fisher_type], self._law
        terms = self.problem.tokens
        if form == "exact" and self._is_mended:
            return self._definite(outputs, targets)
        if terms is None:
            roots = fisher_roots(form, law, outputs, targets, uniform)
            return math.sqrt(self.scale) * roots
        # Labels of tokens are independent, so that one root holds a draw of each.
        flat = outputs.flatten(1, 2), targets.flatten(1, 2)
        drawn = None if uniform is None else uniform.flatten(1, 2)
        roots = fisher_roots(form, law, *flat, drawn)
        roots = torch.unflatten(roots, 1, (-1, terms)).transpose(2, 3)
        if law.weighs_terms:
            return roots
        # The score of a token is over T in that of its sample; in the matrix of the
        # mean over tokens each token's own is over T, and its root over T^1/2.
        return roots / (math.sqrt(terms) if labels.fisher_type == "mc" else terms)

    def along(
        self, weights_MD: Tensor, directions: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the loss, and the Gauss-Newton matrix along some directions.

        Args:
            weights_MD: where to take both.
            directions: K vectors, (M, D) each.

        Returns:
            Losses (M,), and d_i' G d_j of the loss that is minimised, (M, K, K), both
            in double precision.
        """
        parts = [
            self._along(
                span, weights_MD[span], [direction[span] for direction in directions]
            )
            for span in self.spans(len(weights_MD), 2 * PASS_COPIES)
        ]
        losses, products = zip(*parts, strict=True)
        return torch.cat(losses), torch.cat(products)

    def multiply(self, weights_MD: Tensor, columns: int) -> Product:
        """Return the product with the Gauss-Newton matrix of the loss minimised.

        Args:
            weights_MD: where to take it.
            columns: how many are multiplied at once, S.

        Returns:
            A function from columns (M, D, S) to their products.
        """
        several = self.spans(len(weights_MD), 2 * PASS_COPIES * columns)
        # What the derivatives back need is kept, if all models fit into a pass.
        kept = self._sandwich(several[0], weights_MD) if len(several) == 1 else None

        def multiplied(columns_MDS: Tensor) -> Tensor:
            with differentiable():
                parts = [
                    (kept or self._sandwich(span, weights_MD[span]))(columns_MDS[span])
                    for span in several
                ]
            return torch.cat(parts)

        return multiplied

    def _sandwich(self, span: slice, weights_MD: Tensor) -> Product:
        """Return the product with the Gauss-Newton matrix of the models of a span."""
        network = self.problem.network
        network.check_derivatives()
        with differentiable():
            return sandwich(
                partial(self._outputs, span),
                weights_MD.detach(),
                self._curved(span),
                derivatives=network.derivatives,
                sizes=network.layout.sizes,
            )

    def _curved(self, span: slice) -> Callable[[Tensor], Product]:
        """Return the product with the curvature of the models' losses, at outputs."""
        if not self._is_mended:
            return output_hessian(self._total(span))
        targets = self._context.batch.models(span).targets

        def at(outputs: Tensor) -> Product:
            return outer_products(
                self._definite(outputs, targets) / math.sqrt(self.count)
            )

        return at

    @property
    def _is_mended(self) -> bool:
        law = self.problem.criterion.law
        return self._psd != "refuse" and law is not None and law.depends_on_targets

    def _definite(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return roots of each sample's Hessian by the outputs, after `psd`."""
        return ggn_roots(
            self.problem.criterion.of_samples,
            outputs,
            targets,
            psd=self._psd,
            loss=self._law,
        )

    def _total(self, span: slice) -> Callable[[Tensor], Tensor]:
        """Return the sum of the models' losses, of their outputs."""
        targets = self._context.batch.models(span).targets

        def total(outputs: Tensor) -> Tensor:
            losses = self.problem.criterion.of_samples(outputs, targets)
            return self.problem.reduced(losses).sum()

        return total

    def _along(
        self, span: slice, weights_MD: Tensor, directions: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        outputs_of = partial(self._outputs, span)
        if self.problem.network.derivatives != "all":
            columns_MDK = torch.stack(list(directions), dim=-1)
            product = self._sandwich(span, weights_MD)
            with differentiable():
                curved_MDK = product(columns_MDK)
            with torch.no_grad():
                outputs = outputs_of(weights_MD)
            along = columns_MDK.mT.double() @ curved_MDK.double()
            return self._reduced(span, outputs), along
        with differentiable():
            pairs = [
                derivative_along(outputs_of, weights_MD, d_MD) for d_MD in directions
            ]
        outputs = pairs[0][0]
        curved = self._curved(span)(outputs)
        tangents = torch.stack([tangent for _, tangent in pairs], dim=1).flatten(2)
        images = [curved(tangent) for _, tangent in pairs]
        products = tangents.double() @ torch.stack(images, 1).flatten(2).double().mT
        return self._reduced(span, outputs), products

    def losses(self, weights_MD: Tensor) -> Tensor:
        """Return the loss in training, (M,), in double precision.

        A batch norm's statistics are those of the batch at these weights.
        """
        with torch.no_grad():
            parts = [
                self._reduced(span, self._outputs(span, weights_MD[span]))
                for span in self.spans(len(weights_MD), 2)
            ]
        return torch.cat(parts)

    def _reduced(self, span: slice, outputs: Tensor) -> Tensor:
        targets = self._context.batch.models(span).targets
        losses = self.problem.criterion.of_samples(outputs, targets)
        return self.problem.reduced(losses.double())
