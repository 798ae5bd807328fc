"""A patch by git: its identity, also of a rebased change, its reverts and the files it changes."""

import re
import shutil
import subprocess
from collections.abc import Iterator

_SECONDS = 20.0
_DIFFERENCE = ("diff-tree", "-p", "--unified=3", "--no-ext-diff", "--no-textconv")
_REVERTED = re.compile(r"This reverts commit ([0-9a-f]{40,64})")
# The revert buttons of GitHub and GitLab name the pull request, as their merges and squashes do.
_REQUESTS = (
    (re.compile(r"^Reverts [\w./-]+#(\d+)", re.MULTILINE), r"\(#{0}\)$|^Merge pull request #{0} "),
    (re.compile(r"^This reverts merge request !(\d+)", re.MULTILINE), "^See merge request .*!{0}$"),
)
_IDENTITY = re.compile(rb"[0-9a-f]{40,64}")
_NAMES = ("diff-tree", "-r", "-M", "--name-status", "-z", "--no-ext-diff")
# GitHub's words.
_STATUS = {"A": "added", "C": "copied", "D": "removed", "R": "renamed", "T": "changed"}


def patch_id(commit: str, *, base: str | None) -> str | None:
    """Returns `git patch-id --stable` of the difference between a commit and its base.

    Nothing of the source leaves this machine but this digest.

    Args:
        base: The commit that it was built on; None for its first parent.

    Returns:
        40 hexadecimal digits, of SHA-256 64; None where git or a commit is missing, or nothing
        changed.
    """
    before = f"{commit}^" if base is None else base
    # No word of the user's is taken for an option. `git diff` would follow the user's settings, by
    # which CI and a laptop get different identities.
    diff = _output([*_DIFFERENCE, "--end-of-options", before, commit, "--"], b"")
    identity = None if diff is None else _output(["patch-id", "--stable"], diff)
    known = _IDENTITY.match(identity or b"")
    return None if known is None else known[0].decode()


def reverted(commit: str, *, base: str | None) -> list[str]:
    """Returns the commits that are taken back since a base, by the words that reverts write.

    Args:
        base: The commit that it was built on; None for its first parent.

    Returns:
        Whole ids in the order of their reverts; nothing of a revert that was itself taken back.
    """
    before = f"{commit}^" if base is None else base
    since = f"{before}..{commit}"
    log = ["log", "--reverse", "--topo-order", "--format=%H %B%x00", "--end-of-options", since]
    taken_back: dict[str, None] = {}
    # Changes that each revert takes back, and those that it brings back.
    effects: dict[str, tuple[list[str], list[str]]] = {}
    for entry in (_output([*log, "--"], b"") or b"").decode(errors="replace").split("\0"):
        sha, _, message = entry.strip().partition(" ")
        names = [*_REVERTED.findall(message), *_requested(message, before=sha)]
        undone = [effects.get(name, ([], [name])) for name in names]
        gone = [name for _, brought in undone for name in brought]
        back = [name for taken, _ in undone for name in taken]
        effects |= {sha: (gone, back)} if undone else {}
        taken_back = {name: None for name in (*taken_back, *gone) if name not in back}
    return list(taken_back)


def _requested(message: str, *, before: str) -> Iterator[str]:
    """Yields the merged commits that a message reverts by the number of their pull request."""
    for reverts, merged in _REQUESTS:
        for number in reverts.findall(message):
            log = ["log", "-1", "--format=%H", "-E", f"--grep={merged.format(number)}"]
            if sha := (_output([*log, "--end-of-options", before, "--"], b"") or b"").strip():
                yield sha.decode()


def changed_files(commit: str, *, base: str) -> list[dict[str, str]] | None:
    """Returns the files that differ between a commit and its base, as GitHub's answer lists them.

    Returns:
        None where git or a commit is missing.
    """
    output = _output([*_NAMES, "--end-of-options", base, commit, "--"], b"")
    if output is None:
        return None
    words = iter(output.decode(errors="replace").split("\0")[:-1])
    files: list[dict[str, str]] = []
    for letter in words:
        before = {"previous_filename": next(words)} if letter[0] in "CR" else {}
        status = _STATUS.get(letter[0], "modified")
        files.append({"filename": next(words), "status": status, **before})
    return files


def _output(command: list[str], given: bytes) -> bytes | None:
    """Returns the output of git; None where git or a commit is missing."""
    git = shutil.which("git")
    if git is None:
        return None
    try:
        return subprocess.run(
            [git, *command], input=given, capture_output=True, check=True, timeout=_SECONDS
        ).stdout
    except (subprocess.SubprocessError, OSError):
        return None
