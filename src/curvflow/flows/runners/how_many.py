"""How many processes of this machine a run is worth."""

from __future__ import annotations

from dataclasses import dataclass

# A process takes seconds to load PyTorch; fewer tiles are done before it is there.
TILES_PER_PROCESS = 16


@dataclass(frozen=True)
class Processes:
    """Numbers of processes beside that of the run itself.

    Attributes:
        cpu: that compute on the CPU.
        gpu: that compute on a GPU, each on one of its own.
    """

    cpu: int = 0
    gpu: int = 0


def how_many(
    asked: int | None, *, gpus: int, cores: int, threads: int, tiles: int
) -> Processes:
    """Choose how many processes compute; none but this one where it can do alone.

    Each GPU has one process, up to the number asked for. Stages that use none run in
    further ones: as many as were asked for, as far as there are cores for them.

    Args:
        asked: number of processes, per kind of device; None to choose.
        gpus: that are to be used.
        cores: that this process may use.
        threads: of one tile.
        tiles: to be computed.

    Returns:
        The processes to start.
    """
    slots = max(1, cores // threads)
    if asked is None:
        asked = min(gpus, tiles) if gpus else min(slots, tiles // TILES_PER_PROCESS)
    if asked <= 1:
        return Processes()
    if not gpus:
        return Processes(cpu=asked)
    used = min(asked, gpus)
    return Processes(cpu=max(1, min(asked, slots - used)), gpu=used)
