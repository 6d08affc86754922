"""How a report was asked for, and the commands that ask for more of the same."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CREDENTIALS = re.compile(r"(?<=://)[^/@]*@")


@dataclass(frozen=True)
class Asked:
    """What the command line says of a study.

    Attributes:
        file: the study file, as written.
        store: where results are, as written; None for the default.
        profile: named overrides of the study.
        overrides: `a.b=c`, applied last.
        run: number of the run to go back to; None for the study as it stands.
    """

    file: Path
    store: str | None = None
    profile: str | None = None
    overrides: Sequence[str] = ()
    run: int | None = None

    @property
    def beside(self) -> str:
        """What is set beside the study file, in words; empty if nothing is."""
        profile = [] if self.profile is None else [f"profile {self.profile}"]
        return ", ".join([*profile, *(f"--set {one}" for one in self.overrides)])

    def command(self, verb: str, *arguments: str, of_run: bool = True) -> str:
        """Return the command that does something with the same study and store.

        Args:
            verb: such as `show`.
            arguments: of that command, behind the study.
            of_run: whether it takes `--run`.

        Returns:
            A line for a shell, without anybody's folders or passwords.
        """
        store = [] if self.store is None else ["--store", _shareable(self.store)]
        profile = [] if self.profile is None else ["--profile", self.profile]
        sets = [word for one in self.overrides for word in ("--set", one)]
        run = ["--run", str(self.run)] if of_run and self.run is not None else []
        words = ["curvflow", verb, _shareable(str(self.file)), *arguments]
        return shlex.join([*words, *store, *profile, *sets, *run])


def _shareable(place: str) -> str:
    """Return a path or address as others may read it: the last part of a full path."""
    if "://" in place:
        return CREDENTIALS.sub("", place)
    return Path(place).name if Path(place).is_absolute() else place
