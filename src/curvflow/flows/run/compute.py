"""Compute one tile: read its inputs, call the kind's function, write the payload.

Outcomes are checked before they are written; of a node too large for the machine the
error names remedies. Long tiles keep snapshots, so that a kill costs a minute.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from curvflow.errors import InputError, Stopped, StoreError
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.graph.tiles import (
    PLAIN,
    Computed,
    Failed,
    LostInputError,
    TileJob,
    bisect,
    load,
    padded,
)
from curvflow.flows.reads.windows import (
    Observed,
    Window,
    calling,
    known_name,
    stored_name,
)
from curvflow.flows.run.runners.base import Finished, Interrupted, LostInput, Returned
from curvflow.flows.run.tracebacks import portable, portable_traceback
from curvflow.schemas.disk_arrays import DiskArray, is_on_disk
from curvflow.schemas.keys import sha256
from curvflow.schemas.kind import ELLIPSIS, Kind, Variable
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.models.factory import FactoryModel
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.schemas.params import Params
from curvflow.schemas.records.receipts import part_digests, result_digest
from curvflow.schemas.words import counted
from curvflow.stores.base import Store
from curvflow.tasks.registry import Machine, find

# Another version of these may differ in the last bits, so it begins again.
LIBRARIES = ("torch", "numpy")


@dataclass(frozen=True)
class Cost:
    """The cost of each node of a tile.

    Attributes:
        seconds: its share of the time.
        covered: epochs, or what else its kind continues, that were computed in them;
            None if that is not known.
        device: where it was computed.
        how: what was chosen on the spot, in words.
    """

    seconds: float
    covered: int | None
    device: str
    how: str = ""


def carried_out(
    store: Store, job: TileJob, machine: Machine, snapshots: Snapshots
) -> Returned:
    """Compute a tile and return its fate; nothing is committed.

    Raises:
        StoreError: the payload cannot be written.
    """
    snapshots.turn_to(job.stage)
    try:
        reports = compute_tile(store, job, machine, snapshots)
    except LostInputError as error:
        return LostInput(error.lost)
    except Stopped as stopped:
        return Interrupted(stopped.signal)
    return Finished(reports, kept=snapshots.taken())


def compute_tile(
    store: Store, job: TileJob, machine: Machine, snapshots: Snapshots
) -> list[Computed | Failed]:
    """Compute the nodes of a tile and write the results of those that succeed.

    Nothing is committed. Returned is a report per node, in order.

    Raises:
        LostInputError: a result taken cannot be read.
        StoreError: the payload cannot be written.
        Stopped: the run was asked to end, and the tile keeps its state.
    """
    snapshots.recorded.clear()
    snapshots.observed.clear()
    started = time.perf_counter()
    computed = outcomes(store, job, machine, snapshots)
    seconds = (time.perf_counter() - started) / len(computed)
    covered = None if snapshots.were_found else job.covered
    how = "; ".join(dict.fromkeys(snapshots.recorded))
    cost = Cost(seconds, covered, machine.device, how)
    reads = [snapshots.observed.get(member.key) for member in job.members]
    return write(store, find_kind(job.kind), computed, cost=cost, reads=reads)


def outcomes(
    store: Store, job: TileJob, machine: Machine, snapshots: Snapshots
) -> list[tuple[Outcome | BaseException, int]]:
    """Compute the nodes of a tile; nothing is written but snapshots.

    Returned per node: its outcome or the error it raises alone, and the number of nodes
    computed together.

    Raises:
        LostInputError: a result taken cannot be read.
    """
    kind = find_kind(job.kind)
    try:
        members = load(store, kind, job.members)
    except MemoryError as error:
        lack = error.with_traceback(None)  # which would hold what has been read
    else:
        return _outcomes(job, members, machine, snapshots)
    if len(job.members) == 1:
        return [(lack, 1)]
    half = len(job.members) // 2
    halves = (job.members[:half], job.members[half:])
    jobs = [replace(job, members=members) for members in halves]
    return [
        outcome
        for part in jobs
        for outcome in outcomes(store, part, machine, snapshots)
    ]


@dataclass(frozen=True)
class Estimate:
    """Estimated bytes of tiles of members like one.

    Attributes:
        alone: of a member by itself.
        data: of its data among them.
        copied: what each of several data sets takes as well.
    """

    alone: int
    data: int
    copied: int

    def fixed(self, *, share_data: bool) -> int:
        """Return what a tile takes however many members it has."""
        return self.data if share_data else 0

    def each(self, *, share_data: bool) -> int:
        """Return what each member of a tile adds."""
        return self.alone - self.data if share_data else self.alone + self.copied


def estimated(kind: Kind, member: Member) -> Estimate:
    """Return the estimated bytes of tiles of members like this one."""
    implementation = find(kind.name)
    return Estimate(
        implementation.member_bytes(member),
        implementation.data_bytes(member),
        implementation.copied_bytes(member),
    )


def main_memory() -> int:
    """Return the bytes of memory that this group of processes may use.

    0 where the system does not say.
    """
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0
    with suppress(OSError, ValueError):  # no such file, or the word `max`
        whole = min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return whole


def _is_own(member: Member) -> bool:
    """Return whether a member's network is a module of the user's own."""
    several = [node for nodes in member.inputs.values() for node in nodes]
    texts = [str(node["network"]) for node in several if "network" in node]
    is_own = isinstance(getattr(member.params, "model", None), FactoryModel)
    return is_own or any('"model":{"factory":' in text for text in texts)


def _fitting(
    kind: Kind, members: Sequence[Member], machine: Machine, *, is_plain: bool
) -> Sequence[Member]:
    """Return the members to compute together, padded to two where there is room.

    One that is computed plainly is not: see decision 0027.

    Raises:
        InputError: they need more memory than the machine has; they are to be halved,
            and one alone cannot be computed there.
    """
    whole = members if is_plain else padded(members)
    try:
        one = estimated(kind, members[0])
    except Exception:  # the computation runs into it as well, and tells
        return whole
    digests = {node.digest for m in members for node in m.inputs.get("data", ())}
    share_data = len(digests) < 2
    needed = one.fixed(share_data=share_data)
    needed += len(whole) * one.each(share_data=share_data)
    if not machine.memory or needed <= machine.memory:
        return whole
    if len(members) == 1 and one.alone <= machine.memory:
        return members  # there is no room for the other that its last bits are safe by
    has, wants = (f"{count / 1e9:.3g} GB" for count in (machine.memory, one.alone))
    raise InputError(
        f"memory: expected at most the {has} of {machine.device} for a node of "
        f"{kind.name}, got an estimate of {wants}. "
        f"{remedies(kind, members[0], machine.memory)}"
    )


def _outcomes(
    job: TileJob, members: Sequence[Member], machine: Machine, snapshots: Snapshots
) -> list[tuple[Outcome | BaseException, int]]:
    kind = find_kind(job.kind)
    jobs = {
        id(m): job_member for m, job_member in zip(members, job.members, strict=True)
    }

    def together(part: Sequence[Member]) -> list[Outcome]:
        ours = [jobs[id(member)] for member in part]
        modules = {module for node in ours for module in node.modules}
        with calling(modules if kind.vectorised else ()):
            whole = part
            is_plain = kind.vectorised and job.alone and _is_own(part[0])
            if kind.vectorised:
                whole = _fitting(kind, part, machine, is_plain=is_plain)
        plain = [PLAIN] if is_plain else []
        snapshots.recorded += plain
        keeping = machine
        if job.code and all(job.code):  # else an edit could not be seen
            name = snapshot_name(job, [*plain, *(node.key for node in ours)], machine)
            keeping = replace(machine, partial=snapshots.of(name, len(part)))
        with snapshots.looking(modules, machine) as window:
            results = find(job.kind).compute(whole, keeping)
        if window is not None:
            seen = window.observed()
            snapshots.observed |= {node.key: seen for node in ours}
        if len(results) != len(whole):
            raise InputError(
                f"{kind.name}: expected {len(whole)} outcomes, got {len(results)}. "
                "Return one for each member."
            )
        return [checked(kind, outcome) for outcome in results[: len(part)]]

    # Node by node nothing is shared, so a failure costs its siblings no second try.
    parts = [members] if kind.vectorised else [[member] for member in members]
    return [result for part in parts for result in bisect(part, together)]


_specs: dict[str, object] = {}


def are_loaded_anew(modules: Collection[str]) -> bool:
    """Return whether one of some modules has been loaded since the last call for it."""
    now = {name: getattr(sys.modules.get(name), "__spec__", None) for name in modules}
    are_new = any(_specs.get(name) is not spec for name, spec in now.items())
    _specs.update(now)
    return are_new


def forget_models() -> None:
    """Have each tile call the factories of its models itself."""
    problems: Any = sys.modules.get("curvflow.tasks.networks.problems")
    if problems is not None:  # else none was called in this process
        problems.forget()


def snapshot_name(job: TileJob, keys: Sequence[str], machine: Machine) -> str:
    """Name a tile's snapshot by all that its last bits depend on."""
    where = [machine.device, machine.hardware, machine.threads, machine.compiler]
    return sha256([job.kind, job.code, list(keys), where, _versions()])


