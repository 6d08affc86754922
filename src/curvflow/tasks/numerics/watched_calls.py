"""A call of a module, watched for effects that are no function of its weights.

Derivatives are taken of a module as a function of the tensors that it has registered.
What it holds of them elsewhere, writes into them, or does to gradients on their way
back, is no part of that function, and would be left out without a word.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd import Variable
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from curvflow.errors import InputError, summary
from curvflow.tasks.numerics.autograd_nodes import nodes_of

# From leaves that stand for parameters, by name, to outputs.
Call = Callable[[Mapping[str, Tensor]], object]

# Made anew at each look, but equal.
_DATA = cast("Any", Tensor.data)
_READS, _WRITES = _DATA.__get__, _DATA.__set__


def check_call(
    module: nn.Module,
    field: str,
    leaves: Mapping[str, Tensor],
    call: Callable[[], object],
    *,
    is_whole: bool,
    frozen: Mapping[str, Tensor] | None = None,
) -> bool:
    """Refuse a module whose call is no function of its weights.

    Args:
        module: whose own parameters are those that the leaves stand for.
        field: what the module is called in messages.
        leaves: that stand for parameters, by name; they require a gradient, and none
            has been written into.
        call: returns the outputs at the leaves.
        is_whole: whether the leaves are all that is trained.
        frozen: further parameters, by name; none has been written into.

    Returns:
        Whether the module's own tensors are taken as gradients are: layers are called
        in a backward written by hand.

    Raises:
        InputError: the call takes a parameter from elsewhere than its place, or what
            is none and requires a gradient; writes into one; or changes gradients by a
            hook. Whatever else goes wrong is left to others.
    """
    watch = _Watch()
    with torch.enable_grad(), _layers_watched(module, watch):
        try:
            with watch:
                outputs = call()
        except InputError:
            raise
        # A module raises whatever it likes, and is tried where its outputs are needed.
        except Exception:
            outputs = None
        _check_written(field, {**leaves, **(frozen or {})}, watch)
        if not isinstance(outputs, Tensor) or not outputs.requires_grad:
            return False
        known = {id(leaf) for leaf in leaves.values()} | watch.made
        _check_leaves(module, field, leaves, outputs, known=known, is_whole=is_whole)
        named = dict(module.named_buffers()) | dict(module.named_parameters())
        later = _Changed(named, _as_they_are)
        _derive(field, outputs, leaves, later)
    _check_hooks(field, watch)
    return bool(later.given)


def check_memory(
    field: str,
    call: Call,
    twin: Call,
    another: Callable[[], Call],
    leaves: Mapping[str, Tensor],
) -> None:
    """Refuse a module that keeps for a later call what it has computed from weights.

    Args:
        field: what the module is called in messages.
        call: its outputs at leaves.
        twin: as the call, of another instance that has not been called.
        another: returns one more.
        leaves: that stand for parameters, by name.

    Raises:
        InputError: outputs are others once the twin has been called at other weights.
            Whatever else goes wrong is left to others.
    """
    outputs = _tried(partial(call, leaves))
    _tried(lambda: twin({name: _other(leaf) for name, leaf in leaves.items()}))
    if not _differ(outputs, _tried(partial(twin, leaves))):
        return
    if _differ(outputs, _tried(lambda: another()(leaves))):
        # What instances that are made alike do not agree on is no memory.
        return
    raise InputError(
        f"{field}: expected outputs at weights that do not depend on earlier "
        "calls, got others after a call at other weights. Keep nothing that "
        "forward computes from weights for a later call, as a cache does."
    )


def check_places(
    field: str, call: Callable[[], object], tensors: Mapping[str, Tensor]
) -> None:
    """Refuse a module that takes values from tensors for which a call has others.

    Args:
        field: what the module is called in messages.
        call: returns its outputs; it has other tensors of the same values in the
            places of the module's own.
        tensors: the module's own, by name.

    Raises:
        InputError: outputs depend on one of them. Whatever else goes wrong is left to
            others.
    """
    outputs = _tried(call)
    read = _changing(call, outputs, tensors)
    if not read or _differ(outputs, _tried(call)):
        return
    for name in read:
        if _changing(call, outputs, {name: tensors[name]}):
            raise InputError(
                f"{field}: expected parameters and buffers that forward takes from "
                f"their layers, got '{name}' that it takes from elsewhere, as from a "
                "list, a dictionary or a detached copy of its own. Take it from its "
                "layer."
            )


class Slopes(NamedTuple):
    """A gradient, and which tensors functions took on the way to it.

    Attributes:
        values: of it, (D,); None if it cannot be taken, or nothing was read.
        read: names of a module's own tensors that a function was given.
        by: one of them, by whose values it is; "" of none.
    """

    values: object = None
    read: tuple[str, ...] = ()
    by: str = ""

    def is_wrong(self, right: object) -> bool:
        """Return whether another gradient is another, or could be taken alone."""
        if self.values is None:
            return right is not None
        return _differ(self.values, right)


def gradient_of(call: Call, leaves: Mapping[str, Tensor]) -> object:
    """Return a gradient of outputs, (D,), or None if it cannot be taken."""
    return _tried(partial(_slopes_of, call, leaves))


def slopes_watched(
    call: Call, leaves: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> Slopes:
    """Return a gradient of outputs, watched while it is taken.

    A backward that is written by hand may call layers, or take their weights: at that
    time, when the call is over, these have their own tensors again.

    Args:
        call: from leaves that stand for parameters to outputs.
        leaves: by name.
        tensors: the module's own, by name.
    """
    slopes = partial(_slopes_of, call, leaves)

    def changed(names: Iterable[str]) -> tuple[object, list[str]]:
        chosen = {name: tensors[name] for name in names}
        change = _Changed(chosen, _moved)
        return _tried(partial(_within, change, slopes)), change.given

    elsewhere, read = changed(tensors)
    if not read:
        return Slopes()
    values, by = _tried(slopes), ""
    if _differ(values, elsewhere) and not _differ(values, _tried(slopes)):
        by = next((n for n in read if _differ(values, changed([n])[0])), read[0])
    return Slopes(values, tuple(read), by)


def _slopes_of(call: Call, leaves: Mapping[str, Tensor]) -> Tensor:
    """Return the gradient of some sum of outputs by all leaves, (D,)."""
    with torch.enable_grad():
        roots = {name: leaf.detach().requires_grad_() for name, leaf in leaves.items()}
        outputs = call(roots)
        assert isinstance(outputs, Tensor)
        slopes = _slopes(outputs, roots.values())
    pairs = zip(roots.values(), slopes, strict=True)
    return torch.cat(
        [torch.zeros_like(t).flatten() if s is None else s.flatten() for t, s in pairs]
    )


def _slopes(outputs: Tensor, leaves: Iterable[Tensor]) -> tuple[Tensor | None, ...]:
    """Return the gradient of some sum of outputs by each leaf."""
    along = torch.ones_like(outputs) + outputs.detach().real.tanh()
    # Within what has a public name, no function is watched.
    slopes: tuple[Tensor | None, ...] = Variable._execution_engine.run_backward(
        (outputs,),
        (along,),
        False,
        False,
        tuple(leaves),
        allow_unreachable=True,
        accumulate_grad=False,
    )
    return slopes


def _changing(
    call: Callable[[], object], outputs: object, tensors: Mapping[str, Tensor]
) -> list[str]:
    """Return which tensors a call is given, if the outputs depend on their values."""
    change = _Changed(tensors, _other)
    changed = _tried(partial(_within, change, call))
    return change.given if _differ(outputs, changed) else []


def _within(mode: TorchFunctionMode, call: Callable[[], object]) -> object:
    with mode:
        return call()


class _Changed(TorchFunctionMode):
    """Functions see other values of some tensors, and of what shares their memory.

    Attributes:
        given: names of those that a function has been given, each once.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], change: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self._change = change
        real = {name: t for name, t in tensors.items() if t.is_floating_point()}
        self._names = {m: name for name, t in real.items() if (m := _memory(t))}
        self.given: list[str] = []

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function."""

        def changed(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor) or (memory := _memory(leaf)) is None:
                return leaf
            if (name := self._names.get(memory)) is None:
                return leaf
            self.given += [] if name in self.given else [name]
            return self._change(leaf)

        if func in _DERIVING or _tells_of_type(func, args):
            # It takes tensors of a graph, or their form, whatever their values.
            return func(*args, **(kwargs or {}))
        return func(*tree_map(changed, args), **tree_map(changed, dict(kwargs or {})))


def _tells_of_type(func: Any, args: tuple[Any, ...]) -> bool:
    """Return whether a function is an attribute such as a device, and no values."""
    is_attribute = getattr(func, "__name__", "") == "__get__"
    return is_attribute and not isinstance(func(*args), Tensor)


_DERIVING = (torch.autograd.grad, torch.autograd.backward, Tensor.backward)


def _memory(tensor: Tensor) -> int | None:
    """Return where the values of a tensor are; None of one that has no place."""
    try:
        return tensor.untyped_storage().data_ptr() or None
    # Tensors within transforms, and those without values, have none.
    except (RuntimeError, NotImplementedError):
        return None


def instance_of(module: nn.Module, tensors: Iterable[Tensor]) -> nn.Module:
    """Return another instance of a module, as it is now.

    Args:
        module: any.
        tensors: of which it has copies, wherever they are.

    Returns:
        Layers, lists and dictionaries are others, and all else is shared.
    """
    copies: dict[int, Any] = {id(t): _copied(t) for t in tensors}

    def copied(leaf: Any) -> Any:
        if id(leaf) in copies:
            return copies[id(leaf)]
        if not isinstance(leaf, nn.Module):
            return leaf
        clone: nn.Module = object.__new__(type(leaf))
        copies[id(leaf)] = clone
        clone.__dict__ |= {name: within(v) for name, v in vars(leaf).items()}
        return clone

    def within(value: Any) -> Any:
        try:
            return tree_map(copied, value)
        # A list may hold itself.
        except RecursionError:
            return value

    another: nn.Module = copied(module)
    return another


def _copied(tensor: Tensor) -> Tensor:
    values = tensor.detach().clone()
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(values, requires_grad=tensor.requires_grad)
    return values


def _tried(call: Callable[[], object]) -> object:
    """Return outputs of equal draws, or None where a call fails.

    Args:
        call: returns them.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        # That of no other device, which would not be put back.
        torch.default_generator.manual_seed(0)
        try:
            outputs = call()
        # A module raises whatever it likes, and is tried where its outputs are needed.
        except Exception:
            return None
    return outputs.detach().clone() if isinstance(outputs, Tensor) else None


