"""A folder after a loss of power, by the rules of POSIX.

`Recorded` notes every change to a disk. `Crash` replays a prefix of them on a model in
which a file's content and a folder's names are durable only once flushed.
"""

from dataclasses import dataclass, field
from pathlib import Path

from curvflow.stores.files import Disk


class Recorded(Disk):
    """Does what it is asked to and notes it."""

    def __init__(self):
        self.done = []

    def make_folder(self, path):
        new = [p for p in (path, *path.parents) if not p.exists()]
        self.done += [("make_folder", p) for p in reversed(new)]
        super().make_folder(path)

    def write(self, path, data):
        self.done.append(("write", path, data))
        super().write(path, data)

    def flush(self, path):
        self.done.append(("flush", path))
        super().flush(path)

    def rename(self, source, target):
        self.done.append(("rename", source, target))
        super().rename(source, target)

    def link(self, source, target):
        self.done.append(("link", source, target))
        super().link(source, target)

    def remove(self, path):
        if path.exists():
            self.done.append(("remove", path))
        super().remove(path)


@dataclass
class File:
    content: bytes
    durable: bytes | None = None


@dataclass
class Folder:
    names: dict = field(default_factory=dict)
    durable: dict = field(default_factory=dict)


class Crash:
    """A folder as memory has it and as the medium has it."""

    def __init__(self, root: Path):
        self.root, self.top = root, Folder()

    def replay(self, operations):
        for name, *rest in operations:
            getattr(self, name)(*rest)
        return self

    def find(self, path):
        here = self.top
        for name in path.relative_to(self.root).parts:
            here = here.names[name]
        return here

    def make_folder(self, path):
        self.find(path.parent).names[path.name] = Folder()

    def write(self, path, data):
        self.find(path.parent).names[path.name] = File(data)

    def flush(self, path):
        if not path.is_relative_to(self.root):
            return
        file = self.find(path)
        if isinstance(file, File):
            file.durable = file.content
        else:
            file.durable = dict(file.names)

    def rename(self, source, target):
        moved = self.find(source.parent).names.pop(source.name)
        self.find(target.parent).names[target.name] = moved

    def link(self, source, target):
        self.find(target.parent).names[target.name] = self.find(source)

    def remove(self, path):
        del self.find(path.parent).names[path.name]

    def leave(self, path, *, kept):
        """Write what is left: of the folders in `kept` all names, else durable ones."""
        self._leave(self.top, path, "", kept)

    def _leave(self, file, path, top, kept):
        if isinstance(file, File):
            torn = file.content[: len(file.content) // 2]
            path.write_bytes(torn if file.durable is None else file.durable)
            return
        path.mkdir()
        for name, inner in (file.names if top in kept else file.durable).items():
            self._leave(inner, path / name, top or name, kept)
