"""Estimates of a stage counted by their verdicts: converged or not."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from curvflow.errors import StoreError, UnknownNameError
from curvflow.flows.results.node_results import View
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.tables import CONVERGED, UNCONVERGED
from curvflow.schemas.nodes import Array, Table
from curvflow.schemas.records.receipts import Receipt
from curvflow.schemas.words import counted, node_label
from curvflow.stores.base import Store

VERDICT, FAILED = "verdict", "failed"
CAUSE = re.compile(r"input (\S+) diverged: ")  # as `passed_on` writes it

MOST_NAMES = 3  # of failed nodes

Digests = tuple[tuple[str, str], ...]  # of verdicts, by their variables


def verdicts(view: View, store: Store) -> Counter[str]:
    """Count a stage's estimates by verdict: 9 of `converged`, 2 of `drifting`.

    Kinds that flag their numbers have `converged`, if all are, and `unconverged`.
    Estimates of chains that all failed are `failed`; those of other diverged inputs are
    not counted, nor verdicts that are removed or cannot be read. Verdicts of equal
    digests are read once, so that thousands of nodes are counted fast.
    """
    kind = _kind(view)
    judges = _judges(kind)
    judged: list[str | Digests] = []
    unread: dict[Digests, Receipt] = {}
    for number, receipt in enumerate(view.receipts):
        if kind is None or receipt is None:
            continue
        if names := [name for name in judges if name in receipt.parts]:
            digests = tuple((name, receipt.parts[name]) for name in names)
            judged.append(digests)
            if view.status(number) != "removed":
                unread.setdefault(digests, receipt)
        else:
            judged.append(inherited(kind, receipt))
    known = _read(store, unread)
    words = (item if isinstance(item, str) else known.get(item) for item in judged)
    return Counter(word for word in words if word)


def inherited(kind: Kind, receipt: Receipt) -> str:
    """Return `failed` for a result all of whose chains upstream failed, else nothing.

    Its kind must have verdicts.
    """
    cause = CAUSE.match(receipt.reason)
    if cause is None or not all(map(_has_verdict, (kind, _declared(cause[1])))):
        return ""
    return FAILED


def _has_verdict(kind: Kind | None) -> bool:
    variable = None if kind is None else kind.output(VERDICT)
    return variable is not None and variable.dtype == "str" and not variable.dims


def _kind(view: View) -> Kind | None:
    return view.declared or _declared(view.use)


def _declared(name: str) -> Kind | None:
    try:
        return find_kind(name)
    except UnknownNameError:  # of an earlier run, that nothing declares any more
        return None


def _judges(kind: Kind | None) -> list[str]:
    outputs = kind.outputs if kind else ()
    return list(
        dict.fromkeys(variable.judged_by for variable in outputs if variable.judged_by)
    )


def _read(store: Store, unread: Mapping[Digests, Receipt]) -> dict[Digests, str]:
    """Read verdicts, each by one of the results that have it; unreadable ones lack."""
    alike: dict[tuple[str, ...], list[Digests]] = defaultdict(list)
    for digests in unread:
        alike[tuple(name for name, _ in digests)].append(digests)
    words = {}
    for names, several in alike.items():
        rows = store.fetch_many([unread[digests] for digests in several], names)
        for digests, arrays in zip(several, rows, strict=True):
            if not isinstance(arrays, StoreError):
                words[digests] = _word([arrays[name] for name in names])
    return words


def _word(judges: Sequence[Array]) -> str:
    words = [judge.item() for judge in judges if judge.dtype.kind == "U"]
    if not words:
        sure = all(bool(judge.all()) for judge in judges)
        words = [CONVERGED if sure else UNCONVERGED]
    doubts = [str(word) for word in words if word != CONVERGED]
    return doubts[0] if doubts else CONVERGED


def unconverged_of(stage: str, counts: Counter[str]) -> str:
    """Word the unconverged estimates of a stage; empty if all are converged.

    Such as `3 of 12 estimates of llc unconverged: 2 drifting, 1 escaped`.
    """
    if not (number := _num_unconverged(counts)):
        return ""
    doubts = [(w, n) for w, n in counts.most_common() if w != CONVERGED]
    why = ", ".join(f"{n} {word}" for word, n in doubts if word != UNCONVERGED)
    more = f": {why}" if why else ""
    return f"{number} of {counts.total()} estimates of {stage} unconverged{more}"


def made_of(view: View, views: Iterable[View], store: Store) -> list[str]:
    """Word the unconverged estimates that a table is made of, a line per stage.

    Such as `made with 3 of 12 estimates of llc unconverged: 3 drifting`.
    """
    kind = _kind(view)
    if kind is None or not issubclass(kind.returns, Table):
        return []
    taken = {
        group[0]
        for receipt in view.receipts
        if receipt
        for several in receipt.inputs.values()
        if isinstance(several, Sequence) and not isinstance(several, str)
        for group in several
    }
    lines = [
        unconverged_of(view.stage, verdicts(view, store))
        for view in views
        if view.stage in taken
    ]
    return [f"made with {line}" for line in lines if line]


def made_without(view: View) -> list[str]:
    """Word the failed nodes that tables or figures are made without, a line per stage.

    Such as `made without 2 of 6 nodes of fit, which failed: fit[rule=sam], ...`.
    """
    taken: dict[str, dict[str, bool]] = defaultdict(dict)
    inputs = [
        several
        for receipt in view.receipts
        for several in (receipt.inputs.values() if receipt else ())
        if not isinstance(several, str)  # of one result
    ]
    for stage, coords, status, *_ in chain.from_iterable(inputs):
        taken[stage][node_label(stage, coords)] = status == FAILED
    lines = []
    for stage, nodes in taken.items():
        absent = [name for name, is_absent in nodes.items() if is_absent]
        if absent:
            more = len(absent) - MOST_NAMES
            names = ", ".join(absent[:MOST_NAMES]) + (f" and {more} more" * (more > 0))
            share = f"{len(absent)} of {counted(len(nodes), 'node')}"
            lines.append(f"made without {share} of {stage}, which failed: {names}")
    return lines


def verdicts_json(judged: Mapping[str, Counter[str]]) -> dict[str, Any]:
    """Return verdicts in the form of `curvflow run --json`."""
    return {
        "unconverged": {s: _num_unconverged(counts) for s, counts in judged.items()},
        "verdicts": {stage: dict(counts) for stage, counts in judged.items()},
    }


def _num_unconverged(counts: Counter[str]) -> int:
    return counts.total() - counts[CONVERGED]
