"""The progress of an import: a bar for each pass, and a line for each wait."""

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed


class Pass:
    """A single pass over the data, as a bar."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def advance_to(self, share: float) -> None:
        """Shows which share of the pass is done."""
        self._progress.update(self._task, completed=share)


class Bars:
    """The bars of an import."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def begin(self, words: str) -> Pass:
        """Begins a pass."""
        return Pass(self._progress, self._progress.add_task(words, total=1.0))

    def say(self, words: str) -> None:
        """Prints a line above the bars."""
        self._progress.console.print(words)


@contextmanager
def shown_bars(console: Console) -> Generator[Bars]:
    """Shows bars for as long as the context lasts."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), Elapsed())
    with Progress(*columns, console=console) as progress:
        yield Bars(progress)
