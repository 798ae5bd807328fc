"""Options that several commands take: the project, and the folder of the store."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

_Command = Callable[..., Any]
_WHOLE = 100

project_option = click.option(
    "--project", "-p", default="default", show_default=True, help="A project's name or number."
)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")


class MeasureRange(click.FloatRange):
    """A number, neither infinite nor NaN, which compares with no limit."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 (click's own)
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401 (click's own)
        """Returns the number."""
        if not math.isfinite(number := super().convert(value, param, ctx)):
            self.fail(f"{number} is no number.", param, ctx)
        return number

    def _describe_range(self) -> str:
        return "" if self.min is self.max is None else super()._describe_range()


class Share(MeasureRange):
    """A share, from 0 to 1; the refusal of a percentage shows how to write it."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 (click's own)
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401 (click's own)
        """Returns the number."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            try:
                percent = float(str(value).removesuffix("%"))
            except ValueError:
                raise error from None
            if not 0 < percent <= _WHOLE:
                raise
            message = f"{error.message} A share is a part of 1: {percent:g} % is {percent / 100:g}."
            raise click.BadParameter(message, ctx=ctx, param=param) from None


def data_dir_option(command: _Command) -> _Command:
    """`--data-dir`, which every command that works on a store takes."""
    return click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path, resolve_path=True),
        default=_default_data_dir,
        show_default="SERVICE_DATA_DIR, or a folder of your user",
        help="Where the service keeps its data.",
    )(command)


def _default_data_dir() -> Path | None:
    """The folder that the store chooses; None in the client, which has no store."""
    try:
        # The client does not hold the store's rooms.
        from storage.postgres.data_dir import default_data_dir  # noqa: PLC0415
    except ModuleNotFoundError:
        return None
    return default_data_dir()
