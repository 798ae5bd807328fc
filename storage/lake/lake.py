"""The lake: the folder, or the bucket, that holds the files of a store's sealed log."""

import hashlib
import logging
import os
import secrets
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy import Engine, text

from storage.log.file_errors import VARIABLE, LakeError, WrongLakeError
from storage.postgres.data_dir import ACCEPT, default_data_dir, loss_word

# Suffix of files that are being written, which no list names.
_UNFINISHED = ".unfinished"
# The file that names the store which the others belong to, and its last claim.
MARK = "store.txt"
# Folder in which an engine keeps files while it computes.
_SCRATCH = "scratch"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FileStamp:
    """The signs by which a file that was replaced is recognized without reading it.

    Attributes:
        version: Another text once the bytes were replaced.
    """

    size: int
    version: str


class Lake(ABC):
    """Files that are written once, whole, and are never changed.

    Names are relative: `2026-11-22/13-0-5f0c9a1e.parquet`.
    """

    @abstractmethod
    def uri(self, name: str) -> str:
        """Returns where DuckDB, Spark or anybody else reads a file."""

    @abstractmethod
    @contextmanager
    def writing(self, name: str) -> Generator[Path]:
        """Yields a path on this machine to write; at the end the file is durable under its name.

        Where nothing was written there, there is no file.
        """

    @abstractmethod
    @contextmanager
    def reading(self, name: str) -> Generator[Path]:
        """Yields a path on this machine at which the file can be read.

        Raises:
            FileNotFoundError: There is no such file.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Deletes a file, if it is there."""

    @abstractmethod
    def stamps(self, names: Iterable[str]) -> dict[str, FileStamp]:
        """Returns the stamp of each of some files that is there and can be read from here."""

    @abstractmethod
    def names(self) -> Iterator[tuple[str, datetime]]:
        """Yields every file but the mark, unfinished ones too, with the time of its last change."""

    @contextmanager
    def scratch(self) -> Generator[str]:
        """Yields the name of a folder for files of a computation, which are gone afterwards.

        Leftovers of a killed process are swept with the other files that no list names.
        """
        folder = f"{_SCRATCH}/{secrets.token_hex(8)}"
        self._make_scratch(folder)
        try:
            yield folder
        finally:
            self._delete_scratch(folder)

    @abstractmethod
    def files(self, folder: str) -> list[str]:
        """Returns the names of the files in a folder, of other writers too."""

    @abstractmethod
    def _make_scratch(self, name: str) -> None:
        """Makes an empty folder."""

    @abstractmethod
    def _delete_scratch(self, name: str) -> None:
        """Deletes a folder and all that is in it."""


