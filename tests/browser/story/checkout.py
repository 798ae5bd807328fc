"""The source of a shop as its team has it: a Next.js app in Git, and a change of it."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What the button of the checkout says, by which visitors are moved.
OLD, NEW = "Continue to step 2 of 3", "Place the order"

_BUTTON = "components/OrderButton.tsx"
_FILES = {
    "package.json": '{"name": "shop", "dependencies": {"next": "16"}}\n',
    "app/layout.tsx": "export default ({ children }) => <html><body>{children}</body></html>;\n",
    "app/page.tsx": 'export default () => <a href="/checkout/4711">To the checkout</a>;\n',
    "app/checkout/[id]/page.tsx": (
        'import { OrderButton } from "../../../components/OrderButton";\n'
        "export default () => <OrderButton />;\n"
    ),
    _BUTTON: f"export const OrderButton = () => <button>{OLD}</button>;\n",
}
_MESSAGE = "Order in one step\n\nThree steps lose people: delivery and payment fit one page."
# With them a commit's name is the same wherever the test runs, and so is who gets the canary.
_WHO = {
    f"GIT_{role}_{name}": value
    for role in ("AUTHOR", "COMMITTER")
    for name, value in (
        ("NAME", "Ada"),
        ("EMAIL", "ada@shop.example"),
        ("DATE", "2026-10-01T09:00:00+0000"),
    )
}


@dataclass(frozen=True, kw_only=True)
class Checkout:
    folder: Path
    base: str
    change: str

    @property
    def compare(self) -> dict[str, Any]:
        """What GitHub answers when asked to compare both commits, as far as anybody reads it."""
        changes = _git(self.folder, "diff", "--numstat", self.base, self.change)
        return {
            "status": "ahead",
            "base_commit": {"sha": self.base},
            "commits": [{"sha": self.change, "commit": {"message": _MESSAGE}}],
            "files": [
                {
                    "filename": name,
                    "status": "modified",
                    "additions": int(added),
                    "deletions": int(gone),
                    "changes": int(added) + int(gone),
                }
                for added, gone, name in (line.split("\t") for line in changes.splitlines())
            ],
        }

    def look_at(self, commit: str) -> None:
        _git(self.folder, "checkout", "--quiet", commit)


def checkout_of(folder: Path) -> Checkout:
    """Returns a new working copy, which stands at the base."""
    _git(folder, "init", "--quiet", "--object-format", "sha1", "--initial-branch", "main")
    base = _committed(folder, _FILES, "Open the shop")
    changed = {_BUTTON: _FILES[_BUTTON].replace(OLD, NEW)}
    change = _committed(folder, changed, _MESSAGE)
    made = Checkout(folder=folder, base=base, change=change)
    (folder.parent / "compare.json").write_text(json.dumps(made.compare))
    made.look_at(base)
    return made


def _committed(folder: Path, files: dict[str, str], message: str) -> str:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--message", message)
    return _git(folder, "rev-parse", "HEAD").strip()


def _git(folder: Path, *words: str) -> str:
    # Neither the developer's settings nor the machine's.
    environment = {
        **os.environ,
        **_WHO,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    done = subprocess.run(
        ["git", *words], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout
