"""Shops as PyPI and npm have them, started as their pages say: nginx's log is counted once."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.outside.visits import Walk, visit
from domain.route import RouteTable
from tests.clients.page import blocks, example, page
from tests.processes.registry import node_folder, python_of

pytestmark = [pytest.mark.world, pytest.mark.timeout(1800)]

SHOPS = Path(__file__).parent / "shops"
NEXT = blocks(page("opentelemetry.md"), "sh")[3].split()[2:]
OSCAR = [
    *("django-oscar==4.*", "django-oscar-api==3.*", "sorl-thumbnail", "gunicorn"),
    "opentelemetry-distro",
    "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry-instrumentation-django",
]
BOOK = "http://shop/api/products"


def ran(words: Sequence[str | Path], folder: Path, **environment: str) -> None:
    """Runs a step that takes minutes on a machine with other work."""
    given = {"PATH": os.environ["PATH"], **environment}
    subprocess.run(words, cwd=folder, env=given, check=True)


def test_django_oscar_is_counted_by_a_header_without_a_line_of_code(tmp_path, tenant) -> None:
    python = python_of(tmp_path / "python", OSCAR)
    shop = tmp_path / "shop"
    shutil.copytree(SHOPS / "oscar", shop / "shop")
    django = {"DJANGO_SETTINGS_MODULE": "shop.settings", "PYTHONPATH": str(shop)}
    manage = [python, "-m", "django"]
    ran([*manage, "migrate"], shop, **django)
    ran([*manage, "shell", "-c", "import shop.seed"], shop, **django)
    tenant.settings(span_unit="http.request.header.session")
    walk = Walk(
        requests=[
            ("GET", "/api/products/", None),
            ("GET", "/api/products/2/", None),
            ("GET", "/api/products/99/", None),
            ("POST", "/api/basket/add-product/", {"url": f"{BOOK}/2/", "quantity": 1}),
            ("POST", "/api/basket/add-product/", {"url": f"{BOOK}/3/", "quantity": 1}),
            ("GET", "/catalogue/", None),
            ("GET", "/catalogue/book-2_2/", None),
            ("GET", "/nowhere", None),
        ],
        graph=RouteTable(
            [
                *("/api/products", "/api/products/{pk}", "/api/basket/add-product"),
                *("/catalogue", "/catalogue/{product_slug}_{pk}", "/nowhere"),
            ]
        ),
    )
    captured = {"OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SERVER_REQUEST": "session"}
    programs = python.parent
    gunicorn = ["-c", "shop/gunicorn.conf.py", "-w", "2", "shop.wsgi"]
    words = [programs / "opentelemetry-instrument", programs / "gunicorn", *gunicorn]
    visit(words, shop, tenant, walk, HOME=str(tmp_path), **django, **captured)


def test_next_js_is_counted_by_the_page_s_instrumentation(tmp_path, tenant) -> None:
    node_folder(tmp_path, ["create-next-app@16"])
    home = str(Path.home())
    options = ["--ts", "--app", "--empty", "--no-tailwind", "--no-eslint", "--no-src-dir"]
    options += ["--import-alias", "@/*", "--disable-git", "--use-npm", "--skip-install"]
    ran(["npx", "create-next-app", "shop", *options], tmp_path, HOME=home)
    shop = tmp_path / "shop"
    shutil.copytree(SHOPS / "next", shop, dirs_exist_ok=True)
    (shop / "instrumentation.ts").write_text(example("instrumentation.ts"))
    ran(["npm", "install", "--silent", "--no-audit", "--no-fund", *NEXT], shop, HOME=home)
    quiet = {"NEXT_TELEMETRY_DISABLED": "1"}
    ran(["npx", "next", "build"], shop, HOME=home, **quiet)
    walk = Walk(
        requests=[
            ("GET", "/", None),
            ("GET", "/products/2", None),
            ("GET", "/products/99", None),
            ("POST", "/api/cart", {"id": "2"}),
            ("POST", "/api/cart", {"id": "3"}),
            ("POST", "/api/cart", {"id": "99"}),
            ("GET", "/cart", None),
            ("GET", "/about", None),
            ("GET", "/docs/a/b", None),
            ("GET", "/nowhere", None),
        ],
        graph=RouteTable(
            [
                *("/", "/products/[id]", "/api/cart", "/cart", "/about", "/docs/[...slug]"),
                "/nowhere",
            ]
        ),
    )
    words = ["node", "node_modules/next/dist/bin/next", "start", "-H", "127.0.0.1"]
    soon = {"OTEL_BSP_SCHEDULE_DELAY": "1000"}
    visit(words, shop, tenant, walk, flushes=False, HOME=home, **quiet, **soon)
