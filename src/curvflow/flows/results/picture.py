"""A drawn figure, which a notebook shows under its cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from curvflow.errors import RemovedPayloadError, UnknownNameError
from curvflow.flows.results.node_results import View
from curvflow.schemas.words import node_label, printable
from curvflow.stores.base import Store

PNG, CAPTION = ".png", "caption"
DOTS_PER_INCH, PIXELS_PER_INCH = 300, 96  # of the files, and of a page
PNG_SIZE = slice(16, 24)  # bytes of width and height in a PNG


@dataclass(frozen=True)
class Picture:
    """One figure: what its files hold, and its caption.

    Attributes:
        name: stage and labels, such as `bars[epoch=40]`.
        caption: what it shows, how many values, and which are left out.
        files: bytes by suffix, such as `.png`, `.svg` and `.pdf`.
    """

    name: str
    caption: str
    files: Mapping[str, bytes] = field(repr=False)

    def save(self, path: str | Path) -> Path:
        """Write the figure to a file, in the form that its suffix names.

        Args:
            path: of the file, such as `bars.pdf`.

        Returns:
            The path.

        Raises:
            UnknownNameError: the figure has no file of this suffix.
        """
        path = Path(path)
        if path.suffix not in self.files:
            raise UnknownNameError(
                f"path: expected a file of {', '.join(self.files)}, got '{path.name}'. "
                "Give it one of these suffixes."
            )
        path.write_bytes(self.files[path.suffix])
        return path

    def _repr_png_(self) -> tuple[bytes, dict[str, int]] | None:
        """Return the PNG and its size on a page in pixels, for notebooks."""
        png = self.files.get(PNG)
        if png is None:
            return None
        ends = png[PNG_SIZE]
        width, height = (int.from_bytes(part, "big") for part in (ends[:4], ends[4:]))
        scale = PIXELS_PER_INCH / DOTS_PER_INCH
        return png, {"width": round(width * scale), "height": round(height * scale)}


def read_picture(view: View, store: Store) -> Picture:
    """Read the one figure of a view.

    Args:
        view: a stage's nodes at the requested labels.
        store: holds the files.

    Returns:
        The figure.

    Raises:
        UnknownNameError: the stage draws nothing, has several figures at these labels,
            or no result there.
        RemovedPayloadError: collection has removed it.
        StoreError: it cannot be read.
    """
    files = {v.file: v.name for v in view.kind.outputs if v.file}
    if PNG not in files:
        raise UnknownNameError(
            f"{view.stage}: expected a stage that draws a figure, got {view.use}. "
            f"Its numbers are results['{view.stage}']."
        )
    if len(view.points) > 1:
        label = ", ".join(f"{dim}={value!r}" for dim, value in view.coords(0).items())
        raise UnknownNameError(
            f"{view.stage}: expected the labels of one figure, got {len(view.points)} "
            f"figures. Name one, such as figure('{view.stage}', {label})."
        )
    (receipt,), status = view.receipts, view.status(0)
    if status == "removed":
        raise RemovedPayloadError(view.stage)
    name = node_label(view.stage, view.coords(0))
    if receipt is None or not set(files.values()) & receipt.parts.keys():
        raise UnknownNameError(
            f"{name}: expected a figure, got none: it is {status}. Run the study, or "
            f"see `curvflow why STUDY {view.stage}`."
        )
    held = {suffix: part for suffix, part in files.items() if part in receipt.parts}
    texts = [CAPTION] if CAPTION in receipt.parts else []
    arrays = store.fetch(receipt, [*held.values(), *texts])
    return Picture(
        name,
        printable(str(arrays[CAPTION])) if texts else "",
        {suffix: bytes(arrays[part]) for suffix, part in held.items()},
    )
