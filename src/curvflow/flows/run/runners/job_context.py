"""What travels to a worker beside a tile, and the software it must have."""

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
from curvflow.flows.plan.plan import Plan
from curvflow.flows.run.tile.snapshots import Partials
from curvflow.schemas.options import RunOptions
from curvflow.stores.base import Store

# Another version of these may differ in the last bits, or in what is written.
LIBRARIES = ("curvflow", "torch", "numpy", "scipy", "scikit-learn", "xarray", "zarr")
SOURCE = "source of curvflow"


@cache
def this_build() -> Mapping[str, str]:
    """Return what this process computes with, as it was when first asked.

    Returns:
        Library to version, with `python` to its minor version, and a digest of this
        package's files: two of one version need not be the same.
    """
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = "absent"
    return {**found, SOURCE: _source()}


def difference(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str | None:
    """Say in what two builds differ.

    Args:
        theirs: of the worker.
        ours: of the run.

    Returns:
        `expected torch 2.9.0, got 2.8.0`, of the first that differs; None if none does.
    """
    for name, wanted in ours.items():
        if (got := theirs.get(name, "nothing")) != wanted:
            return f"expected {name} {wanted}, got {got}"
    return None


def _source() -> str:
    package, digest = Path(__file__).parents[2], sha256()
    for path in sorted(package.rglob("*.py")):
        if path.is_relative_to(package / "cli"):
            continue  # which computes nothing
        digest.update(f"{path.relative_to(package)}\0".encode())
        digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


@dataclass(frozen=True)
class Order:
    """How to carry out the tiles of a run.

    Attributes:
        store: its address.
        token: name of a state that the store holds while the run lasts; a store without
            it is another one.
        begun: log number at which the run began; 0 before.
        folder: the study's; modules beside the study are imported from it.
        modules: to be imported before a tile is read.
        files: digest of each file that the code of the nodes was told from.
        threads: of one tile's CPU operations.
        compiler: mode of torch.compile, or `none`.
        every: seconds between two states that a tile keeps.
        silence: seconds without a sign of life after which the run is gone.
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
    """An order as bytes, for whatever carries it has no need to import a thing.

    Attributes:
        build: a mapping of plain text, which any version of this package can read.
        order: the order.
    """

    build: bytes
    order: bytes


def order_for(
    plan: Plan,
    store: Store,
    options: RunOptions,
    folder: Path,
    partials: Partials,
    token: str,
) -> Order:
    """Write the order for the tiles of a run.

    Args:
        plan: what is to be done; its code has been told.
        store: holds the results.
        options: how to compute.
        folder: the study's.
        partials: of the run.
        token: see `Order`.

    Returns:
        The order.
    """
    codes: dict[int, Code] = {}
    homes: set[str] = set()
    for node in plan.graph:
        # Cached ones too: what turns out to be lost is computed again.
        code = plan.codes.of(node)
        codes[id(code)] = code
        homes.add(node.kind.home.partition(":")[0])
    told = {
        name.partition(":")[0] for code in codes.values() for name in code.definitions
    }
    return Order(
        store=address_of(store),
        token=token,
        begun=0,
        folder=str(folder.resolve()),
        modules=tuple(sorted(filter(_is_theirs, homes | told))),
        files={n: d for n, d in plan.codes.files().items() if _is_theirs(n)},
        threads=options.num_threads,
        compiler=options.compiler,
        every=partials.every,
        silence=options.silence,
    )


def address_of(store: Store) -> str:
    """Return a store's address, of the same meaning in every process."""
    if "://" in store.location:
        return store.location
    return str(Path(store.location).absolute())


def sealed(order: Order) -> Sealed:
    """Make an order ready to travel."""
    return Sealed(pickle.dumps(dict(this_build())), pickle.dumps(order))


def _is_theirs(module: str) -> bool:
    return module.partition(".")[0] not in ("", OWN)
