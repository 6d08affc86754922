"""The request for a report, and the commands of the same study."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CREDENTIALS = re.compile(r"(?<=://)[^/@]*@")


@dataclass(frozen=True)
class ReportRequest:
    """A study, and the options of the command line.

    Attributes:
        file: the study file, as written.
        store: its address, as written; None for the default.
        profile: named overrides of the study.
        overrides: `a.b=c`, applied last.
        run: number of an earlier run; None for the current study.
        max_nodes: nodes beyond which a study is not planned; None for the default.
    """

    file: Path
    store: str | None = None
    profile: str | None = None
    overrides: Sequence[str] = ()
    run: int | None = None
    max_nodes: int | None = None

    @property
    def modifications(self) -> str:
        """Return profile and overrides in words; empty without any."""
        profile = [] if self.profile is None else [f"profile {self.profile}"]
        return ", ".join(
            [*profile, *(f"--set {override}" for override in self.overrides)]
        )

    def command(self, verb: str, *arguments: str, of_run: bool = True) -> str:
        """Return a shell line for this study, without private folders or passwords."""
        store = [] if self.store is None else ["--store", _shareable(self.store)]
        profile = [] if self.profile is None else ["--profile", self.profile]
        sets = [word for override in self.overrides for word in ("--set", override)]
        run = ["--run", str(self.run)] if of_run and self.run is not None else []
        if self.max_nodes is not None:
            run += ["--max-nodes", str(self.max_nodes)]
        words = ["curvflow", verb, _shareable(str(self.file)), *arguments]
        return shlex.join([*words, *store, *profile, *sets, *run])


def _shareable(place: str) -> str:
    """Return a path or address for others: the last part of an absolute path."""
    if "://" in place:
        return CREDENTIALS.sub("", place)
    return Path(place).name if Path(place).is_absolute() else place
