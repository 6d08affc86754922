"""Job context: settings, code and software that workers need for a run's tiles."""

from __future__ import annotations

import pickle
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from curvflow.flows.plan.code.fingerprints import Code
from curvflow.flows.plan.code.sources import OWN
from curvflow.flows.run.context import RunContext
from curvflow.stores.base import Store

# Another version of these may differ in the last bits, or in what is written.
LIBRARIES = ("curvflow", "torch", "numpy", "scipy", "scikit-learn", "xarray", "zarr")
SOURCE = "source of curvflow"


@cache
def this_build() -> Mapping[str, str]:
    """Return the versions of libraries and Python, and a digest of this package.

    They are those of the first call; two packages of one version need not be equal.
    """
    build = {"python": ".".join(platform.python_version_tuple()[:2])}
    for library in LIBRARIES:
        try:
            build[library] = version(library)
        except PackageNotFoundError:
            build[library] = "absent"
    return {**build, SOURCE: _source()}


def difference(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str | None:
    """Word the first difference of two builds: `expected torch 2.9.0, got 2.8.0`."""
    for name, wanted in ours.items():
        if (got := theirs.get(name, "nothing")) != wanted:
            return f"expected {name} {wanted}, got {got}"
    return None


def _source() -> str:
    package, digest = Path(__file__).parents[3], sha256()
    for path in sorted(package.rglob("*.py")):
        if path.is_relative_to(package / "cli"):
            continue  # which computes nothing
        digest.update(f"{path.relative_to(package)}\0".encode())
        digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


@dataclass(frozen=True)
class JobContext:
    """The settings and code that the tiles of a run are computed with.

    Attributes:
        store: its address.
        token: name of a state that the store holds while the run lasts; a store without
            it is another one.
        begun: log number at which the run began; 0 before.
        folder: the study's; modules beside the study are imported from it.
        modules: to be imported before a tile is read.
        files: digest of each file that the code of the nodes was read from.
        threads: of one tile's CPU operations.
        compiler: mode of torch.compile, or `none`.
        every: seconds between two states that a tile keeps.
        silence: seconds without a heartbeat after which the run is gone.
    """

    store: str
    token: str
    begun: int
    folder: str
    modules: tuple[str, ...]
    files: Mapping[str, str]
    threads: int
    compiler: str
    every: float
    silence: float


@dataclass(frozen=True)
class Sealed:
    """A job context as bytes, so that the scheduler need not import its modules.

    Attributes:
        build: a mapping of plain text, which any version of this package can read.
        context: the job context.
    """

    build: bytes
    context: bytes


def job_context(context: RunContext, token: str, *, every: float) -> JobContext:
    """Return the job context of a run whose code has been read."""
    plan, options = context.plan, context.options
    codes: dict[int, Code] = {}
    homes: set[str] = set()
    for node in plan.graph:
        # Cached ones too: what turns out to be lost is computed again.
        code = plan.codes.of(node)
        codes[id(code)] = code
        homes.add(node.kind.home.partition(":")[0])
    reached = {
        name.partition(":")[0] for code in codes.values() for name in code.definitions
    }
    return JobContext(
        store=address_of(context.store),
        token=token,
        begun=0,
        folder=str(context.files.folder.resolve()),
        modules=tuple(sorted(filter(_is_theirs, homes | reached))),
        files={n: d for n, d in plan.codes.files().items() if _is_theirs(n)},
        threads=options.num_threads,
        compiler=options.compiler,
        every=every,
        silence=options.silence,
    )


def address_of(store: Store) -> str:
    """Return a store's address, of the same meaning in every process."""
    if "://" in store.location:
        return store.location
    return str(Path(store.location).absolute())


def sealed(context: JobContext) -> Sealed:
    """Return a job context ready to travel."""
    return Sealed(pickle.dumps(dict(this_build())), pickle.dumps(context))


def _is_theirs(module: str) -> bool:
    return module.partition(".")[0] not in ("", OWN)
