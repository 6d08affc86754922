"""Causes of ill-defined curvature of a module, refused by name with the remedy.

So are layers and losses that torch cannot derive as often, or in the mode, as is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from torch.utils.data import (
    DataLoader,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from curvflow.errors import InputError, summary
from curvflow.tasks.numerics.derivatives.differentiation_modes import (
    has_reverse_mode,
    is_coarse,
    parted,
)
from curvflow.tasks.numerics.derivatives.precision import differentiable, reroute
from curvflow.tasks.numerics.watched_calls import OWN_GRADIENT, is_of_own_gradient

Cause = Literal[
    "generator", "shuffle", "changing_data", "dropout", "batch_norm", "nondeterminism"
]
# Whether a layer, called so, has derivatives of some kind.
Has = Callable[[nn.Module, tuple[Any, ...], Mapping[str, Any]], bool]
_SHUFFLING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


def check(
    module: nn.Module,
    batches: Iterable[Any],
    compute: Callable[[Any], Tensor],
    allow: Collection[Cause],
) -> None:
    """Refuse what would make two equal products differ, or mix samples unasked.

    Args:
        module: as it will be called.
        batches: as they will be read.
        compute: outputs of a batch.
        allow: causes that are let through; of a generator there is no second reading,
            so it is refused all the same.

    Raises:
        InputError: `allow` names no cause, or a cause is found; it is named.
    """
    if unknown := set(allow) - set(get_args(Cause)):
        raise InputError(
            f"allow: expected some of {', '.join(get_args(Cause))}, got "
            f"{', '.join(sorted(unknown))}. Name the cause as the refusal does."
        )
    if iter(batches) is batches:
        raise InputError(
            "data (generator): expected batches that can be read again, got "
            f"{type(batches).__name__}, which ends after one reading. Pass a list or a "
            "DataLoader."
        )
    for cause, fault in _causes(module, batches, compute, allow):
        raise InputError(f"{fault} Or go on all the same: allow '{cause}'.")


def _causes(
    module: nn.Module,
    batches: Iterable[Any],
    compute: Callable[[Any], Tensor],
    allow: Collection[Cause],
) -> Iterator[tuple[Cause, str]]:
    looks: dict[Cause, Callable[[], str]] = {
        "shuffle": lambda: _shuffle(batches),
        "dropout": lambda: _dropout(module),
        "batch_norm": lambda: _batch_norm(module),
        "changing_data": lambda: _changing(batches, in_order="shuffle" in allow),
        "nondeterminism": lambda: _nondeterminism(batches, compute),
    }
    for cause, look in looks.items():
        if cause not in allow and (fault := look()):
            yield cause, fault


def _shuffle(batches: Iterable[Any]) -> str:
    sampler = _shuffler(batches)
    if sampler is None:
        return ""
    return (
        "data (shuffle): expected one order at every reading, got a DataLoader with a "
        f"{type(sampler).__name__}. Make it with shuffle=False."
    )


def _shuffler(batches: Iterable[Any]) -> object | None:
    """Return what draws a loader's order, or None."""
    if not isinstance(batches, DataLoader):
        return None
    inner = getattr(batches.batch_sampler, "sampler", batches.sampler)
    return inner if isinstance(inner, _SHUFFLING) else None


def _permutes(batches: Iterable[Any]) -> bool:
    """Return whether a loader reads the same samples each time, in another order."""
    sampler: Any = _shuffler(batches)
    loader = cast("DataLoader[Any]", batches)
    if sampler is None or loader.batch_size is None:
        return False
    if loader.drop_last and len(sampler) % loader.batch_size:
        return False
    if isinstance(sampler, RandomSampler):
        whole = len(cast("Any", sampler.data_source))
        return not sampler.replacement and sampler.num_samples == whole
    return isinstance(sampler, SubsetRandomSampler)