def _other(values: Tensor) -> Tensor:
    """Return values (...) that differ from those given, without a graph."""
    return _moved(values.detach())


def _moved(values: Tensor) -> Tensor:
    """Return the same by functions of the values given."""
    steps = torch.arange(values.numel(), device=values.device).reshape(values.shape)
    moved: Tensor = 0.8 * values + 0.1 * (steps + 1.0).cos().to(values.dtype)
    return moved


def _as_they_are(values: Tensor) -> Tensor:
    return values


def _differ(first: object, second: object) -> bool:
    if not (isinstance(first, Tensor) and isinstance(second, Tensor)):
        return False
    if first.shape != second.shape:
        return True
    return not torch.allclose(first, second, rtol=1e-5, equal_nan=True)


def writes_into(call: Callable[[Any], object], inputs: Any) -> bool:
    """Return whether a call writes into its inputs, of which it gets copies here.

    Args:
        call: of a module; it may fail.
        inputs: tensors, or lists and dictionaries of such.
    """
    copies = tree_map(lambda t: t.clone() if isinstance(t, Tensor) else t, inputs)
    before = [t for t in tree_leaves(inputs) if isinstance(t, Tensor)]
    given = [t for t in tree_leaves(copies) if isinstance(t, Tensor)]
    versions = [tensor._version for tensor in given]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is called again where they are wanted
        _tried(lambda: call(copies))
    is_written = versions != [tensor._version for tensor in given]
    # NumPy counts no writes.
    return is_written or any(map(_differ, before, given))