@cache
def _versions() -> list[str]:
    return [version(library) for library in LIBRARIES]


def write(
    store: Store,
    kind: Kind,
    computed: Sequence[tuple[Outcome | BaseException, int]],
    *,
    cost: Cost,
    reads: Sequence[Observed | None],
) -> list[Computed | Failed]:
    """Write the outcomes of a tile, those of equal shapes into one payload."""
    places = _write_payloads(store, [result for result, _ in computed])
    reports: list[Computed | Failed] = []
    for number, (result, width) in enumerate(computed):
        if isinstance(result, BaseException):
            reports.append(failure(result))
            continue
        parts = part_digests(kind.outputs, result)
        payload, slot = places.get(number, (None, 0))
        reports.append(
            Computed(
                digest=result_digest(parts, result.status, result.reason),
                parts=parts,
                status=result.status,
                reason=result.reason,
                payload=payload,
                slot=slot,
                seconds=cost.seconds,
                width=width,
                device=cost.device,
                covered=cost.covered,
                how=cost.how,
                reads=reads[number],
            )
        )
    return reports


def _write_payloads(
    store: Store, results: Sequence[Outcome | BaseException]
) -> Mapping[int, tuple[str, int]]:
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, result in enumerate(results):
        if isinstance(result, Outcome) and result.arrays:
            # Of what stays on disk a payload holds one node.
            alone = number if any(map(is_on_disk, result.arrays.values())) else None
            alike[(alone, *_shapes(result))].append(number)
    places = {}
    for numbers in alike.values():
        several = [r for n in numbers if isinstance(r := results[n], Outcome)]
        payload = store.write_payload(
            {
                name: _stacked(store, [r.arrays[name] for r in several])
                for name in several[0].arrays
            }
        )
        places.update({n: (payload, slot) for slot, n in enumerate(numbers)})
    return places


