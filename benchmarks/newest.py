"""What moved: the newest versions of every dependency against those of the gate, and its tests.

`make newest` installs them without the lock and runs this with that environment's Python, which
writes docs/newest.md: what fails there fails with the next `make lock`.
"""

import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/newest.md"
_HEAD = """\
# What moved

The newest version of every dependency, whatever the lock says, against those that the gate uses.
`make newest` wrote this page on {day}, with Python {python}; {moved} of {known} packages had moved.
The oldest versions are `make floors`'.

"""


def normal(name: str) -> str:
    """Returns a package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def moved() -> tuple[list[tuple[str, str, str]], int]:
    """Returns packages with the gate's version and the newest, and how many the gate names."""
    pinned = dict(
        line.split(";")[0].strip().split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    )
    here = {normal(each.metadata["Name"]): each.version for each in distributions()}
    before = {normal(name): version for name, version in pinned.items()}
    rows = [
        (name, before.get(name, "–"), version)
        for name, version in sorted(here.items())
        if version != before.get(name) and name not in {"deploy-reward", "pip", "setuptools"}
    ]
    return rows, len(before)


def main() -> int:
    """Runs the tests, writes the page, and returns the tests' exit code."""
    rows, known = moved()
    words = [sys.executable, "-m", "pytest", "-W", "default", "-q", *sys.argv[1:]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    warned = sorted({line.strip() for line in lines if re.match(r"\s+\S*: \w+Warning: ", line)})
    warned = [re.sub(r"^\S*?([^/]+:\d+): ", r"\1: ", line) for line in warned]
    head = _HEAD.format(
        day=datetime.now(UTC).date(),
        python=sys.version.split()[0],
        moved=sum(gate != "–" for _, gate, _ in rows),
        known=known,
    )
    page = [head, f"Tests (`{' '.join(sys.argv[1:])}`): {lines[-1].strip('= ')}.\n"]
    page += [f"\n- `{line[:200]}`" for line in failed]
    page += ["\n| package | the gate's | the newest |\n| --- | --- | --- |\n"]
    page += [f"| {' | '.join(row)} |\n" for row in rows]
    if warned:
        page += ["\nWarnings that the gate does not have, or turns into errors:\n\n"]
        page += [f"- `{line[:160]}`\n" for line in warned]
    PAGE.write_text("".join(page))
    sys.stdout.write(done.stdout[-3000:])
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
