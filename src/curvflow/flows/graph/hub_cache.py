"""Repositories in HuggingFace's cache on this machine, looked up without a network."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NoReturn

from curvflow.errors import InputError, nearest

MODELS = "models--"
COMMIT = re.compile(r"\w[\w.-]*")
FEW = 6  # repositories that a message lists


def hub_folder() -> Path:
    """Return the folder in which HuggingFace's libraries keep what they download.

    Returns:
        `$HF_HUB_CACHE`, `$HF_HOME/hub`, or that in the user's cache.
    """
    if named := os.environ.get("HF_HUB_CACHE"):
        return Path(named).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "huggingface" / "hub"


def snapshot(repo: str, revision: str) -> Path:
    """Return the folder of a repository's files at a revision, named by its commit.

    Args:
        repo: `organisation/name`.
        revision: a branch, a tag or a commit.

    Raises:
        InputError: the repository or the revision is not in the cache.
    """
    hub = hub_folder()
    folder = hub / f"{MODELS}{repo.replace('/', '--')}"
    command = f"hf download {repo} --revision {revision}"
    if not folder.is_dir():
        there = sorted(path.name for path in hub.glob(f"{MODELS}*"))
        known = [n.removeprefix(MODELS).replace("--", "/", 1) for n in there]
        listed = ", ".join([*known[:FEW], *(["..."] if len(known) > FEW else [])])
        hint = nearest(repo, known, otherwise=f"It has {listed or 'none'}.")
        raise InputError(
            f"expected a repository in {hub}, got {repo}, which is not there. {hint} "
            f"`{command}` brings it."
        )
    reference = folder / "refs" / revision
    commit = revision
    if reference.is_file():
        commit = reference.read_text(encoding="utf-8").strip()
        if not COMMIT.fullmatch(commit):
            raise InputError(
                f"expected the name of a commit in {reference}, got '{commit}'. "
                f"`{command}` brings it anew."
            )
    files = folder / "snapshots" / commit
    if not (COMMIT.fullmatch(commit) and files.is_dir()):
        _refuse_revision(folder, repo, revision, commit)
    return files


def _refuse_revision(folder: Path, repo: str, revision: str, commit: str) -> NoReturn:
    """Refuse a revision of which a repository in the cache lacks the files.

    Raises:
        InputError: always.
    """
    command = f"hf download {repo} --revision {revision}"
    hub, references = folder.parent, folder / "refs"
    names = [
        path.relative_to(references).as_posix()
        for path in references.rglob("*")
        if path.is_file()
    ]
    if revision in names:
        raise InputError(
            f"expected the files of {repo} at {revision} in {hub}, got none of the "
            f"commit {commit}. `{command}` brings them."
        )
    commits = [path.name for path in (folder / "snapshots").glob("*")]
    hint = nearest(revision, [*names, *commits])
    raise InputError(
        f"expected a revision of {repo} in {hub}, got {revision}, which is not there. "
        f"{hint or 'It has none.'} `{command}` brings it."
    )
