"""A module of the user's own, called with stacked tensors in either mode."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from curvflow.errors import InputError, first_line
from curvflow.schemas.kinds.shared.several_inputs import InputPart
from curvflow.schemas.user_errors import before
from curvflow.tasks.networks.draws import Drawn, Uniform
from curvflow.tasks.networks.held_tensors import Home, held_tensors, put
from curvflow.tasks.networks.network import ForwardPass
from curvflow.tasks.networks.recorder import UseRecorder, stacked_uses
from curvflow.tasks.numerics.derivatives.calls import arguments, tensor_of
from curvflow.tasks.numerics.derivatives.differentiation_modes import (
    Derivatives,
    is_scripted,
)
from curvflow.tasks.numerics.derivatives.guards import (
    check_buffers,
    first_layer_without,
    has_forward_derivatives,
    has_second_derivatives,
    refuse_gone,
)
from curvflow.tasks.numerics.derivatives.precision import (
    StepByStep,
    fuses_steps,
    reroute,
    stops_respected,
)
from curvflow.tasks.numerics.later_calls import LaterCalls, later_calls
from curvflow.tasks.numerics.recomputation import computed_once
from curvflow.tasks.numerics.watched_calls import (
    Call,
    are_pairs,
    check_call,
    check_memory,
    check_places,
    needs_of,
    writes_into,
)

# A batch norm's count of batches, on which it depends where all batches weigh alike.
COUNT = "num_batches_tracked"


@dataclass(frozen=True)
class Observed:
    """Draws and changes of a module's call in training.

    Attributes:
        shapes: of the uniform numbers that it draws, in their order.
        moved: names of the statistics that it changes.
    """

    shapes: tuple[tuple[int, ...], ...] = ()
    moved: tuple[str, ...] = ()


class StackedModule:
    """A module as a function of the stacked tensors of M models.

    In training its layers are as the user's function returned them: those in training
    draw, and norms take the moments of the batch; those in evaluation stay so. Buffers
    are copied for each call, so that the module itself never changes.
    """

    def __init__(self, module: nn.Module, parts: Sequence[InputPart] = ()) -> None:
        """Take the module as the user's function returned it.

        Args:
            module: in the mode of training.
            parts: of inputs that are several, side by side; none of one input.
        """
        self._module, self._parts = module, tuple(parts)
        reroute(module)
        self._buffers = dict(module.named_buffers())
        self._trained = {layer: layer.training for layer in module.modules()}
        self._is_trained = True
        self._norms = {
            f"{name}." if name else "": layer
            for name, layer in module.named_modules()
            if isinstance(layer, _BatchNorm) and layer.running_mean is not None
        }
        self._observed: dict[object, Observed] = {}
        self._copies_inputs = False
        self._aligned: tuple[str, ...] = ()
        self._derives_own = False
        self._later: LaterCalls | None = None

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        """The parameters that are trained."""
        return parameters_of(self._module, trained=True)

    @cached_property
    def frozen(self) -> dict[str, Tensor]:
        """The parameters that are not."""
        frozen = parameters_of(self._module, trained=False)
        return {name: parameter.detach() for name, parameter in frozen.items()}

    @cached_property
    def statistics(self) -> dict[str, Tensor]:
        """The buffers of real numbers that a `state_dict` holds, and frozen parameters.

        Counts of batches are among them where a running mean weighs by them.
        """
        kept = self._module.state_dict()
        real = [n for n, b in self._buffers.items() if b.is_floating_point()]
        counts = [n + COUNT for n, norm in self._norms.items() if norm.momentum is None]
        wanted = {*self.frozen, *real, *counts}
        return {name: kept[name] for name in kept if name in wanted}

    @property
    def has_only_means(self) -> bool:
        """All statistics are those of norms, which begin alike whatever the seed."""
        return all(name.startswith(tuple(self._norms)) for name in self.statistics)

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Further names of tensors that have several, and the first of each."""
        names: dict[int, str] = {}
        aliases = {}
        for named in (self._module.named_parameters, self._module.named_buffers):
            for name, tensor in named(remove_duplicate=False):
                if (first := names.setdefault(id(tensor), name)) != name:
                    aliases[name] = first
        return aliases

    @cached_property
    def constants(self) -> dict[str, Tensor]:
        """Further tensors of a `state_dict`, but for counts of batches."""
        rest = {*self.parameters, *self.statistics, *self.aliases}
        kept = self._module.state_dict()
        return {n: t for n, t in kept.items() if n not in rest and COUNT not in n}

    @property
    def is_called_later(self) -> bool:
        """Layers are called while gradients are taken, by `check_calls`."""
        return self._later is not None

    @property
    def shares(self) -> dict[str, float]:
        """The weight of a batch in each statistic that training moves.

        Of running means it is that in the first batch, from zero. It is 0 of a count,
        and NaN of a buffer that is no running mean.
        """
        moved = next(iter(self._observed.values()), Observed()).moved
        shares = {name: 0.0 if name.endswith(COUNT) else torch.nan for name in moved}
        for name, norm in self._norms.items():
            share = 1.0 if norm.momentum is None else float(norm.momentum)
            means = {f"{name}running_mean", f"{name}running_var"} & set(moved)
            shares |= dict.fromkeys(means, share)
        return shares

    def together(self, forward_pass: ForwardPass, inputs: Tensor) -> Tensor:
        """Return the outputs (M, N, ...), by vmap if there is more than one model."""
        if forward_pass.leaves:
            return self._alone(forward_pass, inputs)
        models, tensors = _stacked(forward_pass)
        if models == 1 or forward_pass.uses is not None:
            return self.apart(forward_pass, inputs)
        seen = self._seen(forward_pass, inputs)
        shared = inputs.shape[0] == 1
        in_dims = (0, None if shared else 0, 0)
        # Fused attention has no rule for batches.
        with self._routes(forward_pass), sdpa_kernel(SDPBackend.MATH):
            outputs, moved = vmap(partial(self._one, moved=seen.moved), in_dims)(
                dict(tensors),
                inputs[0] if shared else inputs,
                _drawn(forward_pass, seen, models),
            )
        self._update(forward_pass, moved)
        return outputs

    def apart(self, forward_pass: ForwardPass, inputs: Tensor) -> Tensor:
        """Return the outputs (M, N, ...), of one model after another."""
        if forward_pass.leaves:
            return self._alone(forward_pass, inputs)
        models, tensors = _stacked(forward_pass)
        seen = self._seen(forward_pass, inputs)
        drawn = _drawn(forward_pass, seen, models)
        # By views that are undone at once: an index of each would be as M sums.
        parts = zip(*[_rows(stacked) for stacked in tensors.values()], strict=True)
        numbers = list(zip(*map(_rows, drawn), strict=True)) or [()] * models
        each = inputs.expand(models, *inputs.shape[1:])
        each_tensors = [dict(zip(tensors, part, strict=True)) for part in parts]
        results, uses = [], []
        with self._routes(forward_pass):
            for named, x, few in zip(each_tensors, each, numbers, strict=True):
                call = partial(self._one, named, x, few, moved=seen.moved)
                if forward_pass.uses is None:
                    results.append(call())
                    continue
                # A frozen weight has no gradient, which is all that its uses tell.
                recorder = UseRecorder({name: named[name] for name in self.parameters})
                results.append(recorder.recorded(call))
                uses.append(recorder.uses)
        if forward_pass.uses is not None:
            forward_pass.uses += stacked_uses(uses)
        outputs, moved = zip(*results, strict=True)
        self._update(
            forward_pass,
            {name: torch.stack([m[name] for m in moved]) for name in seen.moved},
        )
        return outputs[0].unsqueeze(0) if models == 1 else torch.stack(outputs)

    def _alone(self, forward_pass: ForwardPass, inputs: Tensor) -> Tensor:
        """Return the outputs (1, N, ...) of one model, from the leaves of a graph."""
        seen = self._seen(forward_pass, inputs)
        drawn = [numbers.squeeze(0) for numbers in _drawn(forward_pass, seen, 1)]
        statistics = {n: t.squeeze(0) for n, t in forward_pass.tensors.items()}
        tensors = dict(forward_pass.leaves) | statistics
        # Nothing is derived twice here, so that kernels of recurrent layers will do;
        # those with a dropout of their own draw in ways that cannot be told them.
        with self._routes(forward_pass, once=not drawn):
            outputs, moved = self._one(tensors, inputs[0], drawn, moved=seen.moved)
        self._update(forward_pass, {n: t.unsqueeze(0) for n, t in moved.items()})
        return outputs.unsqueeze(0)

    def layer_without_derivatives(
        self, inputs: Tensor, *, derivatives: Derivatives = "reverse"
    ) -> str:
        """Return the first layer of which a network has these alone, or "".

        Args:
            inputs: shape (N, ...).
            derivatives: `reverse`, without second ones by forward mode; or `first`,
                without second ones at all.
        """
        has_second = (
            has_forward_derivatives
            if derivatives == "reverse"
            else has_second_derivatives
        )

        def call() -> object:
            self._set_mode(is_trained=False)
            like = next(iter(self.parameters.values()))
            args, named = self._arguments(
                inputs.to(like) if inputs.is_floating_point() else inputs
            )
            return self._module(*args, **named)

        return first_layer_without(self._module, call, has_second)

    def is_scripted(self, inputs: Tensor) -> bool:
        """Return whether torch.jit has compiled functions that the module calls.

        Args:
            inputs: shape (N, ...).
        """
        tensors = self.statistics | dict(self._module.named_parameters())
        like = next(iter(self.parameters.values()))
        x = inputs.to(like) if inputs.is_floating_point() else inputs
        self._set_mode(is_trained=False)
        with torch.random.fork_rng(devices=[]):
            return is_scripted(lambda: self._call(self._held(tensors), x, None))

    def find_copies(self, inputs: Tensor) -> None:
        """See of which tensors calls need copies.

        That is, of inputs that are written into, of pairs of numbers that are taken
        for complex ones, which torch wants at even places, and of parameters by which
        a gradient is taken in a call, so that they require one as those of a module.

        Args:
            inputs: shape (N, ...).
        """
        constant = {name: p.detach() for name, p in self.parameters.items()}
        call = partial(self._outputs, constant, statistics=self.statistics)
        needs = needs_of(partial(call, is_trained=False), inputs)
        if needs.gradients:
            self._derives_own = True
            needs = needs_of(partial(call, is_trained=False), inputs)
        if needs.pairs:
            pairs = (name for name, p in constant.items() if are_pairs(p))
            self._aligned = tuple(pairs)
        self._copies_inputs = needs.inputs or (
            any(self._trained.values())
            and writes_into(partial(call, is_trained=True), inputs)
        )

    def _take_copies_of(self, first: StackedModule) -> None:
        self._copies_inputs, self._aligned = first._copies_inputs, first._aligned
        self._derives_own = first._derives_own

    def check_calls(self, inputs: Tensor, made: Callable[[], nn.Module]) -> None:
        """Refuse a module whose calls are no functions of its weights.

        Args:
            inputs: shape (N, ...).
            made: returns the module anew, with equal values.

        Raises:
            InputError: see `check_call`, `check_places` and `check_memory`.
        """
        twin = StackedModule(made(), self._parts)
        twin._take_copies_of(self)
        modes = {False, any(self._trained.values())}
        later: LaterCalls | None = None
        for is_trained in sorted(modes):
            leaves = _leaves_of(self.parameters)
            frozen = {name: tensor.clone() for name, tensor in self.frozen.items()}
            # Copies, which share no memory with the module's own.
            kept = {name: tensor.clone() for name, tensor in self.statistics.items()}
            outputs = partial(
                StackedModule._outputs,
                inputs=inputs,
                statistics=kept | frozen,
                is_trained=is_trained,
            )
            call, at = partial(outputs, self, leaves), (self._module, "model", leaves)
            with torch.random.fork_rng(devices=[]):
                takes_later = check_call(*at, call, is_whole=True, frozen=frozen)
            registered = self.parameters | self.statistics
            check_places("model", call, registered)
            if takes_later:
                bare = partial(self._with, partial(outputs, self))
                seen = later_calls(self._module, "model", bare, leaves, registered)
                later = later or seen
            check_memory(
                "model",
                partial(outputs, self),
                partial(outputs, twin),
                lambda outputs=outputs: partial(  # type: ignore[misc]
                    outputs, StackedModule(made(), self._parts)
                ),
                leaves,
            )
        self._later = later

    def _with(self, call: Call, later: LaterCalls | None) -> Call:
        self._later = later
        return call

    def _outputs(
        self,
        leaves: Mapping[str, Tensor],
        inputs: Tensor,
        *,
        statistics: Mapping[str, Tensor],
        is_trained: bool,
    ) -> Tensor:
        """Return the outputs (N, ...) of a call that draws by torch's own numbers."""
        like = next(iter(leaves.values()))
        x = inputs.to(like) if inputs.is_floating_point() else inputs
        self._set_mode(is_trained=is_trained)
        return self._call(self._held({**statistics, **leaves}), x, None)

    def _seen(self, forward_pass: ForwardPass, inputs: Tensor) -> Observed:
        """Return what a call in training draws and moves, from a trial of its shape."""
        if not (forward_pass.in_training and any(self._trained.values())):
            return Observed()
        first = next(iter(self._observed.values()), None)
        if first is not None and not first.shapes:
            return first
        key = inputs.shape[1:]
        if key not in self._observed:
            leaves = {n: leaf.detach() for n, leaf in forward_pass.leaves.items()}
            tensors = {n: t[0].detach() for n, t in forward_pass.tensors.items()}
            tensors = leaves | tensors
            with torch.no_grad(), self._routes(forward_pass):
                self._observed[key] = self._observe(tensors, inputs[0], first)
        return self._observed[key]

    def _observe(
        self, tensors: Mapping[str, Tensor], inputs: Tensor, first: Observed | None
    ) -> Observed:
        shapes: list[tuple[int, ...]] = []
        like = next(iter(tensors.values()))

        def note(shape: tuple[int, ...]) -> Tensor:
            shapes.append(shape)
            return like.new_full(shape, 0.5)

        named = self._held(tensors)
        before = {name: named[name].clone() for name in self._buffers}
        self._call(named, inputs, note)
        if first is not None:
            return Observed(tuple(shapes), first.moved)
        moved = {n for n in before if not _are_equal(before[n], named[n])}
        self._check_moved(moved)
        self._check_kept(before, moved, named, inputs)
        for name, norm in self._norms.items():
            if self._trained[norm]:
                moved |= {f"{name}running_mean", f"{name}running_var"}
        return Observed(tuple(shapes), tuple(n for n in self.statistics if n in moved))

    def _check_moved(self, moved: set[str]) -> None:
        counts = {name + COUNT for name in self._norms}
        kept = self._module.state_dict().keys()
        for name in sorted((moved & kept) - set(self.statistics) - counts):
            raise InputError(
                "model: expected buffers of real numbers to change in training, got "
                f"'{name}' of {self._buffers[name].dtype}. Register it as real numbers."
            )

    def _check_kept(
        self,
        before: Mapping[str, Tensor],
        moved: set[str],
        tensors: dict[str, Tensor],
        inputs: Tensor,
    ) -> None:
        """Refuse buffers that no `state_dict` holds, if later calls depend on them.

        One that each call fills anew, such as a table of angles, has no memory.

        Args:
            before: buffers before a call in training.
            moved: names of those that it has changed.
            tensors: behind it.
            inputs: shape (N, ...).

        Raises:
            InputError: there is one that a second call moves on, or that evaluation
                tells from what it was; it is named.
        """
        if not (unkept := sorted(moved - self._module.state_dict().keys())):
            return
        half = partial(inputs.new_full, fill_value=0.5, dtype=torch.float32)
        self._set_mode(is_trained=False)
        first, behind = (
            self._call(
                tensors | {name: of[name].clone() for name in unkept}, inputs, half
            )
            for of in (before, tensors)
        )
        self._set_mode(is_trained=True)
        again = dict(tensors) | {name: tensors[name].clone() for name in unkept}
        self._call(again, inputs, half)
        for name in unkept:
            if not (
                _are_equal(again[name], tensors[name]) and _are_equal(first, behind)
            ):
                raise InputError(
                    "model: expected buffers that change in training to be in a "
                    f"state_dict, got '{name}', which is not. Register it with "
                    "persistent=True."
                )

    def _update(self, forward_pass: ForwardPass, moved: Mapping[str, Tensor]) -> None:
        if moved:
            _, tensors = _stacked(forward_pass)
            kept = {name: tensors[name] for name in self.statistics}
            forward_pass.updated |= kept | dict(moved)

    def _one(
        self,
        tensors: Mapping[str, Tensor],
        inputs: Tensor,
        drawn: Sequence[Tensor],
        *,
        moved: Sequence[str],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return one model's outputs, and the statistics that this call has moved."""
        named = self._held(tensors)
        left = _Replayed(drawn)
        output = self._call(named, inputs, left if drawn else None)
        left.check_empty()
        return output, {name: named[name].to(tensors[name]) for name in moved}

    def _call(
        self, tensors: dict[str, Tensor], inputs: Tensor, draw: Uniform | None
    ) -> Tensor:
        """Return the outputs, and leave in `tensors` what buffers have become."""
        if self._later is None:
            return self._called(tensors, inputs, draw)
        self._later.restore()
        output = self._called(tensors, inputs, draw)
        aliases = {name: tensors[first] for name, first in self.aliases.items()}
        self._later.of(output, tensors | aliases)
        return output

    def _copies(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return parameters as a call needs them: at even places, with a gradient."""
        copies = {name: tensors[name].clone() for name in self._aligned}
        if self._derives_own:
            for name in self.parameters:
                if not tensors[name].requires_grad:
                    given = copies.get(name, tensors[name])
                    copies[name] = given.detach().requires_grad_()
        return copies

    def _called(
        self, tensors: dict[str, Tensor], inputs: Tensor, draw: Uniform | None
    ) -> Tensor:
        """Return the same, of a call that is over when it returns."""
        if self._copies_inputs:
            inputs = inputs.clone()
        tensors |= self._copies(tensors)
        args, named = self._arguments(inputs)
        # What is traced takes no lock.
        once = nullcontext() if torch.compiler.is_compiling() else computed_once()
        drawn = nullcontext() if draw is None else Drawn(draw)
        puts = put(self._entries, tensors) if self._entries else nullcontext()
        with once, drawn, puts:
            if (homes := self._homes) is None:
                return self._replaced(tensors, args, named)
            behind: dict[str, Tensor | None] = {}
            try:
                for store, key, name, _ in homes:
                    store[key] = tensors[name]
                output: Tensor = tensor_of(self._module(*args, **named))
            finally:
                if self._buffers:
                    behind = {name: store.get(key) for store, key, name, _ in homes}
                for store, key, _, tensor in homes:
                    store[key] = tensor
        if behind:
            tensors |= {n: t for n, t in behind.items() if t is not None}
            # A parameter is put back, and the next call is as the first.
            gone = (n for n, t in behind.items() if t is None and n in self._buffers)
            refuse_gone(gone, "model")
        return output

    def _replaced(
        self,
        tensors: dict[str, Tensor],
        args: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Tensor:
        """Return the outputs of a call by torch's own way to give layers tensors."""
        tensors |= {name: tensors[first] for name, first in self.aliases.items()}
        # Ties are known: to look for them takes as long as a layer.
        output: Tensor = tensor_of(
            functional_call(self._module, tensors, args, named, tie_weights=False)
        )
        if self._buffers:
            check_buffers(self._module, self._buffers, "model")
            refuse_gone((n for n in self._buffers if tensors[n] is None), "model")
        return output

    def _arguments(self, inputs: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call with inputs (N, ...)."""
        if not self._parts:
            return (inputs,), {}
        pieces = torch.split(inputs, [part.size for part in self._parts], dim=1)
        several = {
            part.name: _as_part(part, piece)
            for part, piece in zip(self._parts, pieces, strict=True)
        }
        return arguments(self._module, {"inputs": several})

    @cached_property
    def _homes(self) -> list[Home] | None:
        """Holders of tensors, or None if a layer must be given new ones.

        Recurrent layers keep lists of their weights. To put tensors in their places by
        `functional_call` takes as long as several layers.
        """
        layers = list(self._module.modules())
        if any(
            type(layer).__setattr__ is not nn.Module.__setattr__ for layer in layers
        ):
            return None
        # Of a parameter that is a buffer, too, its own name.
        named = self._buffers | dict(self._module.named_parameters())
        names = {id(tensor): name for name, tensor in named.items()}
        stores: list[dict[str, Any]] = [layer._parameters for layer in layers]
        stores += [layer._buffers for layer in layers]
        return [
            Home(tensors, key, names[id(given)], given)
            for tensors in stores
            for key, given in tensors.items()
            if given is not None
        ]

    @cached_property
    def _entries(self) -> list[Home]:
        """Statistics that layers hold a second time."""
        named = self._buffers | dict(self._module.named_parameters())
        kept = {name: named[name] for name in self.statistics}
        return held_tensors(self._module, kept)

    def _held(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        copies = dict(tensors)
        if not self._buffers:
            return copies
        like = next(iter(tensors.values()))
        # Copies, so that a module that changes its buffers does not change these.
        for name, buffer in self._buffers.items():
            given = tensors[name] if name in tensors else _moved(buffer, like)
            copied = given.detach().clone()
            is_count = copied.is_floating_point() and not buffer.is_floating_point()
            copies[name] = copied.round().to(buffer.dtype) if is_count else copied
        return copies

    @contextmanager
    def _routes(
        self, forward_pass: ForwardPass, *, once: bool = False
    ) -> Iterator[None]:
        """Put the layers into their mode, and take kernels that have derivatives."""
        self._set_mode(is_trained=forward_pass.in_training)
        backends = [] if once else self._backends
        before = [backend.enabled for backend in backends]
        fast = torch.backends.mha.get_fastpath_enabled()
        for backend in backends:
            backend.enabled = False
        if self._has_fast_path:
            torch.backends.mha.set_fastpath_enabled(False)
        tensors = [*forward_pass.leaves.values(), *forward_pass.tensors.values()]
        is_fused = not once and fuses_steps(self._module, tensors[0].device)
        try:
            with (
                StepByStep() if is_fused else nullcontext(),
                nullcontext() if once else stops_respected(),
            ):
                yield
        except (ValueError, RuntimeError) as error:
            if (refusal := _refusal_of(error)) is None:
                raise
            raise refusal from error
        finally:
            for backend, enabled in zip(backends, before, strict=True):
                backend.enabled = enabled
            if self._has_fast_path:
                torch.backends.mha.set_fastpath_enabled(fast)

    def _set_mode(self, *, is_trained: bool) -> None:
        if is_trained != self._is_trained:
            for layer, trained in self._trained.items():
                layer.training = trained and is_trained
            self._is_trained = is_trained

    @cached_property
    def _backends(self) -> list[Any]:
        """Backends with kernels of recurrent layers that lack derivatives."""
        is_recurrent = any(isinstance(layer, nn.RNNBase) for layer in self._trained)
        return [torch.backends.mkldnn, torch.backends.cudnn] if is_recurrent else []

    @cached_property
    def _has_fast_path(self) -> bool:
        """It has transformer layers, which take a route without rules in evaluation."""
        layers = nn.MultiheadAttention | nn.TransformerEncoderLayer
        return any(isinstance(layer, layers) for layer in self._trained)


def parameters_of(module: nn.Module, *, trained: bool) -> dict[str, Tensor]:
    """Return the parameters of a module that are trained, or those that are not."""
    named = module.named_parameters()
    return {name: p for name, p in named if p.requires_grad is trained}


def _refusal_of(error: Exception) -> InputError | None:
    """Return the refusal of what a module's code has raised, where a remedy is known.

    Args:
        error: of a call.
    """
    said = first_line(error)
    if "more than 1 value per channel" in said:
        return InputError(
            "model: expected more than one sample in every batch for its batch "
            "norm, got 1. Set drop_last, or another batch_size; of a probe "
            "train_batch_size, if it has that."
        )
    if isinstance(error, RuntimeError) and re.search("dtype|scalar type", said):
        return InputError(
            f"model: {before(error)}expected a module that computes in the type of its "
            f"weights, got RuntimeError: {said}. Cast to that of a weight, as by "
            "x.to(self.layer.weight), or set dtype: float32 of the stage."
        )
    return None


def _as_part(part: InputPart, piece: Tensor) -> Tensor:
    """Return one of several inputs in its own shape and type, (N, *shape)."""
    # In memory of its own, as a loader has it, for a module may ask for a view of it.
    shaped = piece.clone(memory_format=torch.contiguous_format)
    shaped = shaped.reshape(len(piece), *part.shape)
    if part.kind == "f":
        return shaped
    return shaped != 0 if part.kind == "b" else shaped.long()


class _Replayed:
    """Numbers drawn beforehand, in the order in which a module draws them."""

    def __init__(self, drawn: Sequence[Tensor]) -> None:
        self._left = list(drawn)

    def __call__(self, shape: tuple[int, ...]) -> Tensor:
        if not self._left or self._left[0].shape != shape:
            raise _other_draws(f"one more of shape {shape}")
        return self._left.pop(0)

    def check_empty(self) -> None:
        """Refuse a call that has drawn less than the trial of its shape."""
        if self._left:
            raise _other_draws(f"{len(self._left)} fewer")


def _other_draws(got: str) -> InputError:
    return InputError(
        "model: expected the same random draws in every call in training, got "
        f"{got}. Let what is drawn depend on the shapes of inputs alone."
    )


def _stacked(forward_pass: ForwardPass) -> tuple[int, Mapping[str, Tensor]]:
    """Return the number of models, and their tensors, statistics of one for each."""
    tensors = forward_pass.tensors
    lengths = {len(tensor) for tensor in tensors.values()}
    models = max(lengths)
    if len(lengths) > 1:
        tensors = {n: t.expand(models, *t.shape[1:]) for n, t in tensors.items()}
    return models, tensors


def _rows(stacked: Tensor) -> Sequence[Tensor]:
    return (stacked.squeeze(0),) if len(stacked) == 1 else stacked.unbind()


def _drawn(forward_pass: ForwardPass, seen: Observed, models: int) -> list[Tensor]:
    """Return the numbers (M, ...) that a call in training draws.

    They are drawn beforehand, for nothing can be drawn for each model within vmap.
    """
    if forward_pass.draw is None:
        return []
    drawn = [forward_pass.draw(shape) for shape in seen.shapes]
    return [d.expand(models, *d.shape[1:]) for d in drawn]


def _leaves_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {n: t.detach().clone().requires_grad_() for n, t in tensors.items()}


def _are_equal(first: Tensor, second: Tensor) -> bool:
    """Return whether tensors are equal, of which NaN is no change."""
    if first.shape != second.shape:
        return False
    return bool(((first == second) | ((first != first) & (second != second))).all())


def _moved(buffer: Tensor, like: Tensor) -> Tensor:
    if buffer.is_floating_point():
        return buffer.to(like.device, like.dtype)
    return buffer.to(like.device)