def _stacked(store: Store, arrays: Sequence[Array]) -> Array:
    if store.keeps_rows and is_on_disk(arrays[0]):
        return arrays[0]
    if len(arrays) == 1:  # a large one is not copied
        return np.asarray(arrays[0])[None]
    return np.stack(arrays)


def _shapes(outcome: Outcome) -> tuple[object, ...]:
    # Texts of different length stack; other types must be equal.
    return tuple(
        (
            name,
            array.shape,
            array.dtype.kind if array.dtype.kind == "U" else array.dtype,
        )
        for name, array in sorted(outcome.arrays.items())
    )


def failure(error: BaseException) -> Failed:
    """Describe an error for the run's record."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Failed(portable(text), portable_traceback(error))


def checked(kind: Kind, outcome: Outcome) -> Outcome:
    """Return an outcome once it is as its kind declares it.

    Raises:
        InputError: a variable is missing, is not declared, or has another type, number
            of dimensions or size than declared.
    """
    known = {variable.name: variable for variable in kind.outputs}
    for name in outcome.arrays.keys() - known.keys():
        raise InputError(
            f"{kind.name}: expected declared variables, got '{name}'. Add it to the "
            "outputs, or leave it out."
        )
    needed = [name for name, variable in known.items() if not variable.optional]
    lacking = [name for name in needed if name not in outcome.arrays]
    if lacking and outcome.status == "ok":
        got = ", ".join(outcome.arrays) or "nothing"
        raise InputError(
            f"{kind.name}: expected the declared variable {lacking[0]}, got {got}. "
            "Return it, or declare it optional."
        )
    sizes: dict[str, int] = {}
    for name, array in outcome.arrays.items():
        _check_type(kind.name, known[name], array)
        _check_shape(kind.name, known[name], array, sizes)
    return outcome


def _check_type(kind: str, variable: Variable, array: Array) -> None:
    if not isinstance(array, np.ndarray | np.generic | DiskArray):
        got = type(array).__name__
        raise InputError(
            f"{kind}: expected {variable.name} as an array, got {got}. Make it one by "
            "numpy.asarray, or return the mapping without an Outcome."
        )
    is_text = array.dtype.kind in "UOT"
    dtypes = (variable.dtype, variable.or_dtype or variable.dtype)
    fits = is_text if variable.dtype == "str" else array.dtype in dtypes
    if not fits:
        expected = f"{variable.name} of {variable.dtype}"
        raise InputError(
            f"{kind}: expected {expected}, got {array.dtype}. Convert it, or declare "
            "its type."
        )


def _check_shape(
    kind: str, variable: Variable, array: Array, sizes: dict[str, int]
) -> None:
    dims = variable.dims
    named = [dim for dim in dims if dim != ELLIPSIS]
    fits = array.ndim == len(dims) or (ELLIPSIS in dims and array.ndim >= len(named))
    if not fits:
        raise InputError(
            f"{kind}: expected {variable.name} with the dimensions "
            f"({', '.join(dims)}), got an array of shape {array.shape}. Return one of "
            "these dimensions, or declare others."
        )
    for dim, size in zip(named, array.shape, strict=False):
        if sizes.setdefault(dim, size) != size:
            raise InputError(
                f"{kind}: expected {variable.name} with {sizes[dim]} entries along "
                f"{dim}, got {size}. Return as many, or declare another dimension."
            )


# Remedies that save less than this part are not named, and three are enough.
LEAST, MOST = 0.1, 3

# Choices that take less memory than others.
_LEANER = {
    ("dtype", "float64"): "float32",
    ("structure", "block"): "kron",
    ("other", "block"): "diag",
}


def remedies(kind: Kind, member: Member, room: int = 0) -> str:
    """Return what would make a node smaller, in a sentence, the most effective first.

    Each parameter that can be lowered is halved, switched off or given its leaner
    choice, and the memory estimated anew; what makes no difference is not named. Where
    a lower number alone leaves it within `room` bytes, the largest such number is
    named, to two digits.
    """
    implementation = find(kind.name)

    def bytes_with(name: str, value: object) -> float:
        params = member.params.model_copy(update={name: value})
        return implementation.member_bytes(replace(member, params=params))

    whole, data = implementation.member_bytes(member), implementation.data_bytes(member)
    saved: dict[str, float] = {"take fewer samples": data / 2}
    names: dict[str, str] = {}
    for words, name, value in _smaller(member.params):
        with suppress(Exception):  # what no estimate can be made of is no remedy
            saved[words] = whole - bytes_with(name, value)
            names[words] = name
    worth = [words for words in saved if saved[words] >= LEAST * whole]
    best = sorted(worth, key=lambda words: -saved[words])[:MOST]
    for number, words in enumerate(best):
        if not words.startswith("lower"):
            continue
        name = names[words]
        top, least = getattr(member.params, name), _least(member.params, name)
        with suppress(Exception):
            fitting = _largest(partial(bytes_with, name), top, room)
            if fitting >= least and _is_taken(member.params, name, fitting):
                best[number] = f"{words} to {fitting}"
    sentence = ", ".join(
        [*(best or ["take a smaller model"]), "or take another machine."]
    )
    return sentence[0].upper() + sentence[1:]


def _is_taken(params: Params, name: str, value: object) -> bool:
    """Return whether parameters may have another value."""
    with suppress(ValueError):
        return bool(type(params)(**{**dict(params), name: value}))
    return False


def _largest(bytes_with: Callable[[int], float], top: int, room: int) -> int:
    """Return the largest number below another that needs no more room; 0 if none."""
    fits, over = 0, top
    while over - fits > max(1, fits // 200):
        middle = (fits + over) // 2
        if bytes_with(middle) <= room:
            fits = middle
        else:
            over = middle
    digits = int(10 ** max(0, len(str(fits)) - 2))
    return fits // digits * digits


def _least(params: Params, name: str) -> int:
    """Return the least number that a parameter may be."""
    marks = type(params).model_fields[name].metadata
    least: int = max([1, *(getattr(mark, "ge", 1) for mark in marks)])
    return least


def _smaller(params: Params) -> Iterator[tuple[str, str, Any]]:
    """Yield a remedy, the parameter's name, and a smaller value."""
    for name in type(params).model_fields:
        value = getattr(params, name)
        if value is True:
            yield f"set {name}: false", name, False
        elif type(value) is int:
            least = _least(params, name)
            if least < value:
                yield f"lower {name}", name, max(least, value // 2)
        elif type(value) is str:
            leaner = _LEANER.get((name, value))
            # A kind of a user's may have other choices by the same name.
            if leaner is not None and _is_taken(params, name, leaner):
                yield f"set {name}: {leaner}", name, leaner


KEEP_EVERY = 60.0
READS = "files and variables"  # the array of a snapshot that names them


def _unheard(_: str) -> None:
    """Drop the line."""


class Snapshots:
    """The snapshots of one run's tiles."""

    def __init__(
        self,
        store: Store,
        stop: Stopping,
        *,
        every: float = KEEP_EVERY,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] = _unheard,
        folder: str = "/",
    ) -> None:
        self.store, self.stop, self.every, self.clock = store, stop, every, clock
        self.tell, self.stage = tell, ""
        self.folder = folder  # the study's
        # Choices of the tile in work, such as its differentiation mode.
        self.recorded: list[str] = []
        # What code of a user's has used, by action key.
        self.observed: dict[str, Observed] = {}
        self.window: Window | None = None
        self._used: set[str] = set()
        # Whether a tile since the last call of `taken` went on from a state, so that
        # its time is that of the rest alone.
        self.were_found = False

    def turn_to(self, stage: str) -> None:
        """Name the stage whose tiles come next."""
        self.stage = stage

    @contextmanager
    def looking(
        self, modules: Collection[str], machine: Machine
    ) -> Iterator[Window | None]:
        """Look while a tile runs that reaches modules of a user's, if any."""
        # What is compiled serves later tiles as well, until a module is loaded anew.
        is_compiled, are_new = machine.compiler != "none", are_loaded_anew(modules)
        if modules and (are_new or not is_compiled):
            forget_models()
        with calling(modules, is_held=is_compiled) as window:
            self.window = window
            try:
                yield window
            finally:
                self.window = None

    def of(self, name: str, nodes: int) -> TileSnapshot:
        """Return the snapshot of one tile of so many nodes."""
        return TileSnapshot(self, name, nodes)

    def used(self, name: str) -> None:
        """Remember that there is a state of this name."""
        self._used.add(name)

    def taken(self) -> tuple[str, ...]:
        """Return the names of all states since the last call.

        The caller that publishes what they led to removes them from the store.
        """
        names, self._used = tuple(self._used), set()
        self.were_found = False
        return names


