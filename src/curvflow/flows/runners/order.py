"""What travels to a worker beside a tile, the same for all tiles of a run."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from curvflow.flows.code.fingerprints import Code
from curvflow.flows.code.sources import OWN
from curvflow.flows.partials import Partials
from curvflow.flows.plan import Plan
from curvflow.flows.runners.build import this_build
from curvflow.schemas.options import RunOptions
from curvflow.stores.base import Store


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
