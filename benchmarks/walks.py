"""Count the walk of a study, and of `probe.llc`, through the files of the package.

    python -m benchmarks.walks [--files]

A walk is a profile of first calls: of the quickstart study on an empty store, through
`flows/`, and of `probe.llc` in `studies/llc-regular.yaml`, through `tasks/`, both in
the profile `smoke`. A stay is an unbroken stretch in one file, a return a stay in a
file seen before. A call leads on if its function calls one in another file; special
methods are read with their class. The subject of a walk leaves out rooms with walks of
their own, whose functions are known by their names: `plan/code/`, and for `probe.llc`
networks and their operators, derivatives, Krylov methods and estimators. `--files`
prints the stays of the subjects too, file by file.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import curvflow
from curvflow import RunOptions

STUDIES = Path(__file__).parents[1] / "studies"
PACKAGE = str(Path(curvflow.__file__).parent) + os.sep
PROBE = "tasks/probes/learning_coefficients/llc.py"
CODE = ("flows/plan/code/",)
CURVATURE = (
    "tasks/networks/",
    "tasks/curvature/",
    *(
        f"tasks/numerics/{room}"
        for room in ("operators/", "derivatives/", "krylov/", "estimators/", "streams")
    ),
)


def place(code: CodeType) -> str:
    """Return the file of a function, relative to the package."""
    return code.co_filename.removeprefix(PACKAGE)


def special(code: CodeType) -> bool:
    """Say whether a function is a special method, such as a constructor."""
    return code.co_name.startswith("__")


class Walk:
    """Functions below a folder, in the order of their first calls, and what they call.

    Args:
        folder: functions below it are counted.
        others: rooms below it with walks of their own.
        within: a file; only what its functions call is counted, if it is given.
    """

    def __init__(self, folder: str, others: tuple[str, ...], within: str = ""):
        self.folder = folder
        self.others = others
        self.within = within
        self.depth = 0
        self.calls: dict[CodeType, set[CodeType]] = {}

    def counts(self, code: CodeType) -> bool:
        """Say whether a function is on the walk: named, and below the folder."""
        return place(code).startswith(self.folder) and not code.co_name.startswith("<")

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call, as `sys.setprofile` asks."""
        code = frame.f_code
        if event not in ("call", "return") or not self.counts(code):
            return
        if self.within and place(code) == self.within:
            self.depth += 1 if event == "call" else -1
        if event == "return" or (self.within and not self.depth):
            return
        self.calls.setdefault(code, set())
        caller = frame.f_back
        while caller is not None and not self.counts(caller.f_code):
            caller = caller.f_back
        if caller is not None and caller.f_code in self.calls:
            self.calls[caller.f_code].add(code)

    def every(self) -> list[str]:
        """Return the file of every first call."""
        return [place(code) for code in self.calls]

    def leading_on(self, others: tuple[str, ...] = ()) -> list[str]:
        """Return the files of first calls of functions that call another file.

        Args:
            others: rooms whose functions are neither read nor lead on.
        """
        read = {
            code: place(code)
            for code in self.calls
            if not special(code) and not place(code).startswith(others)
        }
        return [
            file
            for code, file in read.items()
            if any(read.get(call, file) != file for call in self.calls[code])
        ]

    def subject(self) -> list[str]:
        """Return the files of first calls that lead on within the walk's subject."""
        return self.leading_on(self.others)


def unbroken(files: list[str]) -> list[str]:
    """Return the file of each stay."""
    return [
        file for file, last in zip(files, ["", *files], strict=False) if file != last
    ]


def show(name: str, files: list[str]) -> None:
    """Print files, stays, returns and the files returned to most."""
    stays = unbroken(files)
    count = Counter(stays)
    most = max(count.values()) - 1
    whose = ", ".join(file for file, stayed in count.items() if stayed - 1 == most)
    print(
        f"{name}: {len(count)} files, {len(stays)} stays,"
        f" {len(stays) - len(count)} returns, at most {most} to one file ({whose})"
    )


def main() -> None:
    """Walk twice and print six lines."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", action="store_true", help="print the stays")
    lists = parser.parse_args().files
    for study, walk in (
        ("quickstart", Walk("flows/", CODE)),
        ("llc-regular", Walk("tasks/", CURVATURE, PROBE)),
    ):
        with tempfile.TemporaryDirectory() as folder:
            options = RunOptions(workers=1)
            path = STUDIES / f"{study}.yaml"
            sys.setprofile(walk)
            try:
                curvflow.run(path, store=folder, profile="smoke", options=options)
            finally:
                sys.setprofile(None)
        show(f"{study}, every call", walk.every())
        show(f"{study}, calls that lead on", walk.leading_on())
        show(f"{study}, calls that lead on in its subject", walk.subject())
        if lists:
            print(*unbroken(walk.subject()), sep="\n")


if __name__ == "__main__":
    main()
