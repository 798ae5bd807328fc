"""The identity of a patch, by git: the same for a change that was rebased or amended."""

import re
import shutil
import subprocess

_SECONDS = 20.0
_DIFFERENCE = ("diff-tree", "-p", "--unified=3", "--no-ext-diff", "--no-textconv")
_IDENTITY = re.compile(rb"[0-9a-f]{40}")


def patch_id(commit: str, *, base: str | None) -> str | None:
    """Returns `git patch-id --stable` of the difference between a commit and its base.

    Nothing of the source leaves this machine but this digest.

    Args:
        base: The commit that it was built on; None for its first parent.

    Returns:
        40 hexadecimal digits; None where git or a commit is missing, or nothing changed.
    """
    git = shutil.which("git")
    if git is None:
        return None
    before = f"{commit}^" if base is None else base
    try:
        # No word of the user's is taken for an option. `git diff` would follow the user's settings,
        # by which CI and a laptop get different identities.
        diff = _output([git, *_DIFFERENCE, "--end-of-options", before, commit, "--"], b"")
        identity = _output([git, "patch-id", "--stable"], diff)
    except (subprocess.SubprocessError, OSError):
        return None
    known = _IDENTITY.match(identity)
    return None if known is None else known[0].decode()


def _output(command: list[str], given: bytes) -> bytes:
    return subprocess.run(
        command, input=given, capture_output=True, check=True, timeout=_SECONDS
    ).stdout
