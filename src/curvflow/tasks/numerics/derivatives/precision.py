"""Full precision of products, and routes through torch that have all derivatives."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Self, TypeGuard, cast

import torch
from torch import Tensor, nn

# No public name has these sums of products and activations.
from torch._decomp.decompositions import gru_impl, lstm_impl
from torch.autograd import forward_ad
from torch.func import jvp
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import embedding, linear
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.weight_norm import WeightNorm
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from curvflow.tasks.numerics.recomputation import computed_once


@contextmanager
def full_precision() -> Iterator[None]:
    """Switch TF32 off for matrix products and convolutions within the block.

    So is cuDNN as a whole, some of whose layers lack derivatives.

    Examples:
        >>> from curvflow.tasks.numerics import full_precision
        >>> import torch
        >>> with full_precision():
        ...     torch.get_float32_matmul_precision()
        'highest'
    """
    cudnn = torch.backends.cudnn
    # Where there is none its flags say nothing, and take as long as a small layer.
    is_there = cudnn.is_available()  # type: ignore[no-untyped-call] # torch has no types
    off = cudnn.flags(enabled=False, allow_tf32=False) if is_there else nullcontext()
    with _highest_precision(), off:
        yield


@contextmanager
def without_tf32() -> Iterator[None]:
    """Switch TF32 off, which cuDNN's convolutions take by default, within the block.

    cuDNN stays as it is, but takes what has the same bits at each call.
    """
    cudnn = torch.backends.cudnn
    plain = cudnn.flags(enabled=cudnn.enabled, deterministic=True, allow_tf32=False)
    with _highest_precision(), plain:
        yield


@contextmanager
def _highest_precision() -> Iterator[None]:
    """Switch TF32 off for matrix products within the block."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def differentiable() -> Iterator[None]:
    """Take attention's plain routes, and switch TF32 off, within the block.

    Fused attention has no second and no forward derivatives, nor has the fast path of
    transformer layers, which torch takes where it sees no gradient wanted. Activations
    are computed once.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with full_precision(), sdpa_kernel(SDPBackend.MATH), computed_once():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


# Made anew at each look, but equal.
_DATA = cast("Any", Tensor.data).__get__


class StepByStep(TorchFunctionMode):
    """Recurrent layers by products and activations, within the block.

    On a GPU torch fuses the steps of LSTM and GRU, also where cuDNN is switched off.
    Fused functions have no forward derivatives (2.13). Packed sequences stay so.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call what stands for a function, or the function."""
        is_packed = len(args) > 3 and isinstance(args[3], list)
        if func is torch.lstm and not is_packed:
            func = lstm_impl
        elif func is torch.gru and not is_packed:
            func = gru_impl
        elif func is torch.lstm_cell:
            func = _lstm_cell
        elif func is torch.gru_cell:
            func = _gru_cell
        return func(*args, **(kwargs or {}))


class _StopsForward(TorchFunctionMode):
    """Forward derivatives stop where gradients are switched off, within the block.

    So do derivatives of all levels at `.data`, which torch takes away from the last,
    and at the padding of a table of rows.
    """

    def __enter__(self) -> Self:
        self._before = torch._C._is_fwd_grad_enabled()
        super().__enter__()  # type: ignore[no-untyped-call] # torch has no types
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call] # as above
        torch._C._set_fwd_grad_enabled(self._before)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function, and switch both kinds of derivatives where it does one."""
        if func is torch._C._set_grad_enabled:
            torch._C._set_fwd_grad_enabled(args[0] and self._before)
        elif func == _DATA:
            return args[0].detach()
        elif func is embedding:
            return _padded(*args, **(kwargs or {}))
        elif func is torch.embedding:
            return _padded_rows(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _padded(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    """Return rows of a table as `F.embedding` does, of its padding as constants."""
    rows = embedding(input, weight, padding_idx, *args, **kwargs)
    if padding_idx is None:
        return rows
    return padding_stopped(rows, input, padding_idx % len(weight))


def _padded_rows(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, *args: Any, **kwargs: Any
) -> Tensor:
    """Return the same as `torch.embedding` does, whose -1 is no padding."""
    rows = torch.embedding(weight, indices, padding_idx, *args, **kwargs)
    return rows if padding_idx < 0 else padding_stopped(rows, indices, padding_idx)


def padding_stopped(rows: Tensor, ids: Tensor, padding: int) -> Tensor:
    """Return rows of a table, those of its padding as constants.

    Args:
        rows: of each token.
        ids: of the tokens.
        padding: the token whose row is never moved.
    """
    return torch.where((ids == padding).unsqueeze(-1), rows.detach(), rows)


def stops_respected() -> AbstractContextManager[object]:
    """Stop derivatives where a module or a loss stops those back, within the block.

    As by `torch.no_grad()`, within which torch goes on with forward ones, by `.data`,
    behind which it goes on with all derivatives but the last, or by a `padding_idx`,
    whose row forward ones count (2.13). Any call may do so, and any other not: all in
    which they are taken are watched.

    Returns:
        The block; it does nothing where no forward derivatives are taken, and none of
        derivatives by `torch.func`.
    """
    # Of which no public name tells.
    is_forward = forward_ad._current_level >= 0
    return _StopsForward() if is_forward or _derives_twice() else nullcontext()


def _derives_twice() -> bool:
    """Return whether derivatives of derivatives are taken by `torch.func`."""
    if torch.compiler.is_compiling():
        return False
    levels = torch._C._functorch.get_interpreter_stack() or ()
    kind = torch._C._functorch.TransformType
    return sum(level.key() in (kind.Grad, kind.Jvp) for level in levels) > 1


def derivative_along(
    function: Callable[[Tensor], Tensor], at: Tensor, column: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the values of a function, and their derivative along a vector."""
    # So that what a module switches off is told from what a caller has.
    with torch.enable_grad():
        values, tangent, *_ = jvp(function, (at,), (column,))
    return values, tangent


def fuses_steps(module: nn.Module, device: torch.device) -> bool:
    """Return whether a module has layers whose steps torch fuses on a device."""
    kinds = nn.RNNBase | nn.RNNCellBase
    return device.type != "cpu" and any(isinstance(m, kinds) for m in module.modules())


def _lstm_cell(
    x: Tensor,
    state: tuple[Tensor, Tensor],
    from_x: Tensor,
    from_hidden: Tensor,
    bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    hidden, cell = state
    gates = linear(x, from_x, bias) + linear(hidden, from_hidden, hidden_bias)
    enters, stays, new, leaves = gates.chunk(4, 1)
    cell = stays.sigmoid() * cell + enters.sigmoid() * new.tanh()
    return leaves.sigmoid() * cell.tanh(), cell


def _gru_cell(
    x: Tensor,
    hidden: Tensor,
    from_x: Tensor,
    from_hidden: Tensor,
    bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> Tensor:
    resets, stays, new = linear(x, from_x, bias).chunk(3, 1)
    parts = linear(hidden, from_hidden, hidden_bias).chunk(3, 1)
    new = (new + (resets + parts[0]).sigmoid() * parts[2]).tanh()
    return new + (stays + parts[1]).sigmoid() * (hidden - new)


def reroute(module: nn.Module) -> list[RemovableHandle]:
    """Call layers whose derivatives torch has wrong (2.13) in another way.

    - An embedding with a padding: its row has no gradient, and is not trained, but
      forward derivatives count it. Tokens of that row are taken as constants.
    - A group norm of inputs that are not contiguous, as attention leaves them: its
      gradient has no forward derivatives. They are copied.
    - A batch norm of one sample's images: on a CPU it misreads what comes back in other
      strides, as through a transposition. Their places are put in a row. What a
      subclass calls in its own `forward`, or `F.batch_norm`, stays as it is.
    - A weight norm: it has no forward derivatives, and second ones by reverse mode lack
      a term. It is written out.
    - An embedding, or bags of it, whose gradient is that of some rows alone: products
      take all of it.
    - A recurrent layer with a parametrization: it looks whether its weights are others
      than before, and if so computes fewer of them anew, by which spectral norms move.

    Args:
        module: whose layers these are.

    Returns:
        Handles of the layers, but for those that have theirs; each may be removed.
    """
    handles: list[RemovableHandle] = []
    for layer in module.modules():
        handles += _rerouted_weights(layer)
        if isinstance(layer, _WeightNorm) and not any(
            isinstance(hook, _WrittenOut) for hook in layer._forward_hooks.values()
        ):
            written = _WrittenOut()
            handles.append(layer.register_forward_pre_hook(written.take))
            handles.append(layer.register_forward_hook(written))
        pads = isinstance(layer, nn.Embedding) and layer.padding_idx is not None
        if pads and _without_padding not in layer._forward_hooks.values():
            hook = layer.register_forward_hook(_without_padding, with_kwargs=True)
            handles.append(hook)
        is_norm = isinstance(layer, nn.GroupNorm)
        if is_norm and _contiguous not in layer._forward_pre_hooks.values():
            hook = layer.register_forward_pre_hook(_contiguous, with_kwargs=True)
            handles.append(hook)
        is_watching = isinstance(layer, nn.RNNBase) and is_parametrized(layer)
        if is_watching and _as_before not in layer._forward_pre_hooks.values():
            handles.append(layer.register_forward_pre_hook(_as_before))
        if _is_norm_of_images(layer):
            handles.append(cast("RemovableHandle", _CalledInARow(layer)))
    return handles


def _rerouted_weights(layer: nn.Module) -> Iterator[RemovableHandle]:
    """Yield hooks for weights that a hook sets, and for gradients of rows alone."""
    for hook in layer._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm) and "compute_weight" not in vars(hook):
            yield cast("RemovableHandle", _WeightWrittenOut(hook))
    is_sparse = isinstance(layer, nn.Embedding) and layer.sparse
    if is_sparse and _of_all_rows not in layer._forward_hooks.values():
        yield layer.register_forward_hook(_of_all_rows, with_kwargs=True)
    if isinstance(layer, nn.EmbeddingBag) and layer.sparse:
        yield cast("RemovableHandle", _OfAllRows(layer))


class _OfAllRows:
    """Handle of bags whose gradients are of all rows."""

    def __init__(self, bags: nn.EmbeddingBag) -> None:
        self._bags = bags
        bags.sparse = False

    def remove(self) -> None:
        self._bags.sparse = True


class _WeightWrittenOut:
    """Handle of a `torch.nn.utils.weight_norm` that writes the weight out."""

    def __init__(self, norm: WeightNorm) -> None:
        self._norm = norm
        vars(norm)["compute_weight"] = self._weight

    def _weight(self, layer: nn.Module) -> Tensor:
        length, direction = (
            getattr(layer, f"{self._norm.name}_{part}") for part in ("g", "v")
        )
        return _scaled(length, direction, self._norm.dim)

    def remove(self) -> None:
        vars(self._norm).pop("compute_weight", None)


def _of_all_rows(
    layer: nn.Embedding, args: tuple[Any, ...], kwargs: dict[str, Any], _: Tensor
) -> Tensor:
    (ids,) = (*args, *kwargs.values())
    return embedding(ids, layer.weight, layer.padding_idx)


def _without_padding(
    layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], rows: Tensor
) -> Tensor:
    (ids,) = (*args, *kwargs.values())
    return padding_stopped(rows, ids, cast("int", layer.padding_idx))


class _WrittenOut:
    """Hooks by which a weight norm is called with constants, and what it is instead."""

    def take(self, _: nn.Module, args: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        self._length, self._direction = args
        return self._length.detach(), self._direction.detach()

    def __call__(self, layer: nn.Module, _: object, __: Tensor) -> Tensor:
        length, direction = self._length, self._direction
        del self._length, self._direction
        return _scaled(length, direction, cast("int", layer.dim))


def _as_before(layer: nn.RNNBase, _: object) -> None:
    """Let a recurrent layer take plain weights for those of its last call."""
    # Of no public names, and compared at each call.
    names, seen = layer._flat_weights_names, layer._flat_weight_refs
    now = [layer._parameters.get(name) for name in names]
    layer._flat_weight_refs = [
        before if weight is None else weakref.ref(weight)
        for before, weight in zip(seen, now, strict=True)
    ]


def _is_norm_of_images(layer: nn.Module) -> TypeGuard[_BatchNorm]:
    """Return whether a layer is a batch norm of images that is called as torch's is."""
    if not isinstance(layer, nn.BatchNorm2d | nn.BatchNorm3d):
        return False
    return type(layer).forward is _BatchNorm.forward and "forward" not in vars(layer)


class _CalledInARow:
    """Handle of a batch norm that is called with the places of one sample in a row.

    Its hooks see inputs and outputs as they are.
    """

    def __init__(self, norm: _BatchNorm) -> None:
        self._norm = norm
        vars(norm)["forward"] = partial(_in_a_row, norm)

    def remove(self) -> None:
        vars(self._norm).pop("forward", None)


def _in_a_row(norm: _BatchNorm, input: Tensor) -> Tensor:  # by torch's name of it
    if input.ndim <= 3 or len(input) != 1:
        return _BatchNorm.forward(norm, input)
    norm._check_input_dim(input)  # type: ignore[no-untyped-call] # torch has no types
    vars(norm)["_check_input_dim"] = _any_shape
    try:
        return _BatchNorm.forward(norm, input.flatten(2)).reshape(input.shape)
    finally:
        vars(norm).pop("_check_input_dim")


def _any_shape(_: Tensor) -> None:
    """Take inputs of any number of sides."""


def _scaled(length: Tensor, direction: Tensor, dim: int) -> Tensor:
    """Return directions at lengths, by all dimensions but one, or by all for -1."""
    kept = None if dim == -1 else dim % direction.ndim
    rest = [d for d in range(direction.ndim) if d != kept]
    return direction * (length / direction.square().sum(rest, keepdim=True).sqrt())


def _contiguous(
    _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    named = {name: given.contiguous() for name, given in kwargs.items()}
    return tuple(given.contiguous() for given in args), named
