"""Measurements of a monitor, of a module whose weights keep changing."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from curvflow.errors import InputError
from curvflow.schemas.keys import array_digest, sha256
from curvflow.schemas.nodes import Array
from curvflow.schemas.words import counted
from curvflow.tasks.monitor.coefficients import (
    CoefficientRequest,
    coefficient,
    nothing,
    place,
)
from curvflow.tasks.monitor.measures import (
    Numbers,
    critical,
    gradient_of_all,
    mean_loss,
    operator_of,
    sharpness,
    trace,
    update_ratio,
)
from curvflow.tasks.monitor.noise import noise
from curvflow.tasks.monitor.settings import (
    CriticalSettings,
    Measure,
    NoiseSettings,
    SharpnessSettings,
    TraceSettings,
    settings_of,
)
from curvflow.tasks.monitor.undisturbed import undisturbed, undisturbed_loader
from curvflow.tasks.numerics.derivatives.batches import Batch
from curvflow.tasks.numerics.derivatives.differentiation_modes import Order
from curvflow.tasks.numerics.derivatives.subjects import (
    Loss,
    Settings,
    Subject,
    subject,
)
from curvflow.tasks.numerics.operators.base import as_sample_mean

# As callers outside the tasks name them.
Module = nn.Module
PRECISIONS = (torch.float32, torch.float64)


@dataclass
class State:
    """Results that a measurement takes from the one before it.

    Attributes:
        weights: parameters at that time, (D,).
        vector: eigenvector of the sharpness, (D,); None before the first.
        critical_lr: the critical rate; None before the first.
    """

    weights: Tensor
    vector: Tensor | None = None
    critical_lr: float | None = None


class TrainingProbes:
    """A module, its loss and data, measured at whatever its weights are.

    Attributes:
        module: the module itself, not what wraps it for several processes.
        state: what the next measurement takes from the last one.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | str,
        data: Any,
        *,
        probes: Any,
        num_batches: int | None,
        order: Order,
        seed: int,
        settings: Settings,
    ) -> None:
        """Read the data once, and check that all can be measured.

        Args:
            module: in training; it is measured in evaluation mode.
            loss: as of `curvflow.hessian`.
            data: a batch, a list of batches, or a loader, which is read here.
            probes: measures by name, with their settings.
            num_batches: the most that are read of a list or a loader.
            order: of differentiation.
            seed: of all that is drawn.
            settings: as of `curvflow.hessian`.

        Raises:
            InputError: an argument cannot be taken; it is named.
        """
        self.module, self._order, self._seed = unwrapped(module), order, seed
        self._settings, self._called = settings_of(probes), settings
        self._loss = loss
        with undisturbed(self.module):
            with undisturbed_loader(data):
                self._batches, self._digests, whole = held(data, num_batches)
            self._versions = _versions(self._batches)
            self._drawn_from(whole)
            self._subject = subject(
                self.module,
                loss,
                self._batches,
                settings,
                moves="critical_sharpness" in self._settings,
            )
            self._check()
        self.state = State(self._subject.weights)

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""
        return self._subject.names

    def identity(self) -> dict[str, Any]:
        """Return what two monitors must share to go on with each other's numbers."""
        sizes = zip(self.layers, self._subject.sizes, strict=True)
        return {
            "probes": {n: s.model_dump() for n, s in self._settings.items()},
            "loss": loss_name(self._loss),
            "calls": [
                name for name in ("forward", "size_of") if self._called.get(name)
            ],
            "seed": self._seed,
            "order": self._order,
            "parameters": dict(sizes),
            "dtype": str(self._subject.weights.dtype).removeprefix("torch."),
            "data": sha256(self._digests),
        }

    def measure(self) -> Numbers:
        """Measure all, and leave the module and the random streams as they were.

        Returns:
            Numbers by name, with `outcome` and `reason`; what could not be measured is
            left out.
        """
        numbers: Numbers = {}
        reasons: list[str] = []
        with undisturbed(self.module):
            for name, compute in self._steps():
                try:
                    numbers |= compute()
                except (InputError, torch.OutOfMemoryError) as error:
                    reasons.append(f"{name}: {str(error).splitlines()[0]}")
                    if name == "weights":
                        break
        outcome = "failed" if reasons else "ok"
        return numbers | {"outcome": outcome, "reason": " ".join(reasons)}

    def pilot(self) -> None:
        """Compute a gradient over all data, to see how long one takes."""
        with undisturbed(self.module), suppress(InputError, torch.OutOfMemoryError):
            gradient_of_all(self._at_now())

    @property
    def expected_gradients(self) -> float:
        """Gradients that take about as long as a first measurement."""
        return sum(settings.gradients for settings in self._settings.values())

    def coefficient(
        self, options: Mapping[str, Any], weights: Mapping[str, Any] | None = None
    ) -> Numbers:
        """Estimate the local learning coefficient, as `curvflow.llc` does.

        Args:
            options: further arguments of it.
            weights: as `snapshot` returned them, or as arrays; None for those of now.

        Returns:
            Numbers by name, with the time taken.
        """
        began, module = perf_counter(), self.module
        try:
            self._check_data()
        except InputError as error:
            return {**nothing(str(error)), "llc_seconds": perf_counter() - began}
        if weights is not None:
            module = copy.deepcopy(module)
            place(module, weights)
        with undisturbed(module):
            numbers = coefficient(self._request(module, options))
        return {**numbers, "llc_seconds": perf_counter() - began}

    def packed_request(
        self,
        options: Mapping[str, Any],
        pack: Callable[[CoefficientRequest], bytes],
        weights: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return what another process needs to estimate the coefficient.

        Args:
            options: further arguments of `curvflow.llc`.
            pack: from a request to bytes.
            weights: as `snapshot` returned them, or as arrays; None for those of now.
        """
        with undisturbed(self.module):
            request = self._request(self.module, options)
            return pack(replace(request, weights=weights))

    def snapshot(self) -> dict[str, Tensor]:
        """Return a copy of all parameters and buffers, on the CPU."""
        kept = self.module.state_dict().items()
        tensors = {name: value for name, value in kept if isinstance(value, Tensor)}
        return {name: value.detach().cpu().clone() for name, value in tensors.items()}

    def _request(
        self, module: nn.Module, options: Mapping[str, Any]
    ) -> CoefficientRequest:
        known = {k: v for k, v in self._called.items() if k in ("forward", "allow")}
        if (patterns := self._called.get("params")) is not None:
            known["layers"] = patterns
        arguments = {"seed": self._seed, **known, **options}
        return CoefficientRequest(module, self._loss, self._batches, arguments)

    def arrays(self) -> dict[str, Array]:
        """Return the state as arrays, for a file."""
        return {name: value.numpy() for name, value in self.tensors().items()}

    def tensors(self) -> dict[str, Tensor]:
        """Return the state as tensors on the CPU, for a checkpoint."""
        state = self.state
        tensors = {"weights": state.weights.cpu()}
        if state.vector is not None:
            tensors["vector"] = state.vector.cpu()
        if state.critical_lr is not None:
            tensors["critical_lr"] = torch.tensor(
                state.critical_lr, dtype=torch.float64
            )
        return tensors

    def load(self, values: Mapping[str, Any]) -> None:
        """Take a state over.

        Args:
            values: arrays or tensors, as `arrays` and `tensors` return them.
        """
        tensors = {name: torch.as_tensor(value) for name, value in values.items()}
        rate = tensors.get("critical_lr")
        self.state = State(
            tensors["weights"],
            tensors.get("vector"),
            None if rate is None else float(rate),
        )

    def has_weights(self, kept: Array) -> bool:
        """Return whether the module has these parameters, (D,), to the last bit."""
        return torch.equal(self.state.weights.cpu(), torch.as_tensor(kept))

    def restart(self) -> None:
        """Forget what was before, as if the module were new."""
        try:
            weights_D = self._at_now().weights
        except InputError:  # which the next measurement says; a loop goes on
            weights_D = torch.full_like(self.state.weights, math.nan)
        self.state = State(weights_D)

    def _check(self) -> None:
        dtype = self._subject.weights.dtype
        if dtype not in PRECISIONS:
            raise InputError(
                "model: expected parameters of float32 or float64, got "
                f"{str(dtype).removeprefix('torch.')}. Train with autocast, which "
                "keeps them in float32, or measure a copy."
            )
        noise_settings = self._settings.get("noise_scale")
        if not isinstance(noise_settings, NoiseSettings):
            return
        try:
            count = as_sample_mean(
                operator_of(self._subject, self._order).batched
            ).num_samples
        except InputError as error:
            text = str(error).replace("take probes_per data", "leave noise_scale out")
            text = text.replace("Take probes_per data", "Leave noise_scale out")
            raise InputError(f"probes.noise_scale: {text}") from None
        if (noise_settings.population or count) < count:
            raise InputError(
                "probes.noise_scale: population: expected at least the "
                f"{counted(count, 'sample')} of data, got {noise_settings.population}. "
                "It is how many the data were drawn from; leave it out if they are all."
            )

    def _drawn_from(self, whole: int | None) -> None:
        """Note the size of a loader of which only some batches were read."""
        noise_settings = self._settings.get("noise_scale")
        if isinstance(noise_settings, NoiseSettings) and whole:
            population = noise_settings.population or whole
            update = {"population": population}
            self._settings["noise_scale"] = noise_settings.model_copy(update=update)

    def _at_now(self) -> Subject:
        """Return the subject at the present weights, with data on their device.

        Raises:
            InputError: they are not finite, or not those of the module as it was, or
                data are not as they were.
        """
        self._check_data()
        named = dict(self.module.named_parameters())
        self._check_same(named)
        weights = [named[name].detach().flatten() for name in self.layers]
        weights_D = torch.cat(weights)
        if not torch.isfinite(weights_D).all():
            raise InputError(
                "expected finite parameters, got NaN or infinity. Lower the learning "
                "rate, or measure earlier."
            )
        of = replace(self._subject, weights=weights_D)
        if any(
            isinstance(leaf, Tensor) and leaf.device != weights_D.device
            for leaf in tree_leaves(self._batches)
        ):
            self._batches = tree_map(of.moved, self._batches)
            self._versions = _versions(self._batches)
        self._subject = replace(of, data=self._batches)
        return self._subject

    def _check_data(self) -> None:
        """Refuse data that the loop has changed in place, by the counts that torch has.

        Raises:
            InputError: they are others now.
        """
        if (versions := _versions(self._batches)) == self._versions:
            return
        if _digests_of(self._batches) != self._digests:
            raise InputError(
                "data: expected tensors as they were when the monitor was made, got "
                "some that were changed in place. Pass clones of them."
            )
        self._versions = versions

    def _check_same(self, named: Mapping[str, Tensor]) -> None:
        """Refuse parameters that the monitor has not begun with, by their names."""
        of, dtype = self._subject, self._subject.weights.dtype
        for name, shape in zip(of.names, of.shapes, strict=True):
            now = named.get(name)
            if now is None or (now.shape, now.dtype) != (shape, dtype):
                got = "none" if now is None else f"{now.dtype} {tuple(now.shape)}"
                text = (
                    f"expected '{name}' of {dtype} {shape}, as when the monitor was "
                    f"made, got {got}. Make a new one where the module changes."
                )
                raise InputError(text.replace("torch.", ""))

    def _steps(self) -> Iterator[tuple[str, Callable[[], Numbers]]]:
        """Yield the measures in order, the weights and the loss first."""
        now: list[Subject] = []

        def weights() -> Numbers:
            now.append(self._at_now())
            return {}

        yield "weights", weights
        (of,) = now
        yield "loss", lambda: {"loss": mean_loss(of, of.weights)}
        operator = operator_of(of, self._order)
        slopes: list[Tensor] = []
        for name, settings in self._settings.items():
            yield name, partial(_MEASURES[name], self, of, operator, settings, slopes)
        self.state.weights = of.weights

    def _sharpness(
        self, _of: Subject, operator: Any, settings: Measure, _slopes: list[Tensor]
    ) -> Numbers:
        wanted, near_D = cast("SharpnessSettings", settings), self.state.vector
        numbers, vector_D = sharpness(operator, wanted, near_D, seed=self._seed)
        if torch.isfinite(vector_D).all():
            self.state.vector = vector_D
        return numbers

    def _trace(
        self, _of: Subject, operator: Any, settings: Measure, _slopes: list[Tensor]
    ) -> Numbers:
        return trace(operator, cast("TraceSettings", settings), seed=self._seed)

    def _noise(
        self, of: Subject, _operator: Any, settings: Measure, slopes: list[Tensor]
    ) -> Numbers:
        wanted = cast("NoiseSettings", settings)
        numbers, slope_D = noise(of, wanted, seed=self._seed)
        slopes.append(slope_D)
        return numbers

    def _critical(
        self, of: Subject, _operator: Any, settings: Measure, slopes: list[Tensor]
    ) -> Numbers:
        wanted = cast("CriticalSettings", settings)
        slope_D = slopes[-1] if slopes else gradient_of_all(of)
        start = self.state.critical_lr or wanted.start
        numbers = critical(of, slope_D, wanted, start)
        if numbers["critical_converged"]:
            self.state.critical_lr = numbers["critical_lr"]
        return numbers

    def _update(
        self, of: Subject, _operator: Any, _settings: Measure, _slopes: list[Tensor]
    ) -> Numbers:
        return update_ratio(of, self.state.weights)


_MEASURES: dict[str, Callable[..., Numbers]] = {
    "sharpness": TrainingProbes._sharpness,
    "trace": TrainingProbes._trace,
    "noise_scale": TrainingProbes._noise,
    "critical_sharpness": TrainingProbes._critical,
    "update_ratio": TrainingProbes._update,
}


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the module within what compiles it or spreads it over processes.

    Args:
        module: as the loop calls it.
    """
    spread = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    while True:
        if isinstance(module, spread):
            module = module.module
        elif isinstance(compiled := getattr(module, "_orig_mod", None), nn.Module):
            module = compiled
        else:
            return module


def held(
    data: Any, num_batches: int | None
) -> tuple[list[Batch], list[str], int | None]:
    """Read data once, so that every measurement sees the same samples.

    Args:
        data: a batch, a list of batches, or a loader.
        num_batches: the most that are read; None reads all.

    Returns:
        The batches, the digests of their tensors, and the samples of a loader's data
        set if not all batches were read and it has a length.

    Raises:
        InputError: there is none, or data cannot be read, or do not stay.
    """
    if isinstance(data, tuple | Mapping):
        return [data], _digests_of(data), None
    if isinstance(data, Tensor) or not hasattr(data, "__iter__"):
        raise InputError(
            "data: expected a batch (inputs, targets), a list of batches or a loader, "
            f"got {type(data).__name__}. Pass a tuple for one batch."
        )
    batches, digests = [], []
    for batch in islice(data, num_batches):
        batches.append(batch)
        digests += _digests_of(batch)
    if not batches:
        raise InputError("data: expected batches, got none. Pass some.")
    first = _digests_of(batches[0])
    if first != digests[: len(first)]:
        raise InputError(
            "data: expected batches that stay as they are, got a first one that was "
            "overwritten by the next. Let the loader yield clones."
        )
    whole = getattr(data, "dataset", None)
    is_part = num_batches is not None and len(batches) == num_batches
    return (
        batches,
        digests,
        len(whole) if is_part and isinstance(whole, Sized) else None,
    )


def _tensors(batches: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(batches) if isinstance(leaf, Tensor)]


def _digests_of(batches: Any) -> list[str]:
    # NumPy lacks bfloat16, all of whose numbers float32 has.
    each = (t.detach().cpu() for t in _tensors(batches))
    wide = (t.float() if t.dtype == torch.bfloat16 else t for t in each)
    return [array_digest(tensor.numpy()) for tensor in wide]


def _versions(batches: Any) -> list[int]:
    """Return how often each tensor was written to, as far as that is counted."""
    return [0 if t.is_inference() else t._version for t in _tensors(batches)]


def loss_name(loss: Any) -> str:
    """Return what a loss is called, the same in every program.

    Args:
        loss: a name, a module or a callable; of functions of one name no more is known,
            and of other callables only the class.
    """
    if isinstance(loss, str):
        return loss
    if isinstance(loss, nn.Module):
        return repr(loss)
    if isinstance(loss, partial):
        given = [_plain(value) for value in loss.args]
        given += [f"{name}={_plain(v)}" for name, v in sorted(loss.keywords.items())]
        return f"{loss_name(loss.func)}({', '.join(given)})"
    called = loss if hasattr(loss, "__qualname__") else type(loss)
    return f"{called.__module__}.{called.__qualname__}"


def _plain(value: Any) -> str:
    """Return a value as text that holds no address in memory."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    return loss_name(value) if callable(value) else type(value).__qualname__
