"""Any torch module with any loss and data, as functions of one vector of weights."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, TypedDict, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import UninitializedParameter
from torch.utils._pytree import tree_map
from torch.utils.data import Dataset, IterableDataset

from curvflow.errors import InputError, summary
from curvflow.tasks.numerics.derivatives.batches import (
    Batch,
    few_of,
    num_samples,
    plain,
    targets_of,
)
from curvflow.tasks.numerics.derivatives.calls import arguments, tensor_of
from curvflow.tasks.numerics.derivatives.differentiation_modes import parted
from curvflow.tasks.numerics.derivatives.guards import (
    Cause,
    check,
    check_buffers,
    check_unchanged,
    check_unscaled,
    is_of_derivatives,
    rows_kept,
    without_derivatives,
)
from curvflow.tasks.numerics.derivatives.likelihoods import (
    NAMES,
    TORCH_IGNORES,
    Likelihood,
    likelihood_of,
)
from curvflow.tasks.numerics.derivatives.output_laws import sample_losses
from curvflow.tasks.numerics.derivatives.precision import (
    StepByStep,
    differentiable,
    fuses_steps,
    reroute,
    stops_respected,
)
from curvflow.tasks.numerics.later_calls import LaterCalls, later_calls
from curvflow.tasks.numerics.watched_calls import (
    Call,
    are_pairs,
    check_call,
    check_loss,
    check_memory,
    check_places,
    instance_of,
    needs_of,
)


@contextmanager
def _without_mkldnn() -> Iterator[None]:
    # torch's own flags() warns where there is no Intel GPU (2.13).
    mkldnn: Any = torch.backends.mkldnn
    (before, *_) = mkldnn.set_flags(_enabled=False, _fp32_precision=None)
    try:
        yield
    finally:
        mkldnn.set_flags(_enabled=before, _fp32_precision=None)


@contextmanager
def calm(module: nn.Module, seed: int | None) -> Iterator[None]:
    """Keep a module from changing its statistics, and its draws from changing.

    Args:
        module: called within the block.
        seed: of draws within the block; None if there are none.

    Yields:
        Nothing.
    """
    layers = list(module.modules())
    tracking = [
        layer
        for layer in layers
        if isinstance(layer, _NormBase) and layer.training and layer.track_running_stats
    ]
    with ExitStack() as stack:
        for hook in reroute(module):
            stack.callback(hook.remove)
        if any(isinstance(layer, nn.RNNBase) for layer in layers):
            # Fused kernels have no second or no forward derivatives.
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            stack.enter_context(_without_mkldnn())
        weights = next(module.parameters(), None)
        if weights is not None and fuses_steps(module, weights.device):
            stack.enter_context(StepByStep())
        if seed is not None:
            stack.enter_context(torch.random.fork_rng())
            torch.manual_seed(seed)
        for layer in tracking:
            layer.track_running_stats = False
            stack.callback(setattr, layer, "track_running_stats", True)
        yield


Loss = Callable[[Tensor, Any], Tensor]


class Settings(TypedDict, total=False):
    """Settings of a module, its loss and its data; see docs/operators.md.

    Attributes:
        params: patterns of the names of parameters to derive by; None takes all that
            require a gradient.
        forward: from the module and a batch to outputs.
        size_of: the weight of a batch; by default its number of samples.
        allow: causes of refusal to let through.
        seed: of masks of dropout, where it is allowed, and of drawn labels.
    """

    params: Sequence[str] | None
    forward: Callable[[nn.Module, Batch], Tensor] | None
    size_of: Callable[[Batch], float] | None
    allow: Collection[Cause]
    seed: int


class _Called(nn.Module):
    """A module called the way its user says."""

    def __init__(
        self, module: nn.Module, call: Callable[[nn.Module, Batch], Tensor]
    ) -> None:
        super().__init__()
        self.module, self.call = module, call

    def forward(self, batch: Batch) -> Tensor:
        with stops_respected():
            return self.call(self.module, batch)


@dataclass(frozen=True)
class Subject:
    """A module, its loss and data, as functions of the D weights looked at.

    Attributes:
        called: the module, called the way its user says.
        names: of the parameters looked at.
        shapes: of these.
        aliases: each place of each of them, and its name.
        weights: all of them, (D,).
        loss: mean over a batch, of outputs and targets.
        loss_name: of it, for messages.
        likelihood: whose negative logarithm the loss is, if it is known.
        is_summed: whether `batch_loss` is a sum over samples, of a loss given by name:
            products then have the bits of a batch of models.
        data: batches, to be read again and again.
        settings: of the user.
        copies_inputs: whether calls get copies of a batch, as they write into it.
        copies_pairs: whether calls get copies of pairs, as they take complex numbers.
        derives_own: whether calls take gradients by parameters, which require them.
        later: of a module whose layers are called while gradients are taken.
    """

    called: _Called
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    aliases: Mapping[str, str]
    weights: Tensor
    loss: Loss
    loss_name: str
    likelihood: Likelihood | None
    is_summed: bool
    data: Any
    settings: Settings
    copies_inputs: bool = False
    copies_pairs: bool = False
    derives_own: bool = False
    later: LaterCalls | None = None

    @property
    def sizes(self) -> list[int]:
        """Number of entries of each parameter."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def has_one_batch(self) -> bool:
        """True if all data are one batch in memory."""
        return isinstance(self.data, list) and len(self.data) == 1

    def batches(self) -> Iterator[Batch]:
        """Yield the batches, on the device of the weights."""
        for batch in self.data:
            yield tree_map(self.moved, plain(batch))

    @property
    def ignored(self) -> int | None:
        """The label that stands for none, if the loss has one."""
        likelihood = self.likelihood
        given = likelihood or self.loss
        ignored: int | None = getattr(given, "ignore_index", None)
        return ignored

    def weights_of(self, batch: Batch) -> Tensor | None:
        """Return how much each sample weighs in the mean loss of a batch, (N,).

        That is, the labels that count, by the weights of their classes if these differ;
        one without any is no observation.

        Returns:
            None of a loss whose mean is not known to be over the labels that count.
        """
        targets, loss = targets_of(batch), self.loss
        left_out = _left_out(loss, self.likelihood)
        is_labels = isinstance(targets, Tensor) and not targets.is_floating_point()
        if left_out is None or not is_labels or not targets.ndim:
            return None
        counts: Tensor = targets != left_out
        weights = counts.to(self.weights.dtype)
        if (of_classes := getattr(loss, "weight", None)) is not None:
            weights = weights * of_classes.to(weights)[targets.where(counts, 0)]
        return weights.reshape(len(weights), -1).sum(1)

    def refusal(self, error: BaseException) -> InputError:
        """Return the refusal of a derivative that torch lacks, by layer or loss."""
        batch = few_of(next(self.batches()))
        return without_derivatives(
            self.called.module,
            lambda: self.outputs(self.weights.detach().clone(), batch),
            lambda outputs: self.mean_loss(outputs, batch),
            name=self.loss_name,
            error=error,
        )

    def moved(self, leaf: Any) -> Any:
        """Return a tensor on the device of the weights, and anything else as it is.

        Data are not derived by, whether or not they require a gradient.
        """
        if not isinstance(leaf, Tensor):
            return leaf
        return leaf.detach().to(self.weights.device)

    def size_of(self, batch: Batch) -> float:
        """Return the weight of a batch: the number of its samples."""
        size_of = self.settings.get("size_of")
        return float(size_of(batch)) if size_of else num_samples(batch)

    def counted(self) -> Iterator[Batch]:
        """Yield the batches, those of no weight left out.

        Raises:
            InputError: a batch has a weight, and no label that counts, or none has one.
        """
        is_empty = True
        for batch in self.batches():
            if self.size_of(batch):
                check_ignored(self, batch)
                is_empty = False
                yield batch
        if is_empty:
            raise InputError(
                "data: expected batches of some weight, got none. Look at size_of, or "
                "at the data."
            )

    def outputs(self, weights: Tensor | Sequence[Tensor], batch: Batch) -> Tensor:
        """Return what the module computes of a batch at weights (D,), or parameters."""
        parts = parted(weights, self.shapes) if isinstance(weights, Tensor) else weights
        if self.copies_pairs:
            parts = [part.clone() if are_pairs(part) else part for part in parts]
        if self.derives_own:
            parts = [
                p if p.requires_grad else p.detach().requires_grad_() for p in parts
            ]
        by_name = dict(zip(self.names, parts, strict=True))
        named = {alias: by_name[name] for alias, name in self.aliases.items()}
        buffers = {name: b.clone() for name, b in self.called.named_buffers()}
        if self.copies_inputs:
            batch = tree_map(lambda t: t.clone() if isinstance(t, Tensor) else t, batch)
        settings = self.settings
        drawing = {"dropout", "nondeterminism"} & set(settings.get("allow", ()))
        seed = settings.get("seed", 0) if drawing else None
        if self.later is not None:
            self.later.restore()
        with calm(self.called, seed), rows_kept(self.called.module):
            # Tied by hand: tying breaks a module that is used under two names (2.13).
            outputs: Tensor = functional_call(
                self.called, (named, buffers), (batch,), tie_weights=False
            )
        if self.later is not None:
            self.later.of(outputs, named | buffers)
        return outputs

    def at(self, batch: Batch) -> Tensor:
        """Return what the module computes of a batch, wherever that is.

        Raises:
            InputError: the batch holds no tensors, or the module or the loss does not
                take it.
        """
        batch = plain(batch)
        num_samples(batch)
        self._check_pair(batch)
        batch = tree_map(self.moved, batch)
        before = [name for name, _ in self.called.module.named_buffers()]
        # By the routes that products take.
        with (
            differentiable(),
            _one_line(
                "module: expected to take a batch", "Say how to call it by forward"
            ),
        ):
            outputs = self.outputs(self.weights, batch)
        check_buffers(self.called.module, before, "module")
        if not isinstance(outputs, Tensor):
            raise InputError(
                f"module: expected a tensor of outputs, got {type(outputs).__name__}. "
                "Pick it out by forward."
            )
        check_ignored(self, batch)
        with _one_line(
            "loss: expected to take a batch", "Try it on outputs and targets"
        ):
            mean = float(self.mean_loss(outputs, batch))
        if not math.isfinite(mean) and self.size_of(batch):
            raise InputError(
                f"loss: expected a finite mean over the first batch, got {mean}. Look "
                "at the data, or take other weights."
            )
        return outputs

    def _check_pair(self, batch: Batch) -> None:
        """Refuse tuples whose target is not known."""
        is_other = not isinstance(batch, Mapping) and len(batch) != 2
        if is_other and not ("forward" in self.settings and len(batch) > 2):
            raise InputError(
                f"data: expected batches (inputs, targets), got one of {len(batch)}. "
                "Pair them, several inputs as a tuple or a dictionary, or say by "
                "forward how to call the module."
            )

    def mean_loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the mean loss of a batch, a scalar."""
        return self.terms(outputs, targets_of(batch)).mean()

    def terms(self, outputs: Tensor, targets: Any) -> Tensor:
        """Return what the loss returns, derived as its gradient is."""
        with stops_respected():
            return self.loss(outputs, targets)

    def batch_loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the loss of a batch that is derived by, a scalar: sum or mean."""
        if not self.is_summed:
            return self.mean_loss(outputs, batch)
        losses, count = self.terms(outputs, targets_of(batch)), num_samples(batch)
        if losses.numel() == count:
            return losses.sum()
        return losses.mean() * count

    def factor_of(self, batch: Batch) -> float:
        """Return what `batch_loss` is multiplied by in the sum over batches."""
        size = self.size_of(batch)
        return size / num_samples(batch) if self.is_summed else size

    def losses(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the loss of each sample of a batch, (N,)."""
        targets, count = targets_of(batch), len(outputs)

        def is_per_sample(leaf: Any) -> int | None:
            ours = isinstance(leaf, Tensor) and leaf.ndim > 0 and len(leaf) == count
            return 0 if ours else None

        dims = tree_map(is_per_sample, targets)

        def sample_loss(output: Tensor, target: Any) -> Tensor:
            several = tree_map(
                lambda leaf, dim: leaf if dim is None else leaf.unsqueeze(0),
                target,
                dims,
                is_leaf=lambda leaf: leaf is None,
            )
            return self.terms(output.unsqueeze(0), several).mean()

        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "There is a performance drop")
                return vmap(sample_loss, in_dims=(0, dims))(outputs, targets)
        except torch.OutOfMemoryError:
            raise
        # A loss may branch on its values, or torch have no rule for it.
        except RuntimeError:
            each = [
                tree_map(
                    lambda leaf, dim, n=number: leaf if dim is None else leaf[n],
                    targets,
                    dims,
                    is_leaf=lambda leaf: leaf is None,
                )
                for number in range(count)
            ]
            losses = map(sample_loss, outputs.unbind(0), each)
            return torch.stack(list(losses))


def subject(
    module: nn.Module,
    loss: Loss | str,
    data: Any,
    settings: Settings,
    *,
    moves: bool = False,
) -> Subject:
    """Take a module, its loss and data, after all checks.

    Args:
        module: as it is to be called, in eval or in train mode.
        loss: of outputs and targets, the mean over a batch, or of each sample; or the
            name of one.
        data: one batch, a list of batches, or a loader.
        settings: see `Settings`.
        moves: whether it will be called at other weights than those that it has.

    Returns:
        The subject.

    Raises:
        InputError: parameters, loss or data cannot be taken; the cause is named.
    """
    if not isinstance(module, nn.Module):
        raise InputError(
            f"module: expected a torch.nn.Module, got {type(module).__name__}. Write "
            "the function as the forward of one."
        )
    _check_settings(settings)
    named = chosen_parameters(module, settings.get("params"))
    batches = _batches_of(data)
    check_unchanged(module, named.values())
    check_unscaled(module, named.values())
    called = _Called(module, settings.get("forward") or _forward)
    called.training = module.training
    mean, likelihood = _understood(loss)
    taken = Subject(
        called,
        tuple(named),
        tuple(tuple(p.shape) for p in named.values()),
        _places(called, named),
        torch.cat([p.detach().flatten() for p in named.values()]),
        mean,
        loss if isinstance(loss, str) else _name(loss),
        likelihood,
        isinstance(loss, str),
        batches,
        settings,
    )
    allow, spare = settings.get("allow", ()), _spare(called, taken.names)
    taken = _with_copies(taken)
    check(module, batches, taken.at, allow)
    is_steady = "nondeterminism" not in allow
    return _as_function(taken, spare, is_steady=is_steady, moves=moves)


def _as_function(
    of: Subject, spare: _Called, *, is_steady: bool, moves: bool
) -> Subject:
    """Return a subject that is a function of its arguments, as it has to be called.

    Args:
        of: the module and its loss.
        spare: another instance of the module.
        is_steady: whether two calls have to agree.
        moves: whether it will be called at other weights.

    Returns:
        The subject.

    Raises:
        InputError: see `check_call`, `check_places`, `check_memory` and
            `check_loss`; or they do not.
    """
    batch = next(of.batches())
    with torch.no_grad():
        outputs = of.at(batch)
    _check_loss(of, outputs, batch, is_steady=is_steady)
    few = few_of(batch)
    parts = parted(of.weights, of.shapes)
    leaves = [part.detach().clone().requires_grad_() for part in parts]
    named = dict(zip(of.names, leaves, strict=True))
    with differentiable():
        takes_later = check_call(
            of.called.module,
            "module",
            named,
            lambda: of.outputs(leaves, few),
            is_whole=False,
        )
        if not is_steady:
            return of
        parameters = dict(of.called.module.named_parameters())
        registered = {name: parameters[name] for name in of.names}
        if moves:
            call = partial(_outputs_of, of, of.called, few, named)
            check_places("module", call, registered)
        if takes_later:
            of = replace(of, later=_later(of, few, named, registered, moves=moves))
        at = partial(_outputs_of, of)
        check_memory(
            "module",
            partial(at, of.called, few),
            partial(at, spare, few),
            lambda: partial(at, _spare(of.called, of.names), few),
            named,
        )
    return of


def _later(
    of: Subject,
    few: Batch,
    leaves: Mapping[str, Tensor],
    registered: Mapping[str, Tensor],
    *,
    moves: bool,
) -> LaterCalls | None:
    """Return what a module needs whose layers are called as gradients are taken."""

    def call(later: LaterCalls | None) -> Call:
        return partial(_outputs_of, replace(of, later=later), of.called, few)

    return later_calls(of.called, "module", call, leaves, registered, moves=moves)


def _outputs_of(
    of: Subject, called: _Called, few: Batch, leaves: Mapping[str, Tensor]
) -> Tensor:
    """Return the outputs of an instance of the module at other parameters."""
    return replace(of, called=called).outputs(list(leaves.values()), few)


def _with_copies(of: Subject) -> Subject:
    """Return a subject whose calls get copies, as far as is seen at a batch."""
    if iter(of.data) is of.data:
        return of
    # The module itself is not called before its checks.
    called = cast("_Called", instance_of(of.called, ()))
    try:
        few = few_of(next(of.batches()))
        parts = [part.clone() for part in parted(of.weights, of.shapes)]

        def call(batch: Batch) -> Tensor:
            return replace(of, called=called).outputs(parts, batch)

        needs = needs_of(call, few)
        if needs.gradients:
            of = replace(of, derives_own=True)
            needs = needs_of(call, few)
        return replace(of, copies_pairs=needs.pairs, copies_inputs=needs.inputs)
    # What is wrong with data or module is said by the checks behind.
    except Exception:
        return of


def _spare(called: _Called, names: Collection[str]) -> _Called:
    """Return another instance of a module, with copies of these parameters."""
    parameters = dict(called.module.named_parameters())
    return cast("_Called", instance_of(called, [parameters[name] for name in names]))


def _check_loss(of: Subject, outputs: Tensor, batch: Batch, *, is_steady: bool) -> None:
    """Refuse a loss of which two calls differ, or that changes gradients."""
    with torch.no_grad():
        first, second = (of.mean_loss(outputs, batch) for _ in range(2))
    if is_steady and not torch.allclose(first, second, rtol=1e-5, equal_nan=True):
        raise InputError(
            "loss (nondeterminism): expected equal losses for equal outputs, got "
            f"{float(first):.6g} and {float(second):.6g}. Remove what draws at random "
            "or keeps a state between calls. Or go on all the same: allow "
            "'nondeterminism'."
        )
    check_loss("loss", outputs, lambda leaf: of.mean_loss(leaf, batch))


def _check_settings(settings: Settings) -> None:
    """Refuse settings of the wrong sort.

    Raises:
        InputError: one is no function, or no list of names; it is named.
    """
    for name in ("forward", "size_of"):
        function = settings.get(name)
        if function is not None and not callable(function):
            raise InputError(
                f"{name}: expected a function, got {type(function).__name__}. Pass "
                "one, or leave it out."
            )
    for name in ("params", "allow"):
        given: Any = settings.get(name, ())
        is_list = isinstance(given, Collection) and not isinstance(given, str | bytes)
        are_names = is_list and all(isinstance(each, str) for each in given)
        if not (are_names or (given is None and name == "params")):
            raise InputError(
                f"{name}: expected a list of names, got {type(given).__name__}. Put "
                "text into a list, or leave it out."
            )


def _batches_of(data: Any) -> Iterable[Batch]:
    """Return batches as they were given, of one batch a list.

    Raises:
        InputError: they are none.
    """
    batches = [data] if isinstance(data, tuple | Mapping) else data
    if isinstance(batches, list):
        batches = [plain(batch) for batch in batches]
    if isinstance(batches, list) and not batches:
        raise InputError("data: expected batches, got an empty list. Pass some.")
    if isinstance(batches, Tensor) or _holds_tensors(batches):
        raise InputError(
            "data: expected batches (inputs, targets), or dictionaries, got a tensor "
            "in place of one. Pass a tuple for one batch, or a list of such."
        )
    if isinstance(batches, Dataset) and not isinstance(batches, IterableDataset):
        raise InputError(
            f"data: expected batches, got {type(batches).__name__} of single samples. "
            "Pass a DataLoader of it."
        )
    if not hasattr(batches, "__iter__"):
        raise InputError(
            f"data: expected batches, got {type(batches).__name__}. Pass a batch "
            "(inputs, targets), a list of such, or a loader."
        )
    return cast("Iterable[Batch]", batches)


def _left_out(loss: Any, likelihood: Likelihood | None) -> int | None:
    """Return the label that a mean over the others leaves out; None of another mean."""
    if likelihood is not None:
        return likelihood.ignore_index if likelihood.is_over_terms else None
    if type(loss) not in (nn.CrossEntropyLoss, nn.NLLLoss) or loss.reduction != "mean":
        return None
    ignored: int = loss.ignore_index
    return ignored


def check_ignored(of: Subject, batch: Batch, *, all_count: bool = False) -> None:
    """Refuse labels that stand for none where they cannot.

    Args:
        of: the module and its loss.
        batch: its labels.
        all_count: whether none of the labels may stand for none.

    Raises:
        InputError: a loss by name is given the label that PyTorch ignores; or no label
            of the batch counts, or not all do.
    """
    targets, ignored = targets_of(batch), of.ignored
    is_labels = isinstance(targets, Tensor) and not targets.is_floating_point()
    if not is_labels or not targets.numel():
        return
    law = of.likelihood.name if of.likelihood else ""
    if of.is_summed and law == "cross_entropy":
        if bool((targets == TORCH_IGNORES).any()):
            raise InputError(
                f"data: expected labels from 0 on for cross_entropy, got "
                f"{TORCH_IGNORES}, the ignore_index of PyTorch. Leave such samples "
                "out, or pass nn.CrossEntropyLoss()."
            )
        return
    if ignored is None or getattr(of.loss, "reduction", "mean") != "mean":
        return
    left_out = targets == ignored
    if all_count and bool(left_out.any()):
        raise InputError(
            f"data: expected labels that all count, got {int(left_out.sum())} of "
            f"{targets.numel()} that are the loss's ignore_index, {ignored}. Leave "
            "such samples out."
        )
    if bool(left_out.all()) and of.size_of(batch):
        raise InputError(
            "data: expected a label that counts in each batch, got the loss's "
            f"ignore_index, {ignored}, alone. Leave such batches out, or pass size_of, "
            "the number of labels that count in a batch, which is 0 there."
        )


@contextmanager
def named_failures(of: Subject) -> Iterator[None]:
    """Refuse by its name the layer or loss that torch cannot derive within the block.

    Args:
        of: the module, its loss and data.

    Yields:
        Nothing.

    Raises:
        InputError: torch has no such derivative, or labels are out of range.
        IndexError: whatever else goes wrong, as does what follows.
        RuntimeError: as above.
    """
    try:
        yield
    except (InputError, IndexError, RuntimeError) as error:
        cause = error.__cause__ if isinstance(error, InputError) else error
        if isinstance(cause, torch.OutOfMemoryError):
            raise
        if isinstance(cause, IndexError | RuntimeError) and "out of " in str(cause):
            for batch in of.batches():
                check_ignored(of, batch)
        if cause is None or not is_of_derivatives(cause):
            raise
        raise of.refusal(cause) from cause


@contextmanager
def _one_line(expected: str, remedy: str) -> Iterator[None]:
    """Report what a user's code raises as one line."""
    try:
        yield
    except InputError:
        raise
    # It may raise anything.
    except Exception as error:
        raise InputError(f"{expected}, got {summary(error)}. {remedy}.") from error


def _name(loss: Loss) -> str:
    return str(getattr(loss, "__name__", type(loss).__name__))


def _holds_tensors(batches: Any) -> bool:
    return isinstance(batches, list) and isinstance(batches[0], Tensor)


def _check_any(every: Collection[str], patterns: Sequence[str] | None) -> None:
    """Refuse that no parameter is looked at.

    Raises:
        InputError: the module has none that requires a gradient, or none is named.
    """
    if not every:
        raise InputError(
            "module: expected parameters that require a gradient, got none. Free some "
            "by requires_grad_()."
        )
    if patterns is not None and not patterns:
        raise InputError(
            "params: expected names of parameters, got none. Name some, or leave it "
            "out."
        )


def chosen_parameters(
    module: nn.Module, patterns: Sequence[str] | None
) -> dict[str, nn.Parameter]:
    """Return the parameters looked at by name, of those that require a gradient.

    Args:
        module: as it is to be called.
        patterns: of names; None takes all.

    Returns:
        The parameters.

    Raises:
        InputError: a pattern fits none, or they cannot be taken together.
    """
    every = {n: p for n, p in module.named_parameters() if p.requires_grad}
    patterns = None if patterns is None else list(patterns)
    _check_known(every)
    _check_any(every, patterns)
    for pattern in patterns or ():
        if not any(fnmatchcase(name, pattern) for name in every):
            raise InputError(
                f"params: expected names of parameters that require a gradient, got "
                f"{pattern}. Take some of {', '.join(every)}, or a pattern."
            )
    named = {
        name: parameter
        for name, parameter in every.items()
        if patterns is None or any(fnmatchcase(name, p) for p in patterns)
    }
    kinds = {(p.dtype, p.device) for p in named.values()}
    if len(kinds) > 1:
        shown = ", ".join(sorted(f"{d} on {v}" for d, v in kinds))
        raise InputError(
            f"module: expected parameters of one precision on one device, got {shown}. "
            "Cast it with to()."
        )
    if any(p.is_complex() for p in named.values()):
        raise InputError(
            "module: expected real parameters, got complex ones. Hold the real and the "
            "imaginary part as two parameters."
        )
    if not all(torch.isfinite(p).all() for p in named.values()):
        raise InputError(
            "module: expected finite parameters, got NaN or infinity. Take weights "
            "from before training diverged."
        )
    return named


def _check_known(named: Mapping[str, nn.Parameter]) -> None:
    """Refuse parameters without a shape or without numbers."""
    for name, parameter in named.items():
        if isinstance(parameter, UninitializedParameter):
            raise InputError(
                f"module: expected parameters whose shapes are known, got '{name}', "
                "which a first call is to tell. Call the module on a batch once."
            )
        if parameter.is_meta:
            raise InputError(
                f"module: expected parameters that hold numbers, got '{name}' on the "
                "device meta. Move it with to_empty() and load its weights before."
            )


def _places(called: _Called, named: Mapping[str, nn.Parameter]) -> dict[str, str]:
    names = {id(parameter): name for name, parameter in named.items()}
    return {
        f"{place}.{key}": names[id(parameter)]
        for place, layer in called.named_modules()
        for key, parameter in layer._parameters.items()
        if id(parameter) in names
    }


def _understood(loss: Loss | str) -> tuple[Loss, Likelihood | None]:
    likelihood = likelihood_of(loss)
    if isinstance(loss, str):
        if loss not in NAMES:
            raise InputError(
                f"loss: expected one of {', '.join(NAMES)}, or a function, got "
                f"{loss}. Name one of them."
            )
        of_samples = sample_losses(loss)

        def named(outputs: Tensor, targets: Any) -> Tensor:
            targets = _checked(targets, outputs, loss)
            if likelihood is not None and loss != "cross_entropy":
                terms = likelihood.terms
                outputs, targets = (terms(t).squeeze(1) for t in (outputs, targets))
            return of_samples(outputs[None], targets[None])

        return named, likelihood
    reduction = getattr(loss, "reduction", "mean")
    if reduction == "sum":
        raise InputError(
            "loss: expected the mean over a batch, got reduction='sum'. Take 'mean' or "
            "'none'; operators are of the mean loss."
        )
    if likelihood is not None and likelihood.name == "mse":
        # torch's own has no second forward derivative (2.13).
        return lambda f, y: (f - _checked(y, f, "mse")).square(), likelihood
    if likelihood is not None and likelihood.name == "poisson":
        # torch's spreads targets of another shape over all outputs.
        return lambda f, y: loss(f, _checked(y, f, "poisson")), likelihood
    return loss, likelihood


def _checked(targets: Any, outputs: Tensor, loss: str) -> Tensor:
    """Return targets that fit a loss by name, which knows nothing of dictionaries."""
    if isinstance(targets, Mapping):
        raise InputError(
            f"data: expected 'targets' in a batch for the loss {loss}, got "
            f"{', '.join(targets)}. Name them so, or pass a function of outputs and "
            "the batch."
        )
    values: Tensor = targets
    if loss != "cross_entropy" and values.shape != outputs.shape:
        raise InputError(
            f"data: expected targets of the shape of the outputs for {loss}, "
            f"{tuple(outputs.shape)}, got {tuple(values.shape)}. Reshape them: others "
            "would be spread over all outputs."
        )
    return values


def _forward(module: nn.Module, batch: Batch) -> Any:
    args, named = arguments(module, batch)
    return tensor_of(module(*args, **named))