def are_pairs(tensor: Tensor) -> bool:
    """Return whether a tensor may hold real and imaginary parts side by side."""
    return tensor.shape[-1:] == (2,)


# What torch says of a gradient taken within a module.
_OF_OWN_GRADIENT = ("a second time", "requires_grad_()", "does not require grad")
OWN_GRADIENT = "take a gradient of its own by create_graph=True in torch.enable_grad()"


def is_of_own_gradient(error: BaseException) -> bool:
    """Return whether torch has said that a module's own gradient stands in the way."""
    is_torch = isinstance(error, RuntimeError)
    return is_torch and any(words in str(error) for words in _OF_OWN_GRADIENT)


class Needs(NamedTuple):
    """Properties of a call by which it gets copies.

    Attributes:
        inputs: it writes into its inputs.
        pairs: it takes pairs of real numbers for complex ones as they are. They have to
            be at even places in memory, as tensors of a module are, and parts of a
            vector of all weights may not.
        gradients: it takes gradients by parameters that require none.
    """

    inputs: bool
    pairs: bool
    gradients: bool


def needs_of(call: Callable[[Any], object], inputs: Any) -> Needs:
    """Return which copies a call needs, of which it gets all of its inputs here.

    Args:
        call: of a module at weights that require no gradient; it may fail.
        inputs: tensors, or lists and dictionaries of such.
    """
    seen, failures = _ComplexViews(), []

    def watched(copies: Any) -> object:
        try:
            return _within(seen, partial(call, copies))
        # A module raises whatever it likes.
        except Exception as error:
            failures.append(error)
            raise

    is_written = writes_into(watched, inputs)
    return Needs(is_written, seen.are_there, any(map(is_of_own_gradient, failures)))


