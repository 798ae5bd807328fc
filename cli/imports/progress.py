"""The progress of an import: a bar for each pass."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed


class Bars:
    """The bars of an import."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def begin(self, words: str) -> Callable[[float], None]:
        """Begins a pass over the data, and returns the function that shows the share done."""
        task = self._progress.add_task(words, total=1.0)
        return lambda share: self._progress.update(task, completed=share)


@contextmanager
def shown_bars(console: Console) -> Generator[Bars]:
    """Shows bars for as long as the context lasts."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), Elapsed())
    with Progress(*columns, console=console) as progress:
        yield Bars(progress)
