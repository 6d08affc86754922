"""Receipts of nodes, and records of runs, code, settlements and pins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from curvflow.schemas.keys import array_digest, sha256
from curvflow.schemas.kind import Variable
from curvflow.schemas.nodes import Label, Outcome, Status

# Digest of a part that divergence has left without finite content.
DIVERGED = "diverged"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The record "action key -> digest, payload, slot, status, cost, provenance".

    Attributes:
        key: action key.
        stage: name of the stage that computed it first; for explanations only.
        coords: axis labels it was first computed at; for explanations only.
        kind: name of the kind.
        version: version of the kind.
        params: plain parameters, as in the key.
        inputs: input digests, as in the key.
        digest: content hash of the whole result.
        parts: content hash per variable, `variable@label` per slice of a sliced one.
        status: `ok` or `diverged`.
        reason: why it diverged.
        payload: where the arrays are; None if there are none.
        slot: row of the payload.
        seconds: this node's share of the tile's time.
        width: number of members computed together.
        device: where it was computed.
        code: fingerprint of the code that computed it; empty if it is not known.
        run: log number at which the run that computed it began; 0 if not known.
        covered: how much of what its kind continues, such as epochs, `seconds` were
            spent on; None if that is not known, or the kind continues nothing.
        how: what the computation chose on the spot, in words, such as the fastest
            order of differentiation; empty if nothing.
        reads: files, variables and sources of chance that a user's code used; None
            where no code of a user's runs, or nobody looked. `files` has per name
            digest and stat, None if it was not there; `env` per declared variable the
            digest of its value; `undeclared`, `sources` and `unseen` list names, and
            `loads` the modules that computed names have led to, if all are known;
            `observed` is False if nobody was to look.
    """

    key: str
    stage: str
    coords: Mapping[str, Label]
    kind: str
    version: int
    params: Mapping[str, Any]
    inputs: Mapping[str, Any]
    digest: str
    parts: Mapping[str, str]
    status: Status = "ok"
    reason: str = ""
    payload: str | None = None
    slot: int = 0
    seconds: float = 0.0
    width: int = 1
    device: str = "cpu"
    code: str = ""
    run: int = 0
    covered: int | None = None
    how: str = ""
    reads: Mapping[str, Any] | None = None


def part_digests(outputs: Sequence[Variable], outcome: Outcome) -> dict[str, str]:
    """Return the digest of each variable of an outcome, of a sliced one by slice."""
    parts: dict[str, str] = {}
    for variable in outputs:
        if variable.name not in outcome.arrays:
            continue
        array = outcome.arrays[variable.name]
        if variable.sliced is None:
            parts[variable.name] = _digest(array, outcome.status)
            continue
        labels = outcome.arrays[variable.sliced]
        for label, piece in zip(labels, array, strict=True):
            parts[f"{variable.name}@{label}"] = _digest(piece, outcome.status)
    return parts


def _digest(array: np.ndarray[Any, Any], status: Status) -> str:
    broken = status == "diverged" and array.dtype.kind == "f"
    if broken and not np.isfinite(array).all():
        return DIVERGED
    return array_digest(array)


def result_digest(parts: Mapping[str, str], status: Status, reason: str) -> str:
    """Return the digest of a result: of its part digests, status and reason."""
    return sha256([dict(parts), status, reason])


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One invocation of `curvflow run`, as recorded in the commit log.

    Attributes:
        number: run number within its study, from 1.
        study: name of the study.
        begun: log number of the entry that opened it.
        started: UTC time, ISO 8601.
        document: the resolved study, as plain data.
        environment: versions of curvflow, Python and libraries, and the platform.
        options: run knobs; never part of any key.
        ended: log number of the entry that closed it; None if it was cut short.
        seconds: wall time.
        counts: `executed`, `cached`, `failed`, `diverged`, each per stage.
        failures: stage, coords and error of each failed node.
        tables: per stage its dims, and coords and `[commit, row]` per node.
    """

    number: int
    study: str
    begun: int
    started: str
    document: Mapping[str, Any]
    environment: Mapping[str, str]
    options: Mapping[str, Any]
    ended: int | None = None
    seconds: float = 0.0
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    failures: Sequence[Mapping[str, Any]] = ()
    tables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """`done`, `failed` (some nodes), or `interrupted` unless still running."""
        if self.ended is None:
            return "interrupted"
        return "failed" if self.failures else "done"


@dataclass(frozen=True, slots=True)
class CodeRecord:
    """Code that computed results, as recorded in the commit log.

    Attributes:
        kind: name of the kind.
        version: version of the kind that was declared then.
        form: number of the normal form; only equal ones can be compared.
        definitions: digest of each function, class or constant reached, by its name.
        files: digest of each module that was read for it, by its name.
    """

    kind: str
    version: int
    form: int
    definitions: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settlement:
    """Settlement: a person's record that changed code gives the same results.

    Attributes:
        kind: name of the kind.
        pairs: fingerprints before and after, of each node concerned.
        reason: why.
        evidence: outcome of a re-run of a sample; empty if none was requested.
    """

    kind: str
    pairs: Sequence[Sequence[str]]
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pin:
    """Pin: a run whose results collection keeps.

    Attributes:
        name: of the pin.
        begun: log number at which the run began.
        reason: why it is kept.
    """

    name: str
    begun: int
    reason: str
