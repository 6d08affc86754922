"""Random projects that read files, and the changes that a run must and must not notice.

    python -m tests.flows.reads.random_cases CASES SEED

Each case draws files, modules that read some of them on import, that keep what they
read in a memo, and stages whose functions read others in ways of `WAYS`, by themselves,
through helpers, memos and threads, or only if a first file says so. The value of a
node is the sum of what it stands on, so what it must notice is known beforehand. Every
file is changed in turn: by its time, which nothing may notice, and by its content.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.flows.reads.project import KINDS, Project, flip, project, touch

HELPERS = """
import gzip, mmap, os, shutil, sys, tempfile, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np


def by_open(path):
    with open(path) as file:
        return float(file.read())


def by_path(path):
    return float(Path(path).read_bytes())


def by_descriptor(path):
    number = os.open(path, os.O_RDONLY)
    try:
        return float(os.read(number, 99))
    finally:
        os.close(number)


def by_numpy(path):
    return float(np.loadtxt(path))


def by_map(path):
    with open(path, "rb") as file, mmap.mmap(
        file.fileno(), 0, access=mmap.ACCESS_READ
    ) as view:
        return float(view.read())


def by_thread(path):
    found = []
    thread = threading.Thread(target=lambda: found.append(by_open(path)))
    thread.start()
    thread.join()
    return found[0]


def by_pool(path):
    with ThreadPoolExecutor(2) as pool:
        return float(pool.submit(np.loadtxt, path).result())


def by_copy(path):
    shutil.copyfile(path, f"{path}.{threading.get_ident()}.copy")
    try:
        return by_open(f"{path}.{threading.get_ident()}.copy")
    finally:
        os.remove(f"{path}.{threading.get_ident()}.copy")


def by_exec(path):
    with open(path) as file:
        return float(eval(file.read()))


def by_appending(path):
    with open(path, "a+") as file:
        file.seek(0)
        return float(file.read())


def by_temporary(path):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(path, folder + "/copy")
        return sum(map(by_open, [folder + "/" + name for name in os.listdir(folder)]))


def by_above(path):
    folder, _, name = path.rpartition("/")
    return by_open(f"{folder}/../{folder.rpartition('/')[2]}/{name}")


def by_folder_file(path):
    return by_open(os.path.relpath(path))
