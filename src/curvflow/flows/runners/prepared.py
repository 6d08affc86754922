"""Make a worker's process ready for the tiles of a run, once."""

from __future__ import annotations

import pickle
import socket
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from uuid import uuid4

import numpy as np

from curvflow.errors import RequestError, StoreError
from curvflow.flows.code.sources import Sources
from curvflow.flows.runners.build import difference, this_build
from curvflow.flows.runners.lookout import Lookout
from curvflow.flows.runners.order import Order
from curvflow.stores.base import Store
from curvflow.stores.open import open_store

_imported: dict[str, str] = {}  # digests of files, as this process imported them


@dataclass(frozen=True)
class Prepared:
    """What the tiles of a run find in a worker's process.

    Attributes:
        order: how to carry them out.
        store: where results are.
        lookout: tells when the run ends.
    """

    order: Order
    store: Store
    lookout: Lookout


@lru_cache(maxsize=4)
def prepared(build: bytes, order: bytes) -> Prepared:
    """Check that tiles computed here are what the run planned, and prepare for them.

    Args:
        build: of the run, sealed.
        order: of the run, sealed.

    Returns:
        What its tiles need.

    Raises:
        RequestError: this process has other software, code or another store.
    """
    if found := difference(this_build(), pickle.loads(build)):
        raise RequestError(
            f"{found}. Install the same there as where the run is started, and restart "
            "the workers."
        )
    asked: Order = pickle.loads(order)
    if asked.folder not in sys.path:
        sys.path.insert(0, asked.folder)
    _bring_in(asked)
    store = _opened(asked.store)
    _check_shared(store, asked)
    return Prepared(asked, store, Lookout(store, asked.begun, silence=asked.silence))


@cache
def _opened(address: str) -> Store:
    return open_store(address, create=False)


def _bring_in(order: Order) -> None:
    """Import the modules of a run, and hold their files against those it was told of.

    Raises:
        RequestError: a module cannot be imported, or is of other code.
    """
    before = _digests(order)
    for name, digest in before.items():
        if name not in _imported or name not in sys.modules:
            _imported[name] = digest
    if all(_imported[name] == wanted for name, wanted in order.files.items()):
        for name in order.modules:
            _import(name, order.folder)
    after = _digests(order)
    for name, wanted in order.files.items():
        if not (_imported[name] == after[name] == wanted):
            raise RequestError(
                f"{name}: expected the code that the run was planned with, got other "
                "code. Install the same there, or restart the workers if it changed."
            )


def _import(name: str, folder: str) -> None:
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        raise RequestError(
            f"{name}: expected a module that can be imported, got {error}. Install it "
            f"there, or share the folder {folder}."
        ) from error
    # The node that needs it fails the same way, and tells of it.
    except Exception:
        return


def _digests(order: Order) -> dict[str, str]:
    sources = Sources(Path(order.folder), Path(__file__).parents[2])
    return {name: sources.digest(name) for name in order.files}


def _check_shared(store: Store, order: Order) -> None:
    """Find in the store what the run has put there, and write to it.

    Raises:
        RequestError: it is another store, or cannot be written.
    """
    try:
        is_there = store.partial(order.token) is not None
        if is_there:
            mine = f"{order.token}{uuid4().hex}"
            store.keep_partial(mine, {"token": np.zeros(1)})
            store.drop_partial(mine)
    except StoreError as error:
        raise RequestError(f"{error} (on {socket.gethostname()})") from error
    if not is_there:
        raise RequestError(
            f"{order.store}: expected the store of the run, got another one on "
            f"{socket.gethostname()}. Give --store a place that all workers share."
        )