class _ComplexViews(TorchFunctionMode):
    """Notes whether pairs of real numbers are taken for complex ones."""

    def __init__(self) -> None:
        super().__init__()
        self.are_there = False

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function."""
        is_to_complex = func is Tensor.view and any(map(_is_complex_type, args))
        self.are_there |= is_to_complex or func is torch.view_as_complex
        return func(*args, **(kwargs or {}))


def _is_complex_type(given: object) -> bool:
    return isinstance(given, torch.dtype) and given.is_complex


def check_loss(field: str, outputs: Tensor, call: Callable[[Tensor], object]) -> None:
    """Refuse a loss that changes gradients by a hook.

    Args:
        field: what the loss is called in messages.
        outputs: to take it of.
        call: from outputs to losses.

    Raises:
        InputError: it does. Whatever else goes wrong is left to others.
    """
    watch, leaf = _Watch(), outputs.detach().clone().requires_grad_()
    with torch.enable_grad():
        try:
            with watch:
                # No leaf, for a call may write into it.
                losses = call(leaf.clone())
        except InputError:
            raise
        # Losses of users raise whatever they like.
        except Exception:
            return
        if isinstance(losses, Tensor) and losses.requires_grad:
            _derive(field, losses, {"": leaf}, watch)
    _check_hooks(field, watch)


def _check_hooks(field: str, watch: _Watch) -> None:
    if watch.changing:
        raise InputError(
            f"{field}: expected gradients as they are, got a hook on those of "
            f"{watch.changing} that changes them, which derivatives of derivatives "
            "would leave out. Take it out, or write it into the function, as a factor "
            "c of a gradient by c * x + (x - c * x).detach()."
        )


class _Watch(TorchFunctionMode):
    """Notes what a call makes, writes into by `.data`, and hooks to change gradients.

    Attributes:
        made: tensors that functions have returned.
        written: tensors whose data are set.
        changing: of what a hook has changed gradients, or "".
    """

    def __init__(self) -> None:
        super().__init__()
        self.made: set[int] = set()
        self.written: set[int] = set()
        self.changing = ""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function."""
        if func == _READS:
            # It shares what counts the writes.
            return args[0].detach()
        if func == _WRITES:
            self.written.add(id(args[0]))
        if func is Tensor.register_hook and len(args) > 1:
            args = (args[0], self.watched("a tensor", args[1]))
        returned = func(*args, **(kwargs or {}))
        # No tensor that was there before shares a number with one made since.
        if isinstance(returned, Tensor) and not any(returned is arg for arg in args):
            self.made.add(id(returned))
        return returned

    def watched(self, of: str, hook: Callable[..., Any]) -> Callable[..., Any]:
        """Return a hook that notes whether it changes gradients.

        Args:
            of: what the gradients are of.
            hook: takes gradients last, or those by inputs and outputs of a layer.
        """

        def called(*args: Any) -> Any:
            changed = hook(*args)
            given = args[0] if len(args) == 1 else args[1]
            if changed is not None and not _are_equal(changed, given):
                self.changing = of
            return changed

        return called