def _changing(batches: Iterable[Any], *, in_order: bool) -> str:
    def read() -> object:
        if in_order and _permutes(batches):
            return _first_rows(cast("DataLoader[Any]", batches))
        return next(iter(batches), None)

    first, second = (_tensors(read()) for _ in range(2))
    if len(first) == len(second) and all(map(_are_equal, first, second)):
        return ""
    return (
        "data (changing_data): expected the same first batch at every reading, got "
        "another at the second. Take away random augmentation and sampling."
    )


def _first_rows(loader: DataLoader[Any]) -> object:
    """Return a batch of the first samples of a loader that draws its order."""
    data: Any = loader.dataset
    rows = getattr(loader.sampler, "indices", range(len(data)))[: loader.batch_size]
    return loader.collate_fn([data[row] for row in rows])


def _are_equal(first: Tensor, second: Tensor) -> bool:
    if first.shape != second.shape:
        return False
    # NaN is no change; others refuse it.
    return bool(((first == second) | ((first != first) & (second != second))).all())


def _tensors(batch: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor)]


def _dropout(module: nn.Module) -> str:
    for name, layer in module.named_modules():
        if layer.training and _chance(layer) > 0:
            return (
                "module (dropout): expected the same outputs at every call, got "
                f"{_shown(name, layer)} in training. Call eval() on it, or set its "
                "probability to 0."
            )
    return ""


def _chance(layer: nn.Module) -> float:
    if isinstance(layer, _DropoutNd):
        return float(layer.p)
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
        return float(layer.dropout)
    return 0.0


def _batch_norm(module: nn.Module) -> str:
    for name, layer in module.named_modules():
        mixes = layer.training or getattr(layer, "running_mean", None) is None
        if isinstance(layer, _BatchNorm) and mixes:
            return (
                "module (batch_norm): expected samples that do not meet, got "
                f"{_shown(name, layer)} with the statistics of each batch. Call eval() "
                "on it to take the running ones."
            )
    return ""


def _nondeterminism(batches: Iterable[Any], compute: Callable[[Any], Tensor]) -> str:
    batch = next(iter(batches), None)
    with torch.no_grad():
        first, second = compute(batch), compute(batch)
    if torch.allclose(first, second, rtol=1e-5, equal_nan=True):
        return ""
    return (
        "module (nondeterminism): expected equal outputs for equal inputs, got others "
        f"at the second call, by up to {float((first - second).abs().max()):.2g}. "
        "Remove what draws at random or keeps a state between calls."
    )


def _shown(name: str, layer: nn.Module) -> str:
    return f"{type(layer).__name__} at '{name}'" if name else type(layer).__name__


def check_unchanged(
    module: nn.Module,
    weights: Iterable[Tensor],
    field: str = "module",
    *,
    on_any: bool = False,
) -> None:
    """Refuse layers that overwrite weights.

    Args:
        module: as it will be called.
        weights: that are derived by, and may move.
        field: what the module is called in messages.
        on_any: whether it will be called on any tokens, so that no other rows may be
            longer either.

    Raises:
        InputError: an embedding has a `max_norm`, and rows that are longer or may
            become so; it is named.
    """
    derived = {id(weight) for weight in weights}
    for name, layer in _limited(module):
        if id(layer.weight) in derived or (on_any and _shortens(layer, layer.weight)):
            raise InputError(_rescaled(field, name, layer))


def check_buffers(module: nn.Module, before: Iterable[str], field: str) -> None:
    """Refuse a module whose call has removed buffers.

    Args:
        module: behind the call.
        before: names of its buffers before it.
        field: name of the argument, for messages.

    Raises:
        InputError: one is gone.
    """
    left = {name for name, _ in module.named_buffers(remove_duplicate=False)}
    refuse_gone((name for name in before if name not in left), field)


def refuse_gone(gone: Iterable[str], field: str) -> None:
    """Refuse a module whose call has removed buffers.

    Args:
        gone: their names; none is well.
        field: name of the argument, for messages.

    Raises:
        InputError: there is one.
    """
    if name := next(iter(gone), ""):
        raise InputError(
            f"{field}: expected buffers that a call leaves there, got '{name}' that "
            "forward removes. Keep it there, or hold it as a plain attribute."
        )