class TileSnapshot:
    """The snapshot of one tile; see `tasks.registry.Partial`."""

    def __init__(self, snapshots: Snapshots, name: str, nodes: int) -> None:
        self._snapshots, self._name = snapshots, name
        self._counted = counted(nodes, "node")
        self._last = snapshots.clock()

    def load(self) -> Mapping[str, Array] | None:
        """Return the arrays that an earlier attempt at the same tile saved."""
        self._snapshots.used(self._name)  # to be cleared even if it cannot be read
        arrays = self._snapshots.store.load_snapshot(self._name)
        if arrays and not self._is_sound(arrays):
            self.tell("a kept state is of other files, and is not used")
            return None
        if arrays:
            if self._snapshots.window is not None:
                self._snapshots.window.goes_on()
            self._snapshots.were_found = True
            go = "goes" if self._counted == "1 node" else "go"
            self.tell(f"{self._counted} {go} on from a kept state")
        return {n: a for n, a in arrays.items() if n != READS} if arrays else arrays

    def _is_sound(self, arrays: Mapping[str, Array]) -> bool:
        """Return whether the files that a state was kept with are as they were."""
        window = self._snapshots.window
        if window is None or READS not in arrays:
            return True
        kept = json.loads(arrays[READS].tobytes())
        folder = self._snapshots.folder
        return all(
            window.goes_on_from(known_name(name, folder), digest)
            for name, digest in kept.items()
        )

    def _with_reads(self, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        window = self._snapshots.window
        if window is None:
            return arrays
        folder = self._snapshots.folder
        seen = {
            stored_name(name, folder): sight.digest
            for name, sight in window.sights().items()
        }
        data = np.frombuffer(json.dumps(seen).encode(), dtype=np.uint8)
        return {**arrays, READS: data}

    def is_due(self) -> bool:
        """Return whether the snapshot is too old, or the run is asked to end."""
        if self._snapshots.stop.signal is not None:
            return True
        return self._snapshots.clock() - self._last >= self._snapshots.every

    def keep(self, arrays: Mapping[str, Array]) -> None:
        """Replace the snapshot; raises Stopped if the run is asked to end."""
        with suppress(StoreError):  # a full disk is met by what publishes
            whole = self._with_reads(arrays)
            self._snapshots.store.save_snapshot(self._name, whole)
            if self._snapshots.stop.signal is not None:
                self.tell(f"the state of {self._counted} in work is kept")
        self._snapshots.used(self._name)
        self._last = self._snapshots.clock()
        self._snapshots.stop.check()

    def tell(self, message: str) -> None:
        """Show a line to the observer, after the name of the stage."""
        self._snapshots.tell(f"{self._snapshots.stage}: {message}")

    def record(self, message: str) -> None:
        """Show a line, and keep it for the receipts of the tile."""
        self._snapshots.recorded.append(message)
        self.tell(message)
