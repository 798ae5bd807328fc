"""Errors of the files that the log's hours are sealed in."""

from collections.abc import Callable, Mapping

# Names the folder or bucket of the files.
VARIABLE = "SERVICE_LAKE"
MISSING = "is missing"


class LakeError(RuntimeError):
    """The lake cannot be opened, read or written; the message says what to do."""


class WrongLakeError(LakeError):
    """The lake is another store's, another state's of the store, or has lost its files."""


class WrongFileError(LakeError):
    """Files are not as they are listed."""

    def __init__(self, uri: Callable[[str], str], faults: Mapping[str, str]) -> None:
        """Names the first file, and says how many more there are."""
        (name, fault), *others = faults.items()
        more = f" ({len(others):,} more are wrong)" if others else ""
        advice = "put the right file back"
        self.faults = dict(faults)
        self.sentence = f"the file {name} of the lake {fault}{more}: {advice}"
        if fault == MISSING:
            advice += (
                f", or set {VARIABLE} to the folder or bucket that the service's Dagster processes"
                " have"
            )
        super().__init__(f"{uri(name)} {fault}{more}: {advice}")