@contextmanager
def rows_kept(module: nn.Module) -> Iterator[None]:
    """Refuse calls of a module within the block that would shorten rows.

    Args:
        module: within which an embedding may have a `max_norm`.

    Yields:
        Nothing.

    Raises:
        InputError: a row that is looked up is longer; its layer is named.
    """

    def look(name: str, layer: Any, args: Any, kwargs: Any) -> None:
        ids = args[0] if args else kwargs["input"]
        if _shortens(layer, layer.weight.detach()[ids.unique()]):
            raise InputError(_rescaled("module", name, layer))

    hooks = [
        layer.register_forward_pre_hook(partial(look, name), with_kwargs=True)
        for name, layer in _limited(module)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _limited(
    module: nn.Module,
) -> Iterator[tuple[str, nn.Embedding | nn.EmbeddingBag]]:
    """Yield the embeddings of a module that limit the lengths of rows."""
    for name, layer in module.named_modules():
        is_embedding = isinstance(layer, nn.Embedding | nn.EmbeddingBag)
        if is_embedding and layer.max_norm is not None:
            yield name, layer


def _rescaled(field: str, name: str, layer: nn.Embedding | nn.EmbeddingBag) -> str:
    return (
        f"{field}: expected weights that a call leaves as they are, got "
        f"{_shown(name, layer)} with max_norm {layer.max_norm:g}, which rescales its "
        "rows in place. Call it once on all tokens, and set its max_norm to None."
    )


def _shortens(layer: nn.Embedding | nn.EmbeddingBag, rows: Tensor) -> bool:
    """Return whether an embedding shortens rows, (R, C), as it looks them up."""
    assert layer.max_norm is not None
    with torch.no_grad():
        copy, numbers = rows.clone(), torch.arange(len(rows), device=rows.device)
        torch.embedding_renorm_(copy, numbers, layer.max_norm, layer.norm_type)
        return not torch.equal(copy, rows)


def check_unscaled(module: nn.Module, weights: Iterable[Tensor]) -> None:
    """Refuse layers whose gradients are no derivatives.

    Args:
        module: as it will be called.
        weights: that are derived by.

    Raises:
        InputError: an embedding has `scale_grad_by_freq`; it is named.
    """
    derived = {id(weight) for weight in weights}
    for name, layer in module.named_modules():
        if not isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            continue
        if layer.scale_grad_by_freq and id(layer.weight) in derived:
            raise InputError(
                "module: expected gradients that are derivatives, got those of "
                f"{_shown(name, layer)} with scale_grad_by_freq, which are divided by "
                "counts of a batch. Set its scale_grad_by_freq to False: the loss and "
                "its curvature are the same."
            )


def first_layer_without(
    module: nn.Module, call: Callable[[], object], has: Has, *, whole: bool = False
) -> str:
    """Return the first layer of a module without derivatives, or "".

    Args:
        module: whose layers are looked at, those within others first.
        call: calls it.
        has: says it of a layer and what it was called with.
        whole: whether the module itself is looked at, after its layers.

    Returns:
        Its class and its name, such as `GRU at 'encoder.0'`.
    """
    calls: list[tuple[str, nn.Module, tuple[Any, ...], dict[str, Any]]] = []

    def noting(name: str) -> Callable[..., None]:
        def note(layer: nn.Module, args: Any, kwargs: Any, outputs: Any) -> None:
            varies = _is_real_in(args) or any(True for _ in layer.parameters())
            if varies and _is_real_in(outputs):
                calls.append((name, layer, args, kwargs))

        return note

    hooks = [
        layer.register_forward_hook(noting(name), with_kwargs=True)
        for name, layer in module.named_modules()
    ]
    try:
        with torch.no_grad(), differentiable():
            call()
    # It is a remark on a failure, and must not hide it.
    except Exception:
        return ""
    finally:
        for hook in hooks:
            hook.remove()
    for name, layer, args, kwargs in calls:
        if (name or whole) and not has(layer, args, kwargs):
            return _shown(name, layer)
    return ""


def check_by_hand(
    module: nn.Module, call: Callable[[], Tensor], loss: Callable[[Tensor], Tensor]
) -> None:
    """Refuse functions written by hand whose gradients are not derived as they change.

    Args:
        module: whose layers are looked at.
        call: its outputs, of a batch.
        loss: scalar, of the outputs.

    Raises:
        InputError: a product with second derivatives is not the difference of two
            gradients; its layer is named, or the loss.
    """
    layer = first_layer_without(module, call, _is_derived_rightly, whole=True)
    if not layer and _has(_is_derived_rightly, loss, call):
        return
    raise InputError(
        "module: expected second derivatives that are changes of the gradient, got "
        f"others of {layer or 'the loss'}. Correct the backward of its function, which "
        "takes what is saved for it, and no detach() or NumPy; or take ggn."
    )


def has_forward_derivatives(
    layer: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """Return whether a layer's gradient can be derived forward."""
    size, *at = _size_of(layer, args, kwargs)
    along = tree_map(torch.ones_like, at)
    try:
        with differentiable():
            jvp(grad(size, argnums=(0, 1)), tuple(at), tuple(along))
    # Layers lack derivatives in many ways.
    except Exception:
        return False
    return True


def has_second_derivatives(
    layer: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """Return whether a layer's gradient can be derived back, and rightly so."""
    try:
        return _is_its_difference(layer, args, kwargs)
    # Layers lack derivatives in many ways.
    except Exception:
        return False


def _is_derived_rightly(
    layer: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """Return whether a layer's gradient is derived rightly, or cannot be compared."""
    try:
        if _is_its_difference(layer, args, kwargs):
            return True
        with differentiable():
            return is_coarse(*_of_all(layer, args, kwargs))
    # Functions written by hand may take no double precision.
    except Exception:
        return True


def _is_its_difference(
    layer: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """Return whether the derivative of a layer's gradient is how that changes."""
    with differentiable():
        return has_reverse_mode(*_of_all(layer, args, kwargs))


def _of_all(
    layer: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return a layer's size as a function of one vector in double, and that."""
    size, parameters, given = _size_of(layer, args, kwargs)
    buffers = {n: b.double() for n, b in layer.named_buffers() if _is_real(b)}
    leaves, form = tree_flatten((parameters, given))
    shapes = [leaf.shape for leaf in leaves]
    at = torch.cat([leaf.double().flatten() for leaf in leaves])

    def of_all(at: Tensor) -> Tensor:
        parameters, inputs = tree_unflatten(parted(at, shapes), form)
        return size(parameters | buffers, inputs)

    return of_all, at


def _size_of(
    layer: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Callable[..., Tensor], dict[str, Tensor], list[Tensor]]:
    """Return a layer's size as a function of parameters and inputs, and these."""
    given, form = tree_flatten(args)
    varied = [n for n, leaf in enumerate(given) if _is_real(leaf)]
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def size(tensors: dict[str, Tensor], leaves: list[Tensor]) -> Tensor:
        whole = list(given)
        for n, leaf in zip(varied, leaves, strict=True):
            whole[n] = leaf
        # Copies, for a call may change them.
        buffers = {name: b.clone() for name, b in layer.named_buffers()}
        outputs = functional_call(
            layer, buffers | tensors, tree_unflatten(whole, form), dict(kwargs)
        )
        squares = [
            leaf.square().sum() for leaf in tree_leaves(outputs) if _is_real(leaf)
        ]
        return torch.stack(squares).sum()

    return size, parameters, [given[n].detach() for n in varied]


def _is_real_in(tree: Any) -> bool:
    return any(_is_real(leaf) for leaf in tree_leaves(tree))


def _is_real(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()


# What torch says where it lacks a derivative, or parameters may not be views.
_LACKS = (
    *("derivative", "forward ad", "differentiat", "functorch", "vmap"),
    *("batching rule", "is a view", "storage", "inplace", "in-place"),
    # A graph that a module has freed by a gradient of its own.
    "a second time",
)


def is_of_derivatives(error: BaseException) -> bool:
    """Return whether torch has said that it cannot derive something."""
    is_torch = isinstance(error, RuntimeError)
    is_full = isinstance(error, torch.OutOfMemoryError)
    said = str(error).lower()
    return is_torch and not is_full and any(words in said for words in _LACKS)


def without_derivatives(
    module: nn.Module,
    call: Callable[[], Tensor],
    loss: Callable[[Tensor], Tensor],
    *,
    name: str,
    error: BaseException,
) -> InputError:
    """Return the refusal of what torch cannot derive, by the name of layer or loss.

    Args:
        module: whose layers are looked at.
        call: its outputs, of a batch.
        loss: scalar, of the outputs.
        name: of the loss.
        error: what torch has said.
    """
    said = summary(error).rstrip(".")
    replaced = "Replace that layer"
    if is_of_own_gradient(error):
        replaced = f"Let it {OWN_GRADIENT}, or replace it"
    for order, has in _ORDERS.items():
        if layer := first_layer_without(module, call, has, whole=True):
            return InputError(
                f"module: expected {order} derivatives, got {layer} without them "
                f"({said}). {replaced}{_INSTEAD[order]}."
            )
        if not _has(has, loss, call):
            return InputError(
                f"loss: expected {order} derivatives, got {name} without them "
                f"({said}). Take another loss{_INSTEAD[order]}."
            )
    return InputError(
        f"module: expected derivatives of all that it computes, got {said}. Replace "
        "the function that lacks them."
    )


class _Scalar(nn.Module):
    """A loss as a layer."""

    def __init__(self, loss: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._loss = loss

    def forward(self, outputs: Tensor) -> Tensor:
        return self._loss(outputs)


def _has(
    has: Has, loss: Callable[[Tensor], Tensor], call: Callable[[], Tensor]
) -> bool:
    with torch.no_grad(), differentiable():
        outputs = call()
    return has(_Scalar(loss), (outputs.detach(),), {})


def _derives(
    times: int, layer: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """Return whether a layer can be derived back once or twice, right or wrong."""
    size, parameters, given = _size_of(layer, args, kwargs)
    leaves = [leaf.clone().requires_grad_() for leaf in (*parameters.values(), *given)]
    handles = reroute(layer)  # as it is called in products
    try:
        with differentiable(), torch.enable_grad():
            # Parameters are views of a vector in products; inputs may be overwritten.
            views = [leaf.unsqueeze(0).unbind(0)[0] for leaf in leaves]
            slope = size(
                dict(zip(parameters, views, strict=False)),
                [view.clone() for view in views[len(parameters) :]],
            )
            for number in range(times if leaves else 0):
                if not slope.requires_grad:
                    break
                slopes = torch.autograd.grad(
                    slope,
                    leaves,
                    create_graph=number + 1 < times,
                    materialize_grads=True,
                )
                slope = torch.stack([part.sum() for part in slopes]).sum()
    # Layers lack derivatives in many ways.
    except Exception:
        return False
    finally:
        for handle in handles:
            handle.remove()
    return True


_ORDERS: dict[str, Has] = {
    "first": partial(_derives, 1),
    "second": partial(_derives, 2),
    "forward": has_forward_derivatives,
}
_GRADIENTS = (
    ", or take what needs gradients alone: fisher of the kind empirical, "
    "gradient_covariance, or llc with calibrate none"
)
_INSTEAD = {
    "first": "",
    "second": _GRADIENTS,
    "forward": f"{_GRADIENTS}; of a Hessian another order may do",
}