def file_sha256(path: Path) -> bytes:
    """Returns the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


class FolderLake(Lake):
    """A lake in a folder that its owner alone reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def uri(self, name: str) -> str:
        """Returns the file's absolute path."""
        return str(self.folder / name)

    @contextmanager
    def writing(self, name: str) -> Generator[Path]:
        """Yields a path beside the file's own; renamed when the bytes are on the disk."""
        path = self.folder / name
        self._make_folder(path.parent)
        unfinished = path.with_name(path.name + _UNFINISHED)
        try:
            yield unfinished
            if not unfinished.exists():
                return
            _sync(unfinished)
            unfinished.rename(path)
            _sync(path.parent)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    def _make_folder(self, folder: Path) -> None:
        for missing in [path for path in (self.folder, folder) if not path.is_dir()]:
            missing.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync(missing.parent)

    @contextmanager
    def reading(self, name: str) -> Generator[Path]:
        """Yields the file's own path."""
        path = self.folder / name
        if not path.is_file():
            raise FileNotFoundError(f"the lake {self.folder} has no file {name}")
        yield path

    def delete(self, name: str) -> None:
        """Deletes the file, and each folder with the last file in it."""
        (self.folder / name).unlink(missing_ok=True)
        try:
            for parent in PurePosixPath(name).parents[:-1]:
                (self.folder / parent).rmdir()
        except OSError:
            return

    def stamps(self, names: Iterable[str]) -> dict[str, FileStamp]:
        """Leaves out the files that this process may not read, too."""
        stamps: dict[str, FileStamp] = {}
        for name in names:
            path = self.folder / name
            # It may be deleted in between, where a rewriting has listed another file.
            with suppress(FileNotFoundError):
                if os.access(path, os.R_OK):
                    status = path.stat()
                    changes = f"{status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}"
                    stamps[name] = FileStamp(size=status.st_size, version=changes)
        return stamps

    def names(self) -> Iterator[tuple[str, datetime]]:
        """Yields the files of every day, and those of computations."""
        days, scratch = self.folder.glob("????-??-??/*"), self.folder.glob(f"{_SCRATCH}/**/*")
        for path in sorted((*days, *scratch)):
            # A computation ends, and takes its files with it.
            with suppress(FileNotFoundError):
                if path.is_file():
                    changed = datetime.fromtimestamp(path.stat().st_mtime, tz=UTC)
                    yield str(path.relative_to(self.folder)), changed

    def files(self, folder: str) -> list[str]:
        """Returns the names of the files in a folder."""
        return [f"{folder}/{path.name}" for path in sorted((self.folder / folder).iterdir())]

    def _make_scratch(self, name: str) -> None:
        (self.folder / name).mkdir(mode=0o700, parents=True)

    def _delete_scratch(self, name: str) -> None:
        shutil.rmtree(self.folder / name, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class BucketLake(Lake):
    """A lake in an object store, by fsspec: an object appears whole or not at all."""

    def __init__(self, address: str) -> None:
        try:
            fsspec: Any = import_module("fsspec")
            self.filesystem, root = fsspec.core.url_to_fs(address)
        except ImportError as error:
            raise LakeError(
                f"{VARIABLE} is {address!r}, and {error.name or error} is not installed: install"
                " deploy-reward[lake], or name a folder"
            ) from error
        except ValueError as error:
            raise LakeError(f"{VARIABLE} is {address!r}: {error}") from error
        self._address, self._root = address.rstrip("/"), PurePosixPath(root)

    def uri(self, name: str) -> str:
        """Returns the object's address."""
        return f"{self._address}/{name}"

    @contextmanager
    def writing(self, name: str) -> Generator[Path]:
        """Yields a temporary file; put into the object store when it is whole."""
        target = str(self._root / name)
        with tempfile.TemporaryDirectory(prefix="deploy-reward-lake-") as folder:
            path = Path(folder) / "file.parquet"
            yield path
            if not path.exists():
                return
            self.filesystem.makedirs(str(self._root / name.rpartition("/")[0]), exist_ok=True)
            self.filesystem.put_file(str(path), target)

    @contextmanager
    def reading(self, name: str) -> Generator[Path]:
        """Yields a temporary copy of the object."""
        with tempfile.TemporaryDirectory(prefix="deploy-reward-lake-") as folder:
            path = Path(folder) / "file.parquet"
            self.filesystem.get_file(str(self._root / name), str(path))
            yield path

    def delete(self, name: str) -> None:
        """Deletes the object."""
        try:
            self.filesystem.rm_file(str(self._root / name))
        except FileNotFoundError:
            return

    def stamps(self, names: Iterable[str]) -> dict[str, FileStamp]:
        """Lists each day's objects once: to ask for each of them would take a request an hour."""
        wanted = set(names)
        # A remembered listing may lack the files of the last hour.
        self.filesystem.invalidate_cache()
        present: dict[str, dict[str, Any]] = {}
        for day in {name.rpartition("/")[0] for name in wanted}:
            try:
                found = self.filesystem.find(str(self._root / day), detail=True)
            except Exception as error:  # noqa: BLE001 - a bucket fails by errors of its library
                # It is away: PostgreSQL is read for as long as it has the day.
                _LOG.warning("%s of the lake cannot be listed: %s", day, type(error).__name__)
                continue
            present |= {
                str(PurePosixPath(path).relative_to(self._root)): details
                for path, details in found.items()
            }
        # An object's tag, generation or time changes with its bytes.
        return {
            name: FileStamp(size=present[name]["size"], version=str(present[name]))
            for name in wanted & present.keys()
        }

    def names(self) -> Iterator[tuple[str, datetime]]:
        """Yields the objects of every day."""
        if not self.filesystem.exists(str(self._root)):
            return
        for path in sorted(self.filesystem.find(str(self._root))):
            name = str(PurePosixPath(path).relative_to(self._root))
            if name != MARK:
                changed = self.filesystem.modified(path)
                yield name, changed if changed.tzinfo else changed.replace(tzinfo=UTC)

    def files(self, folder: str) -> list[str]:
        """Returns the names of the objects below a name."""
        self.filesystem.invalidate_cache()
        paths = sorted(self.filesystem.ls(str(self._root / folder), detail=False))
        return [str(PurePosixPath(path).relative_to(self._root)) for path in paths]

    def _make_scratch(self, name: str) -> None:
        """An object store has no folders of its own."""

    def _delete_scratch(self, name: str) -> None:
        # This process has not listed the files that others wrote there.
        self.filesystem.invalidate_cache()
        if self.filesystem.exists(str(self._root / name)):
            self.filesystem.rm(str(self._root / name), recursive=True)


def open_lake(address: str | None = None, *, data_dir: Path | None = None) -> Lake:
    """Opens the lake that is named, or that SERVICE_LAKE names, or `lake` in the data directory.

    Args:
        address: A folder, or an address that fsspec knows, as `s3://bucket/lake`.
        data_dir: The service's data directory; by default that of the settings.
    """
    named = address or os.environ.get(VARIABLE, "").strip()
    if not named:
        return FolderLake((data_dir or default_data_dir()) / "lake")
    if "://" not in named:
        return FolderLake(Path(named).expanduser().resolve())
    return BucketLake(named)


_OWN = text("""
SELECT identity, lake_claimed_at,
    EXISTS (SELECT FROM sealed_hours WHERE file IS NOT NULL) AS has_files
FROM installation
""")
# Later than any claim before, whatever the clock does.
_CLAIM = text("""
UPDATE installation SET lake_claimed_at = greatest(
    lake_claimed_at + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
) RETURNING identity, lake_claimed_at
""")


def store_lake(engine: Engine, *, data_dir: Path | None = None, is_read_alone: bool = True) -> Lake:
    """Opens the lake of a store, as `open_lake` does.

    A bucket that is away cannot be asked whose it is: its files can be neither read nor written.

    Args:
        is_read_alone: PostgreSQL has the events of a lake that is not there, for a while.

    Raises:
        LakeError: It cannot be opened here, or is not this store's.
    """
    lake = open_lake(data_dir=data_dir)
    try:
        refuse_wrong_lake(engine, lake, is_read_alone=is_read_alone)
    except WrongLakeError:
        raise
    except Exception as error:  # noqa: BLE001 - a bucket fails by errors of its library
        _LOG.warning("the lake cannot be asked whose it is: %s", type(error).__name__)
    return lake


def claim_lake(engine: Engine, lake: Lake) -> None:
    """Notes in a lake that this state of the store is about to write it."""
    refuse_wrong_lake(engine, lake)
    # The store is never behind its own lake, wherever this ends.
    with engine.begin() as connection:
        claim = connection.execute(_CLAIM).one()
    with lake.writing(MARK) as path:
        path.write_text(f"{claim.identity} {claim.lake_claimed_at}\n")


def store_identity(engine: Engine) -> str:
    """Returns the name that a store got when it was made, and a copy of it has too."""
    with engine.connect() as connection:
        return connection.execute(_OWN).one().identity


def refuse_wrong_lake(engine: Engine, lake: Lake, *, is_read_alone: bool = False) -> None:
    """Refuses a lake that is not the store's, unless the operator accepts it.

    Raises:
        WrongLakeError: A later state of the store, or a copy, wrote it; it is another store's; or
            it is empty, and the store lists files.
    """
    try:
        with lake.reading(MARK) as path:
            mark = path.read_text()
    except FileNotFoundError:
        mark = ""
    # Afterwards, and of no older snapshot: a claim is in the store before it is in the lake.
    with engine.connect() as connection:
        own = connection.execute(_OWN).one()
    identity, _, claimed_at = mark.partition(" ")
    if not mark and own.has_files and not is_read_alone:
        fault = "is empty or not mounted, and the store lists files in it: put them back"
    elif mark and identity != own.identity:
        fault = "is another store's: name this store's"
    elif mark and int(claimed_at) > own.lake_claimed_at:
        fault = "was written by a later state of the store, or a copy: restore both of a time"
    else:
        return
    if word := loss_word(own.identity, str(own.lake_claimed_at), mark):
        raise WrongLakeError(
            f"the lake {lake.uri('')} {fault}; {ACCEPT}={word} takes it as it is, and a file that"
            " the store does not list is deleted after a day"
        )
