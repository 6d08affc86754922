"""Commit receipts of overlapping keys as fast as possible, each in its process."""

import json
import random
import sys
from dataclasses import replace
from pathlib import Path

from curvflow.stores.files import Disk
from curvflow.stores.local import LocalStore
from curvflow.stores.open import open_store
from curvflow.testing.stores import arrays_of, receipt_of


class Unlinkable(Disk):
    def link(self, source, target):
        raise OSError(95, "Operation not supported")


def race(where, writer, count, links):
    """Print what each commit made of its receipts: the live digests by key, as JSON."""
    store = (
        open_store(where, create=False)
        if links
        else LocalStore(Path(where), disk=Unlinkable())
    )
    draw = random.Random(writer)
    receipt = receipt_of(arrays_of(), 0)
    live = {}
    for _ in range(count):
        keys = draw.sample(range(4 * count), 3)
        ours = [
            replace(receipt, key=str(key), digest=f"writer {writer}") for key in keys
        ]
        live.update({got.key: got.digest for got in store.commit(ours)})
    json.dump(live, sys.stdout)
