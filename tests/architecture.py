"""The map of the rooms as Markdown, made of their docstrings: `python -m tests.architecture`."""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
# Folders of tests; those of recipes and of calibration stand beside what they run.
TESTS = (ROOT / "tests", ROOT / "examples" / "tests", ROOT / "benchmarks" / "calibration" / "tests")
COMMAND = "python -m tests.architecture"
PACKAGES = ("domain", "stats", "storage", "api", "orchestration", "mcp_server", "cli")
_OPENING = f"""\
# Architecture

The rooms of the source as their own docstrings describe them. Made by `{COMMAND}`; a
test holds it to the byte. Each file's first line says what the file is.
Where to begin: [CONTRIBUTING](../CONTRIBUTING.md). Why it is built this way:
[decisions](decisions.md). The statistics: [statistics](statistics.md).

## The way of an event

From the request to the served verdict, in the order of the code:

1. `api/routes/runtime_events.py` takes a POST; `api/runtime/keyring.py` finds the project by its
   key, `api/wire/event_batch.py` reads the body, event by event.
2. `storage/log/events.py` appends what waits, in a single COPY and commit
   (`storage/postgres/batching.py`); then each request is answered.
3. `orchestration/dagster/schedules.py` sees that a block has closed
   (`storage/verdicts/backlog.py`) and launches a run of `orchestration/dagster/assets.py`, whose
   steps are in `orchestration/pipeline/steps.py`.
4. `storage/pipeline/increment.py` runs the text of `storage/pipeline/steps.py` over the new rows:
   exposures, then cells.
5. `orchestration/pipeline/drafts.py` reads the cells (`storage/verdicts/evidence.py`), computes the
   evidence (`stats/decision/evidence.py`) and writes its document.
6. `storage/verdicts/publication.py` publishes verdict and evidence in a single transaction.
7. `api/routes/verdicts.py` serves the row (`storage/verdicts/polling.py`).

Whatever reads whole days (rebuilds, checks, audits, who is hours behind) runs the same text in
DuckDB: `storage/pipeline/recompute.py`.

## Layers

Each room imports rooms below it, never above; import-linter holds that, in the tests. `|` stands
between rooms that do not know each other.
"""
_CORE = """
## The core

What you must know to follow a deploy to its verdict.
"""
_ANNEXES = """
## The annexes

What hangs on the core. No module of the core imports them, which import-linter holds.
"""
_BESIDE = """
## The packages

Each a folder of `packages/` with a README. The service's wheel holds all of them; import-linter
lists who calls them.
"""


def _contracts() -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return settings["tool"]["importlinter"]["contracts"]


def annexes() -> list[str]:
    """Returns the folders that hang on the core: no module of the core may import them."""
    (contract,) = (each for each in _contracts() if "imports an annex" in each["name"])
    return [module.replace(".", "/") for module in contract["forbidden_modules"]]


def contracts() -> Iterator[str]:
    """Yields the layers of each contract, from the upper to the lower ones."""
    for contract in _contracts():
        if contract["type"] == "layers":
            layers = " → ".join(f"`{layer}`" for layer in contract["layers"])
            yield f"- {contract['name']}: {layers}"


def rooms() -> list[Path]:
    """Returns the folders of the source, each before those inside it."""
    return [
        folder
        for package in PACKAGES
        for folder in sorted({path.parent for path in (ROOT / package).rglob("*.py")})
        if (folder / "__init__.py").is_file()
    ]


def packages() -> list[Path]:
    """Returns the folders of the packages that stand beside the rooms."""
    return sorted(path for path in (ROOT / "packages").iterdir() if path.is_dir())


def docstring(path: Path) -> str:
    """Returns a module's docstring, in a line a paragraph."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def architecture() -> str:
    outside = tuple(f"{ROOT / annex}" for annex in annexes())
    core = [room for room in rooms() if not str(room).startswith(outside)]
    beside = [room for room in rooms() if room not in core]
    rows = [_OPENING, *contracts(), _CORE, *_lines(core), _ANNEXES, *_lines(beside), _BESIDE]
    return "\n".join([*rows, *_package_lines(), ""])


def _lines(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        first = docstring(folder / "__init__.py").split("\n\n", maxsplit=1)[0]
        yield f"- `{folder.relative_to(ROOT).as_posix()}`: {first}"


def _package_lines() -> Iterator[str]:
    for folder in packages():
        said = (folder / "README.md").read_text().split("\n\n")[1]
        first = re.split(r"[.:] ", " ".join(said.split()))[0]
        yield f"- [`{folder.name}`](../packages/{folder.name}/README.md): {first}."


if __name__ == "__main__":
    PAGE.write_text(architecture())
