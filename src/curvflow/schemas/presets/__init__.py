"""Published settings of learning rules under names, found by their files.

A file here is named after its source and holds `PRESETS`: by the rest of a preset's
name its variants, the default first, each with the fields of a rule as one would write
them.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from curvflow.errors import nearest
from curvflow.schemas.study.yaml_source import short_yaml

Fields = Mapping[str, Any]


@cache
def all_presets() -> dict[str, Mapping[str, Fields]]:
    """Return the variants of every preset by its name, sorted."""
    sources = [info.name for info in pkgutil.iter_modules(__path__)]
    presets = {
        f"{source.replace('_', '-')}/{name}": variants
        for source in sources
        for name, variants in import_module(f"{__name__}.{source}").PRESETS.items()
    }
    return dict(sorted(presets.items()))


def written_out(value: object) -> object:
    """Replace a preset by the fields it stands for.

    Args:
        value: of a rule, as written; fields other than `preset` and `variant` take
            the place of the preset's own.

    Returns:
        The fields; what names no preset is returned as it is.

    Raises:
        ValueError: there is no such preset or variant, or `rule` is written as well.
    """
    if not isinstance(value, Mapping) or "preset" not in value:
        return value
    name, variants = value["preset"], _variants(value["preset"])
    variant = value.get("variant")
    if variant is None:
        variant = next(iter(variants))
    if variant not in list(variants):
        known = " or ".join(variants)
        raise ValueError(
            f"expected variant {known} of {name}, got {short_yaml(variant)}. Take one "
            "of them."
        )
    if "rule" in value:
        rule, preset = short_yaml(value["rule"]), short_yaml(name)
        raise ValueError(
            f"rule {rule} cannot be combined with preset {preset}. Remove rule."
        )
    fields = {
        key: item for key, item in value.items() if key not in ("preset", "variant")
    }
    return {**variants[variant], **fields}


def _variants(name: object) -> Mapping[str, Fields]:
    presets = all_presets()
    if isinstance(name, str) and name in presets:
        return presets[name]
    close = nearest(str(name), presets)
    if not close.startswith("Did"):
        close = f"They have names such as {next(iter(presets))!r}."
    raise ValueError(f"expected the name of a preset, got {short_yaml(name)}. {close}")


class Preset(BaseModel):
    """Published settings by name; further fields replace its own."""

    model_config = ConfigDict(extra="allow")

    preset: str = Field(
        pattern=f"^({'|'.join(all_presets())})$",
        description="its name, such as jarvis-2021/xor-tanh/metric-small",
    )
    variant: Literal["printed", "fitted"] | None = Field(
        None,
        description="the numbers as printed, or those that lead to the results "
        "reported; null takes fitted where there are such, else printed",
    )
