"""Signs of life, as they lie in a store, one object of JSON per run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from curvflow.stores.format import parsed

NAME = re.compile(r"([0-9]{10,})\.beat")
FIELDS = {"count": int, "pid": int, "host": str}


def signs(found: Iterable[tuple[str, bytes | None]]) -> dict[int, dict[str, Any]]:
    """Return the signs of life among what was found.

    Args:
        found: path and content; a content of None is of a run that has ended
            meanwhile.

    Returns:
        Sign by the log number at which its run began. What is cut short, or no sign
        of life at all, is left out.
    """
    return {
        int(name[1]): sign
        for path, text in found
        if (name := NAME.fullmatch(PurePath(path).name))
        and text is not None
        and (sign := parsed(text))
        and all(type(sign.get(key)) is kind for key, kind in FIELDS.items())
    }
