"""Sample apps of Next.js, React Router and SvelteKit, and their true routes."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class App:
    """An app: its files, and of each route and kind the files that it reaches.

    Those that every route reaches stand in `everywhere` alone.
    """

    files: Mapping[str, str]
    routes: Mapping[tuple[str, str], set[str]]
    everywhere: set[str]


_PAGE = "export default function Page() { return null }"
_LOADER = "export const loader = () => null;"

REACT_ROUTER = App(
    files={
        "package.json": """{
            "name": "shop", "private": true, "type": "module",
            "dependencies": {"react-router": "^7"},
            "devDependencies": {"@react-router/dev": "^7"}
        }""",
        "tsconfig.json": '{"compilerOptions": {"paths": {"~/*": ["./app/*"]}}}',
        "vite.config.ts": """import { reactRouter } from "@react-router/dev/vite";
            export default { plugins: [reactRouter()] };""",
        "react-router.config.ts": 'export default { ssr: true, basename: "/shop" };',
        "app/root.tsx": f'import "./app.css"; {_PAGE}',
        "app/app.css": "",
        "app/entry.server.tsx": 'import { price } from "~/lib/money"; export default price',
        "app/lib/money.ts": "export const price = 1;",
        "app/routes.ts": """
            import type { RouteConfig } from "@react-router/dev/routes";
            import { index, layout, prefix, route } from "@react-router/dev/routes";
            // route("commented", "./pages/commented.tsx"),
            const account = layout("./pages/account/layout.tsx", [
              route("orders/:orderId", "./pages/account/order.tsx"),
            ]);
            export default [
              index("./pages/home.tsx"),
              route("about", "./pages/about.tsx", { caseSensitive: true }),
              route("checkout", "./pages/checkout.tsx", [
                index("./pages/checkout/cart.tsx"),
                route("pay/:step?", "./pages/checkout/pay.tsx"),
              ]),
              ...prefix("account", [account, route("*", "./pages/account/lost.tsx")]),
              route("api/stock/:sku", "./pages/stock.ts"),
            ] satisfies RouteConfig;
        """,
        "app/pages/home.tsx": f'import type {{ Cart }} from "~/lib/types"; {_PAGE}',
        "app/pages/about.tsx": f'import {{ Price }} from "../components/price"; {_PAGE}',
        "app/pages/checkout.tsx": f'import {{ cart }} from "~/lib/cart"; {_PAGE}',
        "app/pages/checkout/cart.tsx": f'import "~/components/price"; {_PAGE}',
        "app/pages/checkout/pay.tsx": f"{_LOADER} {_PAGE}",
        "app/pages/account/layout.tsx": f'import "~/lib/session"; {_PAGE}',
        "app/pages/account/order.tsx": _PAGE,
        "app/pages/account/lost.tsx": _PAGE,
        "app/pages/stock.ts": f'import {{ cart }} from "~/lib/cart"; {_LOADER}',
        "app/components/price.tsx": "export const Price = () => null;",
        "app/lib/cart.ts": 'export * from "./stock";',
        "app/lib/stock.ts": "export const cart = 1;",
        "app/lib/session.ts": "export {};",
        "app/lib/types.ts": "export type Cart = {};",
        "app/pages/commented.tsx": _PAGE,
    },
    routes={
        ("/shop", "page"): {"app/pages/home.tsx"},
        ("/shop/about", "page"): {"app/pages/about.tsx", "app/components/price.tsx"},
        ("/shop/checkout", "page"): {
            *("app/pages/checkout.tsx", "app/pages/checkout/cart.tsx"),
            *("app/lib/cart.ts", "app/lib/stock.ts", "app/components/price.tsx"),
        },
        ("/shop/checkout/pay", "page"): {
            *("app/pages/checkout.tsx", "app/pages/checkout/pay.tsx"),
            *("app/lib/cart.ts", "app/lib/stock.ts"),
        },
        ("/shop/checkout/pay/:step", "page"): {
            *("app/pages/checkout.tsx", "app/pages/checkout/pay.tsx"),
            *("app/lib/cart.ts", "app/lib/stock.ts"),
        },
        ("/shop/account/orders/:orderId", "page"): {
            *("app/pages/account/layout.tsx", "app/lib/session.ts"),
            "app/pages/account/order.tsx",
        },
        ("/shop/account/*", "page"): {"app/pages/account/lost.tsx"},
        ("/shop/api/stock/:sku", "api"): {
            *("app/pages/stock.ts", "app/lib/cart.ts", "app/lib/stock.ts")
        },
    },
    everywhere={
        *("app/root.tsx", "app/app.css", "app/entry.server.tsx", "app/lib/money.ts"),
        *("app/routes.ts", "react-router.config.ts"),
    },
)

FLAT_ROUTES = App(
    files={
        "package.json": REACT_ROUTER.files["package.json"],
        "vite.config.ts": REACT_ROUTER.files["vite.config.ts"],
        "app/root.tsx": _PAGE,
        "app/routes.ts": """
            import { flatRoutes } from "@react-router/fs-routes";
            export default flatRoutes();
        """,
        "app/routes/_index.tsx": _PAGE,
        "app/routes/_auth.tsx": _PAGE,
        "app/routes/_auth.login.tsx": _PAGE,
        "app/routes/concerts.tsx": _PAGE,
        "app/routes/concerts._index.tsx": _PAGE,
        "app/routes/concerts.$city.tsx": _PAGE,
        "app/routes/concerts_.mine.tsx": _PAGE,
        "app/routes/($lang).categories.tsx": _PAGE,
        "app/routes/sitemap[.]xml.ts": _LOADER,
        "app/routes/files.$.tsx": _PAGE,
        "app/routes/team/route.tsx": 'import "./list"; ' + _PAGE,
        "app/routes/team/list.tsx": "export const List = () => null;",
    },
    routes={
        ("/", "page"): {"app/routes/_index.tsx"},
        ("/login", "page"): {"app/routes/_auth.tsx", "app/routes/_auth.login.tsx"},
        ("/concerts", "page"): {"app/routes/concerts.tsx", "app/routes/concerts._index.tsx"},
        ("/concerts/:city", "page"): {"app/routes/concerts.tsx", "app/routes/concerts.$city.tsx"},
        ("/concerts/mine", "page"): {"app/routes/concerts_.mine.tsx"},
        ("/categories", "page"): {"app/routes/($lang).categories.tsx"},
        ("/:lang/categories", "page"): {"app/routes/($lang).categories.tsx"},
        ("/sitemap.xml", "api"): {"app/routes/sitemap[.]xml.ts"},
        ("/files/*", "page"): {"app/routes/files.$.tsx"},
        ("/team", "page"): {"app/routes/team/route.tsx", "app/routes/team/list.tsx"},
    },
    everywhere={"app/root.tsx", "app/routes.ts"},
)

SVELTE_KIT = App(
    files={
        "package.json": """{
            "name": "shop", "private": true, "type": "module",
            "devDependencies": {"@sveltejs/kit": "^2"}
        }""",
        "svelte.config.js": """export default {
            kit: { paths: { base: "/shop" }, alias: { $ui: "src/ui", "$data/*": "data/*" } },
        };""",
        "tsconfig.json": '{"extends": "./.svelte-kit/tsconfig.json"}',
        "vite.config.ts": """import { sveltekit } from "@sveltejs/kit/vite";
            export default { plugins: [sveltekit()] };""",
        "src/app.html": "%sveltekit.head% %sveltekit.body%",
        "src/hooks.server.ts": 'import "$lib/session";',
        "src/lib/session.ts": "export {};",
        "src/lib/index.ts": 'export * from "./cart";',
        "src/lib/cart.ts": "export const cart = 1;",
        "src/lib/types.ts": "export type Cart = {};",
        "src/ui/Price.svelte": """<script lang="ts">
                import type { Cart } from "$lib/types";
                import { base } from "$app/paths";
            </script>
            <b>from "./nowhere"</b>
            <style>@import "./price.css";</style>""",
        "src/ui/price.css": "",
        "src/params/sku.ts": "export const match = () => true;",
        "data/prices.json": "{}",
        "src/routes/+layout.svelte": "<slot />",
        "src/routes/+layout.ts": "export const ssr = true;",
        "src/routes/+error.svelte": "",
        "src/routes/+page.svelte": "",
        "src/routes/(shop)/+layout.svelte": '<script>import "$lib";</script><slot />',
        "src/routes/(shop)/products/[sku=sku]/+page.svelte": """<script>
            import Price from "$ui/Price.svelte";
        </script><Price />""",
        "src/routes/(shop)/products/[sku=sku]/+page.server.ts": 'import "$data/prices.json";',
        "src/routes/(shop)/plain/+page@.svelte": "",
        "src/routes/[[lang]]/about/+page.svelte": "",
        "src/routes/docs/[...path]/+page.ts": "export const load = () => ({});",
        "src/routes/docs/[...path]/+page.svelte": "",
        "src/routes/api/stock/+server.ts": 'import { cart } from "$lib/cart";',
        "src/routes/img-[size]/+server.ts": "",
        "src/routes/unrouted/notes.ts": "",
    },
    routes={
        ("/shop", "page"): {"src/routes/+page.svelte"},
        ("/shop/products/[sku=sku]", "page"): {
            "src/routes/(shop)/+layout.svelte",
            "src/routes/(shop)/products/[sku=sku]/+page.svelte",
            "src/routes/(shop)/products/[sku=sku]/+page.server.ts",
            *("src/ui/Price.svelte", "src/ui/price.css", "src/params/sku.ts", "data/prices.json"),
            *("src/lib/index.ts", "src/lib/cart.ts"),
        },
        ("/shop/plain", "page"): {
            *("src/routes/(shop)/+layout.svelte", "src/routes/(shop)/plain/+page@.svelte"),
            *("src/lib/index.ts", "src/lib/cart.ts"),
        },
        ("/shop/about", "page"): {"src/routes/[[lang]]/about/+page.svelte"},
        ("/shop/[lang]/about", "page"): {"src/routes/[[lang]]/about/+page.svelte"},
        ("/shop/docs/[[...path]]", "page"): {
            *("src/routes/docs/[...path]/+page.ts", "src/routes/docs/[...path]/+page.svelte")
        },
        ("/shop/api/stock", "api"): {"src/routes/api/stock/+server.ts", "src/lib/cart.ts"},
        ("/shop/[img_size_]", "api"): {"src/routes/img-[size]/+server.ts"},
    },
    everywhere={*("src/app.html", "src/hooks.server.ts", "src/lib/session.ts", "svelte.config.js")},
)
# Around each page, but around nothing that answers by itself.
SVELTE_LAYOUT = {"src/routes/+layout.svelte", "src/routes/+layout.ts", "src/routes/+error.svelte"}

# A repository with an app of both routers and a package of its own.
NEXT = {
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
NEXT_EVERYWHERE = {"middleware.ts", "lib/session.ts"}
_ROOT_LAYOUT = {"app/layout.tsx", "app/globals.css"}
_CART = {"lib/cart/index.ts", "lib/cart/total.ts"}
_CHECKOUT = {
    *("app/(shop)/layout.tsx", "app/(shop)/loading.tsx", "app/(shop)/@modal/default.tsx"),
    *("app/(shop)/@modal/(.)checkout/[id]/page.tsx", "app/(shop)/checkout/[id]/page.tsx"),
    *("components/Summary.tsx", "components/worker.ts", "data/prices.json"),
}
_BUTTON = {"packages/ui/src/button.tsx", "packages/ui/src/button.css", "packages/ui/src/base.css"}
_SHELL = {"pages/_app.tsx", "styles/app.css"}
NEXT_ROUTES = {
    ("/shop", "page"): {"app/page.tsx"} | _ROOT_LAYOUT,
    ("/shop/api/health", "api"): {"pages/api/health.ts"},
    ("/shop/api/orders", "api"): {"app/api/orders/route.ts"} | _CART,
    ("/shop/checkout/[id]", "page"): _CHECKOUT | _CART | _ROOT_LAYOUT,
    ("/shop/docs/[[...slug]]", "page"): {"app/docs/[[...slug]]/page.mdx"} | _BUTTON | _ROOT_LAYOUT,
    ("/shop/legacy", "page"): {"pages/legacy/index.tsx"} | _SHELL,
    ("/shop/legacy/[...rest]", "page"): {"pages/legacy/[...rest].tsx"} | _SHELL,
}
