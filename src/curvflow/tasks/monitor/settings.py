"""Measures of a monitor, and their settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from curvflow.errors import InputError, nearest
from curvflow.schemas.params import Params
from curvflow.tasks.library.arguments import checked


class Measure(Params):
    """Settings of a measure."""

    @property
    def gradients(self) -> float:
        """Gradients over all data that take about as long, when it begins anew."""
        return 8.0


class SharpnessSettings(Measure):
    """Of `sharpness`, by Lanczos; names are those of `probe.eigenvalues`."""

    tol: float = Field(1e-2, gt=0, lt=1)
    max_iterations: int = Field(100, ge=1)
    block: int = Field(2, ge=1)

    @property
    def gradients(self) -> float:
        """As measured of small networks: two dozen products, and their Lanczos."""
        return 80.0


class TraceSettings(Measure):
    """Of `trace`; names are those of `probe.trace`."""

    num_probes: int = Field(8, ge=2)
    rel_sem: float | None = Field(None, gt=0)
    max_probes: int | None = Field(None, ge=2)
    method: Literal["hutchinson", "hutch++", "xtrace", "auto"] = "hutchinson"

    @property
    def gradients(self) -> float:
        """A product takes as long as two to four."""
        return 4.0 * self.num_probes


class NoiseSettings(Measure):
    """Of `noise_scale`.

    `num_batches` are the random parts of the data whose gradients are compared, and
    `population` the samples of which the data are drawn; None if they are all.
    """

    num_batches: int = Field(16, ge=2)
    population: int | None = Field(None, ge=2)


class CriticalSettings(Measure):
    """Of `critical_sharpness`; `critical_tol` and `max_passes` of `probe.sharpness`."""

    tol: float = Field(0.1, gt=0, lt=1)
    max_passes: int = Field(60, ge=1)
    start: float = Field(1.0, gt=0)


class UpdateSettings(Measure):
    """Of `update_ratio`, which has none."""


SETTINGS: dict[str, type[Measure]] = {
    "sharpness": SharpnessSettings,
    "trace": TraceSettings,
    "noise_scale": NoiseSettings,
    "critical_sharpness": CriticalSettings,
    "update_ratio": UpdateSettings,
}


def settings_of(probes: Iterable[str] | Mapping[str, Any]) -> dict[str, Measure]:
    """Return the settings of each measure, in the order of the measures.

    Args:
        probes: names of measures or one, or their settings by name.

    Returns:
        Checked settings by name; those left out have their defaults.

    Raises:
        InputError: a measure or a setting is unknown or out of its range.
    """
    names = [probes] if isinstance(probes, str) else probes
    given = names if isinstance(names, Mapping) else dict.fromkeys(names)
    for name in given:
        if name not in SETTINGS:
            raise InputError(
                f"probes: expected some of {', '.join(SETTINGS)}, got {name}. "
                f"{nearest(name, SETTINGS)}"
            )
    return {
        name: _checked(name, given[name] or {}) for name in SETTINGS if name in given
    }


def _checked(name: str, fields: Mapping[str, Any]) -> Measure:
    try:
        return checked(SETTINGS[name], **fields)
    except InputError as error:
        raise InputError(f"probes.{name}.{error}") from None
