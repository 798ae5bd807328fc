"""A child process in a session of its own, that writes to a log file and ends with its parent."""

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_PR_SET_PDEATHSIG = 1
_LOGS_KEPT = 3
LOG_BYTES = 32 * 1024 * 1024
# A copy is made where so many copies have room: what is free belongs to the store.
_ROOM_FOR_COPIES = 8


def fresh_log(path: Path) -> Path:
    """Move the log of the last start aside, and make the folder of the new log.

    Returns:
        `path`, where no file stands any more; the three logs before it end in `.1` to `.3`.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A log may tell of people whose data these are.
    path.parent.chmod(0o700)
    for age in range(_LOGS_KEPT, 0, -1):
        older = path.with_name(f"{path.name}.{age}")
        newer = path.with_name(f"{path.name}.{age - 1}") if age > 1 else path
        if newer.exists():
            newer.replace(older)
    return path


def cut_log(path: Path) -> None:
    """Empty a living child's log, once it is long; the child writes on.

    Its content is copied aside where the disk has room, and dropped otherwise.

    Raises:
        OSError: the log cannot be emptied.
    """
    if not path.exists() or path.stat().st_size <= LOG_BYTES:
        return
    copy = path.with_name(f"{path.name}.1")
    try:
        if shutil.disk_usage(path.parent).free < _ROOM_FOR_COPIES * path.stat().st_size:
            copy.unlink(missing_ok=True)
        else:
            with path.open("rb") as full, open(copy, "wb", opener=_private) as file:
                shutil.copyfileobj(full, file)
    except OSError:
        copy.unlink(missing_ok=True)
    os.truncate(path, 0)


def spawn(
    command: Sequence[str | Path],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: pwd.struct_passwd | None = None,
    umask: int = -1,
    death_signal: signal.Signals = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """Start a child that a terminal's Ctrl-C does not reach, so that its parent ends it in order.

    On Linux the kernel sends `death_signal` to the child when the thread that started it ends,
    a kill -9 of the parent included: start children in a thread that lives as long as they do.

    Args:
        log: where it writes; where that cannot be opened it starts without.
        env: the child's whole environment; by default ours.
        cwd: the folder that it starts in; by default ours.
        user: whom it runs as; by default ourselves.
        umask: the permissions that its files lack; by default as ours.

    Raises:
        OSError: the program cannot be started.
    """
    with _opened(log) as output:
        return subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=cwd,
            start_new_session=True,
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
            extra_groups=[] if user else None,
            umask=umask,
            # Must follow the change of user, which clears the setting: so no wrapper can do it.
            preexec_fn=end_with_parent(death_signal),  # noqa: PLW1509 (async-signal-safe calls)
        )


def _opened(log: Path) -> BinaryIO:
    """Open a child's log, or nothing: a child that serves is worth more than its log."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return open(log, "ab", opener=_private)
    except OSError as error:
        with suppress(OSError):
            sys.stderr.write(f"{log}: {error.strerror}; what is written there is lost\n")
            sys.stderr.flush()
        return Path(os.devnull).open("ab")


def _private(path: str, flags: int) -> int:
    """Open a file that its owner alone may read, once it is made."""
    return os.open(path, flags, 0o600)


def end_with_parent(death_signal: signal.Signals) -> Callable[[], None]:
    """Returns the first call of a child, by which it gets this signal when its parent is gone."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None
    parent = os.getpid()

    def bind() -> None:
        # A shell's background job ignores SIGINT, and Dagster in it SIGTERM as well: a child that
        # inherited that could not be stopped.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

    return bind
