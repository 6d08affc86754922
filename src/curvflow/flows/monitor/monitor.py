"""Curvature measured in a training loop, now and then, and never for long."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from curvflow.errors import InputError, RequestError
from curvflow.flows.monitor import files
from curvflow.flows.monitor.background import Background, packed
from curvflow.flows.monitor.files import NAMED, InLoop, Records, Requests, kept_in
from curvflow.flows.monitor.integrations import (
    hf_callback,
    lightning_callback,
    scalars,
    senders,
)
from curvflow.schemas.kinds.monitor.read import IDENTITY
from curvflow.schemas.nodes import Array
from curvflow.schemas.words import counted
from curvflow.tasks.llc.library import LlcOptions
from curvflow.tasks.monitor.coefficients import (
    as_tensors,
    checked_options,
    described,
)
from curvflow.tasks.monitor.datasets import dataset_of
from curvflow.tasks.monitor.settings import SETTINGS
from curvflow.tasks.monitor.training_probes import Module, TrainingProbes
from curvflow.tasks.monitor.undisturbed import synchronize
from curvflow.tasks.numerics.derivatives.differentiation_modes import Order
from curvflow.tasks.numerics.derivatives.guards import Cause
from curvflow.tasks.numerics.derivatives.subjects import Loss, Settings

if TYPE_CHECKING:
    from curvflow.stores.labelled.datasets import Dataset

_logger = logging.getLogger("curvflow")

# Part of the budget that measurements take by the clock. The rest is for what it does
# not show: notes at each step, and steps that are slower behind a measurement.
COUNTED = 0.6


class Monitor:
    """Sharpness, trace, noise scale and more of a module while it is trained.

    `step()` stands behind `optimizer.step()` and measures every so many steps, as far
    as the budget of time allows. Training goes on as if there were no monitor:
    gradients, modes, buffers and random streams are as they were.

        monitor = curvflow.Monitor(net, nn.CrossEntropyLoss(), (x, y), every=100)
        for inputs, targets in loader:
            ...
            optimizer.step()
            monitor.step(loss)
        monitor.to_xarray()["sharpness"]

    Attributes:
        every: steps from one measurement to the next.
        num_steps: steps of the loop so far.

    Examples:
        >>> import curvflow, torch
        >>> net = torch.nn.Linear(1, 1, bias=False).double()
        >>> x = torch.tensor([[1.0], [2.0]]).double()
        >>> settings = {"every": 2, "budget": None, "probes": ["sharpness"]}
        >>> monitor = curvflow.Monitor(net, "sse", (x, x), **settings)
    """

    def __init__(
        self,
        model: Module,
        loss: Loss | str,
        data: Any,
        *,
        every: int = 100,
        probes: Iterable[str] | Mapping[str, Any] = tuple(SETTINGS),
        budget: float | None = 0.05,
        store: str | Path | None = None,
        seed: int = 0,
        num_batches: int | None = None,
        llc_at: Collection[int] = (),
        llc: Mapping[str, Any] | None = None,
        llc_in: Literal["loop", "process"] = "loop",
        log_to: Any = None,
        log_as: str = "monitor",
        order: Order = "reverse_over_reverse",
        params: Sequence[str] | None = None,
        forward: Callable[[Module, Any], Any] | None = None,
        size_of: Callable[[Any], float] | None = None,
        allow: Collection[Cause] = (),
    ) -> None:
        """Read the data, and go on with what the store has.

        Args:
            model: the module that is trained; it is measured in evaluation mode.
            loss: of outputs and targets: the mean over a batch, or of each sample; or
                `cross_entropy`, `mse`, `sse`, `bce` or `poisson`.
            data: what is measured on, read once and held: a batch (inputs, targets) or
                a dictionary, a list of batches, or a loader.
            every: steps from one measurement to the next.
            probes: some of `sharpness`, `trace`, `noise_scale`, `critical_sharpness`
                and `update_ratio`; or their settings by name.
            budget: part of the loop's own time that measurements may take; what would
                take more is postponed. None measures whatever it takes.
            store: folder that keeps the numbers, from which a monitor of the same
                settings goes on; None keeps none.
            seed: of start vectors, random vectors and parts of the data.
            num_batches: the most that are read of a list or a loader.
            llc_at: steps at which to estimate the learning coefficient, whatever it
                takes; of one that `step(step=...)` passes over, at the next.
            llc: options of `curvflow.llc` for these; net, loss, data and store are
                the monitor's.
            llc_in: `loop` waits for them; `process` estimates them one by one in a
                separate process, at the weights of their step.
            log_to: where numbers are also sent: a SummaryWriter, a run of Weights &
                Biases, `mlflow`, or several.
            log_as: first part of the names there, another for each monitor of a run.
            order: of differentiation, as of `curvflow.hessian`.
            params: patterns of the names of parameters; None takes all that require a
                gradient.
            forward: from the module and a batch to outputs.
            size_of: the weight of a batch; by default its number of samples.
            allow: causes of refusal to let through, see docs/operators.md.

        Raises:
            InputError: an argument cannot be taken, or the store holds measurements of
                other settings.
            StoreError: the store cannot be read.
        """
        self.every = _whole("every", every)
        self._llc_at = frozenset(_whole("llc_at", step) for step in llc_at)
        _check(self.every, budget, num_batches, self._llc_at, llc, llc_in)
        self._budget, self._llc = budget, checked_options(llc or {})
        self._log_as, self._send = log_as, senders(log_to, log_as)
        self._probes = TrainingProbes(
            model,
            loss,
            data,
            probes=probes,
            num_batches=num_batches,
            order=order,
            seed=_whole("seed", seed),
            settings=_settings(params, forward, size_of, allow),
        )
        self._is_in_loop = llc_in == "loop"
        self._open(store)

    def _open(self, store: str | Path | None) -> None:
        """Keep numbers in a folder, if one is named, and go on with what it has."""
        self._begin()
        self._identity = self._probes.identity()
        if self._llc_at:
            self._identity["llc"] = described(self._llc)
        # As it is now, for a loop may change its folder.
        self._folder = None if store is None else Path(store).expanduser().absolute()
        self._requests = self._no_requests()
        self._has_numbers = False
        if self._folder is not None:
            self._go_on(self._folder)

    def _no_requests(self) -> Requests:
        """Return what takes requests for coefficients."""
        if self._is_in_loop:
            estimate = partial(self._probes.coefficient, self._llc)
            return InLoop(estimate, self._folder, self._identity)
        request = partial(self._probes.packed_request, self._llc, packed)
        if self._llc_at:
            request()  # refused now, if at all
        return Background(request, self._folder, self._identity)

    def _begin(self) -> None:
        """Count from here on: steps, measurements and time."""
        self.num_steps = self._seen = self._postponed = self._since = 0
        self._records, self._coefficients = Records("step"), Records("llc_step")
        self._is_pending = False
        # Steps before this one are noted and nothing else, until that time.
        self._quiet_until, self._quiet_every, self._affordable_at = 0, 0, 0.0
        # Of a store, until a step or a measurement: whether weights are its last.
        self._has_last_weights: bool | None = None
        self._is_resumed = False
        self._began: float | None = None
        self._outside = self._loop_before = self._spent = self._last_seconds = 0.0

    def __repr__(self) -> str:
        rows = self._records.rows
        postponed = self._postponed + sum(int(row["postponed"]) for row in rows)
        return (
            f"Monitor({len(rows)} measurements in {self.num_steps} steps, {postponed} "
            f"postponed, {100 * self.overhead:.2g} % of the loop's time)"
        )

    @property
    def overhead(self) -> float:
        """Time of measurements by that of the loop; coefficients are not counted."""
        loop = self._loop_seconds()
        return self._spent / loop if loop else 0.0

    def step(self, loss: Any = None, *, step: int | None = None) -> bool:
        """Note a step of the loop, and measure if it is time to.

        Args:
            loss: of the step, a number or a tensor, to be kept with the measurements.
            step: number of the step; None counts on. One before the last measurement
                begins again from there, and later measurements are given up.

        Returns:
            Whether there was a measurement.

        Examples:
            >>> monitor.step(step=1), monitor.step(step=2)  # the second is due
            (False, True)
        """
        if step is None and self._is_quiet():
            return False
        step = None if step is None else _whole("step", step)
        before = self.num_steps if self._began is not None else None
        if self._began is None:
            self._began = perf_counter()
        if self._is_resumed:
            self._check_place(step)
        self.num_steps = self.num_steps + 1 if step is None else step
        lasts = [self._records.last, self._coefficients.last]
        lasts += list(self._requests.weights)
        if any(last is not None and self.num_steps < last for last in lasts):
            self._begin_again()
        self._take_answers()
        if named := self._llc_since(before):
            self._estimate(max(named))
        is_due = self.num_steps // self.every > self._seen
        self._seen = max(self._seen, self.num_steps // self.every)
        self._is_pending |= is_due
        if self._is_pending and self._is_affordable():
            self.measure(loss)
            return True
        self._postponed += is_due
        self._rest()
        return False

    def _is_quiet(self) -> bool:
        """Note a step at which nothing can be due, as most are, and return whether."""
        now = self.num_steps + 1
        if now >= self._quiet_until or self.every != self._quiet_every:
            return False
        if self._is_pending and perf_counter() >= self._affordable_at:
            return False
        self.num_steps = now
        return True

    def _rest(self) -> None:
        """Find the next step that may be due, and the time that affords one."""
        steps = [step for step in self._llc_at if step > self.num_steps]
        steps.append((self._seen + 1) * self.every)
        self._quiet_until = 0 if self._requests.weights else min(steps)
        self._quiet_every = self.every
        if self._is_pending and self._budget is not None and self._began is not None:
            needed = (self._spent + self._last_seconds) / (COUNTED * self._budget)
            self._affordable_at = (
                self._began + self._outside + needed - self._loop_before
            )

    def measure(self, loss: Any = None) -> Mapping[str, Any]:
        """Measure now, whatever the budget.

        Args:
            loss: of the step, a number or a tensor, to be kept with the measurements.

        Returns:
            The numbers by name.

        Raises:
            InputError: another monitor has begun to write to the store.
            StoreError: the store cannot be written.

        Examples:
            >>> round(monitor.measure()["sharpness"], 6)  # 2 x^2, its mean
            5.0
        """
        if self._has_last_weights is not None:
            self._check_measured()
        synchronize(self._probes.module)
        began, loop = perf_counter(), self._loop_seconds()
        numbers = self._probes.measure()
        synchronize(self._probes.module)
        row = {
            "step": self.num_steps,
            **numbers,
            "step_loss": _number(loss),
            "postponed": self._postponed,
            "seconds": perf_counter() - began,
            "loop_seconds": loop,
        }
        if "update_ratio" in numbers:
            row["update_steps"] = self.num_steps - self._since
        self._records.add(row)
        self._since, self._postponed, self._is_pending = self.num_steps, 0, False
        self._quiet_until = 0
        self._keep()
        self._tell(row, self.num_steps)
        self._last_seconds = perf_counter() - began
        self._outside += self._last_seconds
        self._spent += self._last_seconds
        return row

    def wait(self) -> None:
        """Wait for the learning coefficients that a process has yet to estimate.

        Raises:
            StoreError: the store cannot be written.

        Examples:
            >>> monitor.wait()  # for nothing, if no coefficient is estimated
        """
        self._take_answers(wait=True)

    def to_xarray(self) -> Dataset:
        """Return all measurements over `step`, with units and descriptions.

        Returns:
            Dimensions step, layer and llc_step; coefficients as far as they are there.

        Examples:
            >>> _ = monitor.measure()
            >>> monitor.to_xarray()["sharpness"].dims
            ('step',)
        """
        self._take_answers()
        return dataset_of(self._arrays())

    def save(self, path: str | Path) -> None:
        """Write all measurements to a file.

        Args:
            path: of the file, which is replaced: `.npz`, which `monitor.read` of a
                study takes, `.nc` or `.zarr`.

        Raises:
            RequestError: the suffix is another, or a library for it is missing.
            StoreError: the file cannot be written.

        Examples:
            >>> _ = monitor.measure()
            >>> monitor.save("monitor.npz")
            >>> curvflow.read_monitor("monitor.npz").equals(monitor.to_xarray())
            True
        """
        path = Path(path).expanduser()
        self._take_answers()
        if path.suffix == ".npz":
            files.write(path, self._arrays())
            return
        if path.suffix not in (".nc", ".zarr"):
            raise RequestError(
                f"{path}: expected a name that ends in .npz, .nc or .zarr, got "
                f"'{path.suffix}'. Rename it."
            )
        # Here, for zarr is needed by no other method.
        from curvflow.stores.labelled.datasets import write

        write(self.to_xarray(), path)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: numbers, texts, lists and tensors.

        Returns:
            What `load_state_dict` takes; `torch.load` reads it with `weights_only`.

        Examples:
            >>> monitor.state_dict()["step"] == monitor.num_steps
            True
        """
        return {
            "identity": json.dumps(self._identity),
            "step": self.num_steps,
            "since": self._since,
            "postponed": self._postponed,
            "pending": self._is_pending,
            "loop_seconds": self._loop_seconds(),
            "spent": self._spent,
            "last_seconds": self._last_seconds,
            "rows": self._records.plain(),
            "llc_rows": self._coefficients.plain(),
            "llc_weights": dict(self._requests.weights),
            "state": self._probes.tensors(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; measurements made after it are given up.

        Args:
            state: as `state_dict` returned it.

        Raises:
            InputError: it is that of a monitor of other settings.

        Examples:
            >>> later = curvflow.Monitor(net, "sse", (x, x), **settings)
            >>> later.load_state_dict(monitor.state_dict())
            >>> later.num_steps == monitor.num_steps
            True
        """
        files.check_identity({IDENTITY: np.array(state["identity"])}, self._identity)
        self._has_last_weights, self._is_resumed = None, False
        self._records = Records("step", state["rows"])
        self._coefficients = Records("llc_step", state["llc_rows"])
        self._resume_at(int(state["step"]))
        self._requests.cut(0)
        self._ask_again(state.get("llc_weights", {}))
        self._since, self._postponed = int(state["since"]), int(state["postponed"])
        self._is_pending = bool(state["pending"])
        self._loop_before, self._spent = float(state["loop_seconds"]), state["spent"]
        self._last_seconds = float(state["last_seconds"])
        self._probes.load(state["state"])

    def lightning(self, name: str = "") -> Any:
        """Return a callback for Lightning's Trainer, kept in its checkpoints.

        Args:
            name: of its place in checkpoints, where a trainer has several.

        Returns:
            An instance of `lightning.pytorch.Callback`.

        Raises:
            RequestError: Lightning is not installed.

        Examples:
            >>> trainer = Trainer(callbacks=[monitor.lightning()])  # doctest: +SKIP
        """
        return lightning_callback(self, name)

    def hf(self) -> Any:
        """Return a callback for Hugging Face's Trainer.

        Returns:
            An instance of `transformers.TrainerCallback`.

        Raises:
            RequestError: transformers is not installed.

        Examples:
            >>> trainer = Trainer(model, callbacks=[monitor.hf()])  # doctest: +SKIP
        """
        return hf_callback(self)

    def _arrays(self) -> dict[str, Array]:
        arrays = self._records.arrays()
        if self._coefficients.rows:
            arrays |= self._coefficients.arrays()
        if "layer_update_ratio" in arrays:
            arrays["layer"] = np.array(self._probes.layers)
        return {**arrays, IDENTITY: np.array(json.dumps(self._identity))}

    def _loop_seconds(self) -> float:
        """Return the time since the first step, without measurements."""
        if self._began is None:
            return self._loop_before
        return self._loop_before + perf_counter() - self._began - self._outside

    def _is_affordable(self) -> bool:
        if self._budget is None:
            return True
        if not self._last_seconds:
            self._last_seconds = self._expected()
        # As long as the last one, for all that is known.
        expected = self._spent + self._last_seconds
        return expected <= COUNTED * self._budget * self._loop_seconds()

    def _expected(self) -> float:
        """Return about how long a first measurement takes, from that of gradients."""
        times = []
        for _ in range(2):  # the first has to load and to choose
            synchronize(self._probes.module)
            began = perf_counter()
            self._probes.pilot()
            synchronize(self._probes.module)
            times.append(perf_counter() - began)
        self._spent += sum(times)
        self._outside += sum(times)
        return self._probes.expected_gradients * min(times)

    def _llc_since(self, before: int | None) -> list[int]:
        """Return the steps of `llc_at` that are reached now, or were passed over.

        Args:
            before: the step before, of this loop; None for the first one.
        """
        now = self.num_steps
        last = now - 1 if before is None else min(before, now - 1)
        return [step for step in self._llc_at if last < step <= now]

    def _estimate(self, named: int) -> None:
        """Estimate the learning coefficient, unless that was done at this step.

        Args:
            named: the step of `llc_at` that it is for.
        """
        if self._coefficients.last == self.num_steps:
            return
        began = perf_counter()
        if self._is_in_loop:
            self._have(self.num_steps, self._probes.coefficient(self._llc))
        elif self.num_steps not in self._requests.weights:
            weights = {**self._probes.snapshot(), NAMED: np.array(named)}
            self._requests.add(self.num_steps, as_tensors(weights))
        if self._began is not None:
            self._outside += perf_counter() - began

    def _have(self, step: int, numbers: Mapping[str, Any]) -> None:
        """Keep and send a coefficient."""
        row = {"llc_step": step, **numbers}
        self._coefficients.add(row)
        self._keep()
        self._tell(row, step)

    def _take_answers(self, *, wait: bool = False) -> None:
        began = perf_counter()
        for step, numbers in self._requests.answers(wait=wait):
            self._have(step, numbers)
            self._requests.forget(step)
        if self._began is not None:
            self._outside += perf_counter() - began

    def _ask_again(self, weights: Mapping[int, Mapping[str, Any]]) -> None:
        """Estimate what a program did not live to have."""
        for step, each in weights.items():
            self._requests.add(step, as_tensors(each))

    def _tell(self, row: Mapping[str, Any], step: int) -> None:
        numbers = scalars(row, self._probes.layers, self._log_as)
        for send in self._send:
            send(numbers, step)

    def _keep(self) -> None:
        if self._folder is None:
            return
        path = self._folder / files.NUMBERS
        if not self._has_numbers and path.exists():
            self._check_alone(path)
        files.write(path, self._arrays())
        self._has_numbers = True
        if self._records.rows:
            state = {"step": np.array(self._records.last), **self._probes.arrays()}
            files.write(self._folder / files.STATE, state)

    def _check_alone(self, path: Path) -> None:
        """Refuse or log numbers that were not there when this monitor was made."""
        files.check_identity(files.read(path), self._identity)
        _logger.warning(
            f"store: expected numbers of one monitor in {self._folder}, got those of "
            "another of the same settings, which each replaces. Name a folder for "
            "each, or none but in one process."
        )

    def _go_on(self, folder: Path) -> None:
        """Take over what a store has, if there is anything."""
        self._has_numbers = (folder / files.NUMBERS).exists()
        if self._has_numbers:
            arrays = files.read(folder / files.NUMBERS)
            files.check_identity(arrays, self._identity)
            self._records = Records.of("step", arrays)
            self._coefficients = Records.of("llc_step", arrays)
        # Steps behind the last measurement are taken again, coefficients and all;
        # without one the last coefficient is the place.
        last = self._records.last
        requests = kept_in(folder, last, self._llc_at, self._identity)
        steps = [row["llc_step"] for row in self._coefficients.rows]
        if last is None and not (steps or requests):
            return
        last = int(max([*steps, *requests])) if last is None else last
        self._coefficients.cut(last + 1)
        self._resume_at(last)
        self._has_last_weights, self._is_resumed = self._take_state(folder), True
        self._ask_again(requests)

    def _take_state(self, folder: Path) -> bool:
        """Take over times and vectors, and return whether weights are those there."""
        state, rows = folder / files.STATE, self._records.rows
        if not rows:
            return False
        self._loop_before = float(rows[-1]["loop_seconds"])
        self._last_seconds = float(rows[-1]["seconds"])
        self._spent = float(sum(row["seconds"] for row in rows))
        kept = files.read(state) if state.exists() else {}
        if not kept or int(kept.pop("step")) != self.num_steps:
            return False
        has_weights = self._probes.has_weights(kept["weights"])
        self._probes.load(kept)
        return has_weights

    def _check_place(self, step: int | None) -> None:
        """Log where the first step is not known to follow the store's last one."""
        known, self._has_last_weights = self._has_last_weights, None
        self._is_resumed, last = False, self.num_steps
        if step is None and known is False:
            self._log_other_weights(f"step counts as {last + 1}. Pass step=")
        elif step is not None and (late := self._from(step)) and step < last:
            _logger.warning(
                f"store: expected a step behind {last}, the last in {self._folder}, "
                f"got {step}; {late} from there on will be replaced. Stop and name "
                "another folder to keep them."
            )

    def _check_measured(self) -> None:
        """Log what a measurement before the first step replaces, or counts as."""
        known, self._has_last_weights = self._has_last_weights, None
        last = self.num_steps
        if not known:
            self._log_other_weights(
                f"measurement counts as that of step {last}. Take a step first"
            )
        elif self._records.last == last:
            _logger.warning(
                f"store: expected a step behind {last}, the last in {self._folder}, "
                "got none; its measurement is replaced by one at the same weights. "
                "Take a step first to keep it."
            )

    def _log_other_weights(self, counted_as: str) -> None:
        _logger.warning(
            f"store: expected the weights of step {self.num_steps}, the last in "
            f"{self._folder}, got others or none kept; this {counted_as}, or take "
            "load_state_dict, or name another folder where training begins anew."
        )

    def _from(self, step: int) -> str:
        """Return how many measurements and coefficients there are from a step on."""
        lists = {
            "measurement": [row["step"] for row in self._records.rows],
            "coefficient": {
                *(row["llc_step"] for row in self._coefficients.rows),
                *self._requests.weights,
            },
        }
        counts = {name: sum(e >= step for e in each) for name, each in lists.items()}
        return " and ".join(counted(n, name) for name, n in counts.items() if n)

    def _resume_at(self, step: int) -> None:
        self.num_steps = self._since = step
        self._seen, self._quiet_until = step // self.every, 0
        self._began, self._outside = None, 0.0

    def _begin_again(self) -> None:
        """Give up what was measured at this step and later."""
        self._requests.cut(self.num_steps)
        for records in (self._records, self._coefficients):
            records.cut(self.num_steps)
        # Of the weights that are known, those after this step.
        self._since = self.num_steps
        self._seen = (self.num_steps - 1) // self.every
        self._is_pending, self._postponed = False, 0
        self._probes.restart()


def read_monitor(path: str | Path) -> Dataset:
    """Read what a monitor has measured.

    Args:
        path: the folder that was its `store`, or a file that `save` has written, .npz.

    Returns:
        The dataset of `Monitor.to_xarray`.

    Raises:
        StoreError: there is none.

    Examples:
        >>> import curvflow, tempfile, torch
        >>> net = torch.nn.Linear(1, 1, bias=False).double()
        >>> x = torch.tensor([[1.0], [2.0]]).double()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     monitor = curvflow.Monitor(
        ...         net, "sse", (x, x), probes=["sharpness"], store=folder
        ...     )
        ...     _ = monitor.measure()
        ...     curvflow.read_monitor(folder)["sharpness"].values.round(9)  # 2 x^2
        array([5.])
    """
    return dataset_of(files.read(files.numbers_file(path)))


def _settings(
    params: Sequence[str] | None,
    forward: Callable[[Module, Any], Any] | None,
    size_of: Callable[[Any], float] | None,
    allow: Collection[Cause],
) -> Settings:
    """Return the settings that are given: `size_of` counts by being there."""
    settings = Settings(params=params, forward=forward, allow=allow)
    if size_of is not None:
        settings["size_of"] = size_of
    return settings


def _number(loss: Any) -> float:
    """Return a loss as a number; of a tensor without the warning of its gradient."""
    if loss is None:
        return float("nan")
    return float(loss.item() if hasattr(loss, "item") else loss)


def _whole(name: str, value: Any) -> int:
    """Return a whole number as one of Python's, for a checkpoint keeps no others."""
    try:
        whole = int(value)
    except (TypeError, ValueError, OverflowError):
        whole = None
    if whole is None or whole != value:
        raise InputError(f"{name}: expected whole numbers, got {value!r}. Round it.")
    return whole


def _check(
    every: int,
    budget: float | None,
    num_batches: int | None,
    llc_at: Collection[int],
    llc: Mapping[str, Any] | None,
    llc_in: str,
) -> None:
    counts = {"every": every, "num_batches": num_batches}
    for name, count in counts.items():
        if count is not None and count < 1:
            raise InputError(f"{name}: expected 1 or more, got {count}. Raise it.")
    if budget is not None and not budget > 0:
        raise InputError(
            f"budget: expected a part of the loop's time above 0, got {budget}. Pass "
            "None to measure whatever it takes."
        )
    if any(step < 1 for step in llc_at):
        raise InputError(
            f"llc_at: expected steps, 1 or more, got {min(llc_at)}. Remove it."
        )
    if llc_in not in ("loop", "process"):
        raise InputError(
            f"llc_in: expected loop or process, got {llc_in}. Pass one of the two."
        )
    if unknown := sorted(set(llc or ()) - set(LlcOptions.__annotations__)):
        raise InputError(
            "llc: expected options of curvflow.llc beside net, loss, data and store, "
            f"got {', '.join(unknown)}. Rename or remove them."
        )
    if llc and not llc_at:
        raise InputError(
            "llc: expected steps to estimate the coefficient at, got none. Name them "
            "by llc_at."
        )
