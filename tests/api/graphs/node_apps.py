"""Sample apps of React Router and SvelteKit, and what is true of their routes."""

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
            *("app/pages/stock.ts", "app/lib/cart.ts", "app/lib/stock.ts"),
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
            *("src/routes/docs/[...path]/+page.ts", "src/routes/docs/[...path]/+page.svelte"),
        },
        ("/shop/api/stock", "api"): {"src/routes/api/stock/+server.ts", "src/lib/cart.ts"},
        ("/shop/[img_size_]", "api"): {"src/routes/img-[size]/+server.ts"},
    },
    everywhere={
        *("src/app.html", "src/hooks.server.ts", "src/lib/session.ts", "svelte.config.js"),
    },
)
# Around each page, but around nothing that answers by itself.
SVELTE_LAYOUT = {"src/routes/+layout.svelte", "src/routes/+layout.ts", "src/routes/+error.svelte"}
