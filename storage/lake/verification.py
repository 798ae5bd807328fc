"""Verification: files of the lake are read only where size, SHA-256 and rows are as listed."""

import threading
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from pathlib import Path

from storage.lake.lake import FileStamp, Lake, file_sha256
from storage.lake.sealed_hours import SealedFile
from storage.log.file_errors import MISSING, WrongFileError

# By address: the stamp of the bytes that were read, and the listing that they agree with.
_VERIFIED: dict[str, tuple[FileStamp, bytes, int]] = {}
_LOCK = threading.Lock()


def wrong_files(lake: Lake, files: Iterable[SealedFile]) -> dict[str, str]:
    """Returns the fault of each file that is not as it is listed, by the file's name.

    A process reads a file once, and again only when its stamp has changed.
    """
    listed = list(files)
    stamps = lake.stamps(file.name for file in listed)
    faults = ((file.name, _fault(lake, file, stamps.get(file.name))) for file in listed)
    return {name: fault for name, fault in faults if fault is not None}


def lost_files(lake: Lake, files: Iterable[SealedFile]) -> dict[str, str]:
    """Returns the faults of files that are missing or of another size, without reading any."""
    listed = list(files)
    stamps = lake.stamps(file.name for file in listed)
    faults = ((file.name, _fault_of_stamp(file, stamps.get(file.name))) for file in listed)
    return {name: fault for name, fault in faults if fault is not None}


@contextmanager
def verified(lake: Lake, file: SealedFile) -> Generator[Path]:
    """Yields a path on this machine to a file, whose bytes are the listed bytes."""
    with ExitStack() as stack:
        try:
            path = stack.enter_context(lake.reading(file.name))
            fault = _fault_of_bytes(path, file)
        except FileNotFoundError:
            raise WrongFileError(lake.uri, {file.name: MISSING}) from None
        except OSError as error:
            fault = f"cannot be read ({type(error).__name__})"
            raise WrongFileError(lake.uri, {file.name: fault}) from error
        if fault is not None:
            raise WrongFileError(lake.uri, {file.name: fault})
        yield path


def _fault(lake: Lake, file: SealedFile, stamp: FileStamp | None) -> str | None:
    if (fault := _fault_of_stamp(file, stamp)) is not None or stamp is None:
        return fault
    uri, listing = lake.uri(file.name), (stamp, file.sha256, file.rows)
    with _LOCK:
        if _VERIFIED.get(uri) == listing:
            return None
    try:
        with verified(lake, file):
            pass
    except WrongFileError as error:
        return error.faults[file.name]
    with _LOCK:
        _VERIFIED[uri] = listing
    return None


def _fault_of_stamp(file: SealedFile, stamp: FileStamp | None) -> str | None:
    if stamp is None:
        return MISSING
    if stamp.size != file.size:
        return f"has {stamp.size:,} bytes where {file.size:,} are listed"
    return None


def _fault_of_bytes(path: Path, file: SealedFile) -> str | None:
    if file_sha256(path) != file.sha256:
        return "has another SHA-256 than is listed"
    # It loads pyarrow, which whoever only knows the error does without.
    from storage.lake.parquet import count_rows  # noqa: PLC0415

    if (rows := count_rows(path)) != file.rows:
        return f"has {rows:,} events where {file.rows:,} are listed"
    return None