def _are_equal(changed: object, given: object) -> bool:
    pairs = zip(tree_leaves(changed), tree_leaves(given), strict=False)
    return all(a is b or bool(torch.equal(a, b)) for a, b in pairs)


@contextmanager
def _layers_watched(module: nn.Module, watch: _Watch) -> Iterator[None]:
    """Watch the hooks that layers have for gradients, within the block."""
    kept: list[tuple[dict[int, Any], dict[int, Any]]] = []
    for name, layer in module.named_modules():
        of = f"{type(layer).__name__} at '{name}'" if name else type(layer).__name__
        for hooks in (layer._backward_hooks, layer._backward_pre_hooks):
            kept.append((hooks, dict(hooks)))
            hooks |= {key: watch.watched(of, hook) for key, hook in hooks.items()}
    try:
        yield
    finally:
        for hooks, before in kept:
            hooks.update(before)


def _check_written(field: str, leaves: Mapping[str, Tensor], watch: _Watch) -> None:
    for name, leaf in leaves.items():
        if leaf._version or id(leaf) in watch.written:
            raise InputError(
                f"{field}: expected weights that a call leaves as they are, got "
                f"'{name}', which forward writes into. Compute what is to be taken for "
                "it, as by clamp in place of clamp_, or hold in a buffer what is not "
                "trained."
            )


def _check_leaves(
    module: nn.Module,
    field: str,
    leaves: Mapping[str, Tensor],
    outputs: Tensor,
    *,
    known: Collection[int],
    is_whole: bool,
) -> None:
    own = {id(parameter): name for name, parameter in module.named_parameters()}
    leaves_of = (getattr(node, "variable", None) for node in nodes_of([outputs]))
    for leaf in leaves_of:
        if not isinstance(leaf, Tensor) or id(leaf) in known:
            continue
        if (name := own.get(id(leaf), "")) in leaves:
            raise InputError(
                f"{field}: expected parameters that forward takes from their layers, "
                f"got '{name}' that it takes from elsewhere, as from a list or a "
                "dictionary of its own. Take it from its layer, or hold it in an "
                "nn.ParameterList or nn.ParameterDict."
            )
        if is_whole and not name:
            raise InputError(
                f"{field}: expected parameters where a gradient is required, got a "
                f"tensor of shape {tuple(leaf.shape)} that is none, and would not be "
                "trained. Make it an nn.Parameter of a layer, or leave requires_grad "
                "out."
            )


def _derive(
    field: str,
    outputs: Tensor,
    leaves: Mapping[str, Tensor],
    watch: TorchFunctionMode,
) -> None:
    """Take gradients, of nothing but what hooks and a watch see of them.

    Raises:
        InputError: what they need has been written into.
    """
    try:
        with watch:
            _slopes(outputs, leaves.values())
    # What cannot be derived is named where derivatives are needed.
    except Exception as error:
        if "modified by an inplace operation" in str(error):
            said = summary(error).partition(". Hint")[0]
            raise InputError(
                f"{field}: expected a call whose gradient can be taken, got {said}. "
                "Compute anew what it writes into, as without inplace=True."
            ) from error