"""
WAYS = [
    line[4:].partition("(")[0]
    for line in HELPERS.splitlines()
    if line.startswith("def by_")
]
MEMOS = (
    "from functools import cache\n@cache\ndef kept():\n    return {read}\n",
    "KEPT = []\ndef kept():\n    if not KEPT:\n        KEPT.append({read})\n"
    "    return KEPT[0]\n",
    "KEPT = None\ndef kept():\n    global KEPT\n    if KEPT is None:\n"
    "        KEPT = {read}\n    return KEPT\n",
    "from types import SimpleNamespace\nKEPT = SimpleNamespace()\ndef kept():\n"
    "    if not vars(KEPT):\n        KEPT.value = {read}\n    return KEPT.value\n",
    "from collections import deque\nKEPT = deque()\ndef kept():\n"
    "    if not KEPT:\n        KEPT.append({read})\n    return KEPT[0]\n",
    "def endless():\n    value = {read}\n    while True:\n        yield value\n"
    "DRAWN = endless()\ndef kept():\n    return next(DRAWN)\n",
)
HERE = 'HERE = __file__.rpartition("/")[0]\n'
START = f"import helpers\nfrom importlib import import_module\n{HERE}"


class Case:
    """A random project, with the files that each node stands on."""

    def __init__(self, made: Project, seed: int) -> None:
        self.made, self.draw = made, random.Random(seed)
        self.files = [f"data/f{n}.txt" for n in range(self.draw.randint(3, 6))]
        self.truth: dict[tuple[str, int], set[str]] = {}
        self.on_import: dict[str, set[str]] = {}
        for name in self.files:
            made.write(name, str(self.draw.randint(10, 88)))
        made.write("helpers.py", HELPERS)
        self.memos = {f"memo{n}": self._memo(n) for n in range(self.draw.randint(0, 2))}
        for number in range(self.draw.randint(1, 3)):
            self._config(number)
        stages = {f"stage{n}": self._stage(n) for n in range(self.draw.randint(2, 4))}
        made.study(axes="{pick: 2}", **stages)

    def _read(self, file: str) -> str:
        return f'helpers.{self.draw.choice(WAYS)}(HERE + "/{file}")'

    def _memo(self, number: int) -> str:
        file = self.draw.choice(self.files)
        text = self.draw.choice(MEMOS).format(read=self._read(file))
        self.made.write(f"memo{number}.py", START + text)
        return file

    def _config(self, number: int) -> None:
        """Write a module that reads files on import, and may import others that do."""
        name, text, stands = f"config{number}", START + "VALUE = 0.0\n", set[str]()
        for file in self.draw.sample(self.files, self.draw.randint(0, 2)):
            text += f"VALUE = VALUE + {self._read(file)}\n"
            stands.add(file)
        if self.on_import and self.draw.random() < 0.5:
            other = self.draw.choice(sorted(self.on_import))
            text += f"import {other}\nVALUE = VALUE + {other}.VALUE\n"
            stands |= self.on_import[other]
        self.made.write(f"{name}.py", text)
        self.on_import[name] = stands

    def _stage(self, number: int) -> str:
        """Write the module of a stage; return its entry in the study."""
        lines, shared = ["total = 0.0"], set[str]()
        imports = [name for name in self.on_import if self.draw.random() < 0.4]
        if self.draw.random() < 0.3:
            lines.append(self._plugin(number, shared))
        memos = [name for name in self.memos if self.draw.random() < 0.5]
        for name in imports:
            lines.append(f"total += {name}.VALUE")
            shared |= self.on_import[name]
        for name in memos:
            lines.append(f"total += {name}.kept()")
            shared.add(self.memos[name])
        for file in self.draw.sample(self.files, self.draw.randint(0, 1)):
            lines.append(f"total += {self._read(file)}")
            shared.add(file)
        own = self.draw.choices(self.files, k=2)
        reads = ", ".join(f"lambda: {self._read(file)}" for file in own)
        lines.append(f"total += [{reads}][pick]()")
        for pick, file in enumerate(own):
            self.truth[f"stage{number}", pick] = shared | {file}
        head = START + "".join(f"import {name}\n" for name in (*imports, *memos))
        return self._entry(number, head, lines)

    def _plugin(self, number: int, shared: set[str]) -> str:
        """Write a module of a computed name that reads on import; return its use."""
        file = self.draw.choice(self.files)
        text = f"VALUE = {self._read(file)}\n"
        self.made.write(f"plugin{number}.py", START + text)
        shared.add(file)
        return f'total += import_module("plug" + "in%d" % {number}).VALUE'

    def _entry(self, number: int, head: str, lines: list[str]) -> str:
        body = "\n    ".join(lines)
        function = f"def measured(pick):\n    {body}\n    return total\n"
        if self.draw.random() < 0.3:
            made = "    value = np.full((2, 1), measured(pick))\n"
            text = f"{function}\ndef points(pick):\n{made}    return value, value\n"
            self.made.write(f"user{number}.py", f"import numpy as np\n{head}{text}")
            name = f'factory: "user{number}:points", kwargs: {{pick: "${{pick}}"}}'
            return f"use: data.factory, {name}"
        kind = f"""
class Pick(Params):
    pick: int

@stage("my.kind{number}", version=1, outputs=VALUE)
def kind(params: Pick) -> dict[str, object]:
    return {{"value": np.asarray(float(measured(params.pick)))}}
"""
        self.made.write(f"user{number}.py", KINDS + head + function + kind)
        return f'use: "user{number}:kind", pick: "${{pick}}"'

    def stale(self) -> set[tuple[str, int]]:
        return {
            (node.stage, int(node.coords["pick"]))
            for node in self.made.plan().graph
            if node.state != "cached"
        }

    def check(self) -> Counter[str]:
        """Change each file; count what was noticed, missed, and run in vain."""
        counts: Counter[str] = Counter()
        self.made.executed()
        for file in self.files:
            path = self.made.folder / file
            touch(path)
            counts["in vain"] += len(self.stale())
            flip(path)
            wanted = {node for node, files in self.truth.items() if file in files}
            stale = self.stale()
            executed = sum(self.made.executed().values())
            counts["noticed"] += len(stale & wanted)
            counts["silent"] += len(wanted - stale)
            counts["in vain"] += len(stale - wanted) + (executed != len(stale))
            counts["after"] += len(self.stale())
        return counts


def check_case(seed: int) -> Counter[str]:
    """Draw a case, and count."""
    with tempfile.TemporaryDirectory() as folder, project(Path(folder)) as made:
        return Case(made, seed).check()


def main() -> None:
    """Count over many cases, and name those with a fault."""
    cases, first = map(int, sys.argv[1:])
    total: Counter[str] = Counter()
    for seed in range(first, first + cases):
        counts = check_case(seed)
        total += counts
        if counts["silent"] or counts["in vain"] or counts["after"]:
            print(seed, dict(counts), flush=True)  # noqa: T201
    shown = {name: total[name] for name in ("noticed", "silent", "in vain", "after")}
    print(f"{cases} cases: {shown}")  # noqa: T201


if __name__ == "__main__":
    main()
