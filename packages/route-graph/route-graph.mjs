#!/usr/bin/env node
// Writes the static graph of an app of Next.js, React Router or SvelteKit: each route, and the files
// its code is reachable from.
//
//     node route-graph.mjs [APP] [--root REPOSITORY] [--base-path /PATH] [--framework NAME] > graph.json
//
// APP is the folder of package.json and of the framework's configuration (default: here). What is
// found, and what is not: docs/ci.md. Nothing of the app is run.
import { existsSync, readFileSync, readdirSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from "node:path";
import { parseArgs } from "node:util";

const EXTENSIONS = [
  ...[".tsx", ".ts", ".jsx", ".js", ".mjs", ".cjs", ".mts", ".cts", ".mdx", ".md"],
  ...[".json", ".css", ".scss", ".sass", ".less"],
];
const SCRIPT = /\.(?:[cm]?[jt]sx?|mdx|svelte)$/;
const STYLE = /\.(?:css|scss|sass|less)$/;
// What Next.js puts around a page, from the folder of the page up to `app`.
const AROUND = [
  ...["layout", "template", "loading", "error", "not-found", "forbidden", "unauthorized"],
  ...["default", "global-error", "global-not-found"],
];
// What runs for every request, or in every page.
const EVERYWHERE = ["middleware", "proxy", "instrumentation", "instrumentation-client"];
const NO_ROUTES = new Set(["_app", "_document", "_error", "404", "500"]);

// --- Files -----------------------------------------------------------------------------------------

const isFile = (path) => statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
const isFolder = (path) => statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
const isWithin = (folder, path) => path === folder || path.startsWith(folder + sep);
const firstFile = (paths) => paths.find(isFile);

function* filesBelow(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory() && !/^(?:node_modules|\..*)$/.test(entry.name)) yield* filesBelow(path);
    else if (entry.isFile()) yield path;
  }
}

function* ancestors(folder) {
  yield folder;
  if (dirname(folder) !== folder) yield* ancestors(dirname(folder));
}

/** JSON as tsconfig.json has it: with comments, and commas before a closing bracket. */
function readJson(path) {
  if (!isFile(path)) return {};
  const text = readFileSync(path, "utf8").replace(/^\uFEFF/, "");
  const without = (one, form) => one.replace(form, (_, string) => string ?? "");
  const bare = without(text, /("(?:\\.|[^"\\])*")|\/\/[^\n]*|\/\*[^]*?\*\//g);
  try {
    return JSON.parse(without(bare, /("(?:\\.|[^"\\])*")|,(?=\s*[}\]])/g));
  } catch (error) {
    throw new Error(`${path} is not JSON: ${error.message}`);
  }
}

// --- What a file asks for --------------------------------------------------------------------------

// A comment begins a line or stands after a blank or bracket: not in "https://" or "./*.ts".
const COMMENT = /(^|[\s(){}[\],;=>])(?:\/\*[^]*?\*\/|\/\/[^\n]*)/g;
const ASKED = [
  // Types are gone when the code runs.
  /\b(?:import|export)\s+(?!type\s+(?!from\b|,))[^"'`;()]*?\bfrom\s*["']([^"']+)["']/g,
  /\bimport\s*["']([^"']+)["']/g,
  /\b(?:import|require(?:\.resolve)?)\s*\(\s*["'`]([^"'`$]+)["'`]/g,
  /\bnew\s+URL\(\s*["']([^"']+)["']\s*,\s*import\.meta\.url/g,
];
const STYLE_ASKED = [
  /@(?:import|use|forward|reference|config|plugin)\s+(?:url\()?\s*["']?([^"')\s;]+)/g,
  /\bfrom\s+["']([^"']+)["']/g,
  /\burl\(\s*["']?([^"')\s]+)/g,
];

function specifiers(path) {
  const style = STYLE.test(path);
  if (!style && !SCRIPT.test(path)) return [];
  const text = readFileSync(path, "utf8").replace(COMMENT, "$1 ");
  // A component of Svelte holds both.
  const inside = path.endsWith(".svelte") ? (text.match(/<style[^]*?<\/style>/g) ?? []) : [];
  const script = inside.reduce((left, part) => left.replace(part, ""), text);
  return [
    ...askedBy(script, style ? STYLE_ASKED : ASKED),
    ...inside.flatMap((part) => askedBy(part, STYLE_ASKED)),
  ];
}

function askedBy(text, forms) {
  return [...new Set(forms.flatMap((form) => [...text.matchAll(form)].map(([, found]) => found)))];
}

// --- Which file that is ----------------------------------------------------------------------------

/** The file of a path whose ending, or whose `index`, may be left out. */
function completed(path) {
  const written = path.replace(/\.([cm]?)js(x?)$/, ".$1ts$2");
  const folder = dirname(path);
  return firstFile([
    path,
    ...EXTENSIONS.map((extension) => path + extension),
    // TypeScript is asked for by the name that it is compiled to.
    ...(written === path ? [] : [written, written.replace(/\.ts$/, ".tsx")]),
    // A partial of Sass.
    ...[".scss", ".sass"].map((extension) => join(folder, `_${basename(path)}${extension}`)),
    ...EXTENSIONS.map((extension) => join(path, `index${extension}`)),
  ]);
}

/** Where a pattern with at most one `*` leads a name to; undefined where it does not fit. */
function rest(pattern, name) {
  const [before, after] = pattern.split("*");
  if (after === undefined) return pattern === name ? "" : undefined;
  const fits = name.startsWith(before) && name.endsWith(after);
  const long = name.length >= before.length + after.length;
  return fits && long ? name.slice(before.length, name.length - after.length) : undefined;
}

/** The `paths` and `baseUrl` of the app's tsconfig.json or jsconfig.json, and of what it extends. */
function aliases(config, seen = new Set()) {
  if (!config || seen.has(config)) return { paths: [] };
  seen.add(config);
  const { extends: bases = [], compilerOptions = {} } = readJson(config);
  const folder = dirname(config);
  const found = { paths: [] };
  for (const base of [bases].flat()) {
    const places = base.startsWith(".")
      ? [resolve(folder, base)]
      : [...ancestors(folder)].map((place) => join(place, "node_modules", base));
    const near = places.flatMap((place) => [place, `${place}.json`, join(place, "tsconfig.json")]);
    Object.assign(found, aliases(firstFile(near), seen));
  }
  const { baseUrl, paths } = compilerOptions;
  if (baseUrl) found.base = resolve(folder, baseUrl);
  if (paths)
    found.paths = Object.entries(paths).map(([pattern, targets]) => ({
      pattern,
      targets: targets.map((target) => resolve(baseUrl ? found.base : folder, target)),
    }));
  // The most specific first, as TypeScript ranks them: by what stands before the star.
  const rank = ({ pattern }) => (pattern.includes("*") ? pattern.indexOf("*") : Infinity);
  found.paths.sort((one, other) => rank(other) - rank(one));
  return found;
}

/** The folders of the repository's own packages, by name. */
function workspaces(root) {
  const told = readJson(join(root, "package.json")).workspaces ?? [];
  const pnpm = join(root, "pnpm-workspace.yaml");
  const listed = isFile(pnpm)
    ? [...readFileSync(pnpm, "utf8").matchAll(/^\s*-\s*["']?([^"'\s#]+)/gm)].map(([, found]) => found)
    : [];
  const found = new Map();
  for (const glob of [...(told.packages ?? told), ...listed]) {
    if (glob.startsWith("!")) continue;
    const folder = join(root, glob.replace(/\/?\*.*$/, ""));
    if (!isFolder(folder)) continue;
    const inner = glob.includes("*")
      ? [...filesBelow(folder)].filter((path) => basename(path) === "package.json").map(dirname)
      : [folder];
    for (const place of inner) {
      const { name } = readJson(join(place, "package.json"));
      if (name) found.set(name, place);
    }
  }
  return found;
}

/** Every file that a target of `exports` or `imports` may name, whatever the condition. */
const targets = (told) =>
  typeof told === "string" ? [told] : Object.values(told ?? {}).flatMap(targets);

/** The files that `exports` or `imports` give a name, those with a star filled in. */
function mapped(table, name) {
  const fitting = Object.keys(table).filter((pattern) => rest(pattern, name) !== undefined);
  const [best] = fitting.sort((one, other) => other.length - one.length);
  return best === undefined
    ? []
    : targets(table[best]).map((target) => target.replaceAll("*", rest(best, name)));
}

class Resolver {
  #root;
  #aliases;
  #workspaces;
  #asked = new Map();

  constructor(app, root, own = []) {
    this.#root = root;
    this.#aliases = aliases(firstFile(["tsconfig.json", "jsconfig.json"].map((n) => join(app, n))));
    // Those of the framework, which it writes into a tsconfig.json when the app is first built.
    this.#aliases.paths.push(...own);
    this.#workspaces = workspaces(root);
  }

  /** The files of the repository that a file asks for. */
  asked(path) {
    if (!this.#asked.has(path)) {
      const found = specifiers(path).flatMap((name) => this.#files(name, path));
      const own = found.filter((one) => isWithin(this.#root, one) && !/[\\/]node_modules[\\/]/.test(one));
      this.#asked.set(path, [...new Set(own)]);
    }
    return this.#asked.get(path);
  }

  #files(name, from) {
    const bare = name.replace(/^~(?=[^/])/, "").replace(/[?#].*$/, "");
    const folder = dirname(from);
    if (name.startsWith("#")) return this.#imported(name, folder);
    if (/^[a-z]+:|^\/\//i.test(bare) || isAbsolute(bare)) return [];
    if (/^\.\.?(?:\/|$)/.test(bare)) return [completed(join(folder, bare))].filter(Boolean);
    for (const { pattern, targets: places } of this.#aliases.paths) {
      const part = rest(pattern, name);
      const found = part !== undefined && firstOf(places.map((place) => place.replace("*", part)));
      if (found) return [found];
    }
    const based = this.#aliases.base && completed(join(this.#aliases.base, bare));
    // A style sheet's names are beside it, unless they are a package's.
    const beside = STYLE.test(from) && completed(join(folder, bare));
    if (based || beside) return [based || beside];
    return this.#packaged(bare);
  }

  #imported(name, folder) {
    const home = [...ancestors(folder)].find((place) => isFile(join(place, "package.json")));
    const table = home && readJson(join(home, "package.json")).imports;
    return [table && firstOf(mapped(table, name).map((path) => join(home, path)))].filter(Boolean);
  }

  /** The files of a package that stands in this repository itself; none of any other. */
  #packaged(name) {
    const owner = name.match(/^(?:@[^/]+\/)?[^/]+/)?.[0];
    const folder = this.#workspaces.get(owner);
    if (!folder) return [];
    const inner = name.slice(owner.length + 1);
    const { exports, source, module, main } = readJson(join(folder, "package.json"));
    // Without a path in it, it tells of the package itself.
    const paths = Object.keys(exports ?? {}).some((key) => key.startsWith("."));
    const told = mapped(paths ? exports : { ".": exports }, inner ? `./${inner}` : ".");
    const guesses = inner ? [inner, `src/${inner}`] : [source, module, main, "src/index", "index"];
    const found = firstOf([...told, ...guesses].filter(Boolean).map((path) => join(folder, path)));
    // It is built before it is used: whatever it has may be in there.
    const all = () => [...filesBelow(folder)].filter((path) => SCRIPT.test(path) || STYLE.test(path));
    return found ? [found] : all();
  }

  /** All files that can be reached from some, these included. */
  reachable(starts) {
    const seen = new Set(starts);
    for (const path of seen) for (const next of this.asked(path)) seen.add(next);
    return seen;
  }
}

function firstOf(paths) {
  for (const path of paths) {
    const found = completed(path);
    if (found) return found;
  }
  return undefined;
}

// --- Routes ----------------------------------------------------------------------------------------

/** The path of a folder below `app`, as the address bar shows it. */
function appPath(parts) {
  let path = [];
  for (const part of parts) {
    if (part.startsWith("@")) continue;
    const [, marks, name] = part.match(/^((?:\(\.{1,3}\))+)(.+)$/) ?? [];
    if (marks) {
      // An intercepted route is shown in place of the one that it names.
      for (const mark of marks.match(/\(\.+\)/g)) {
        if (mark === "(..)") path = path.slice(0, -1);
        if (mark === "(...)") path = [];
      }
      path.push(name);
    } else if (!/^\(.*\)$/.test(part)) path.push(part);
  }
  return `/${path.join("/")}`;
}

/** How Next.js ranks a segment: a literal before a parameter before a rest. */
const rank = (part) => (/^\[\[?\.\.\./.test(part) ? 2 : part.startsWith("[") ? 1 : 0);

/** How segments fit those of a route: `all` of its addresses, `some` of them, or none. */
function fit(parts, route) {
  const [own, other] = [parts[0], route[0]];
  if (own === undefined && other === undefined) return "all";
  const optional = (part) => part?.startsWith("[[");
  if (own === undefined) return optional(other) ? "some" : undefined;
  if (rank(own) === 2) return other !== undefined || optional(own) ? "all" : undefined;
  if (other === undefined) return undefined;
  if (rank(other) === 2) return "some";
  if (rank(own) === 0 && rank(other) === 0 && own !== other) return undefined;
  const rest = fit(parts.slice(1), route.slice(1));
  return rest === "all" && rank(own) < rank(other) ? "some" : rest;
}

/** The segments of an address: neither groups nor slots are any. */
const segments = (parts) => parts.filter((part) => !/^(@.*|\(.*\))$/.test(part));

/** The pages that a slot shows on the addresses of a route: the most specific that fits each. */
function* slotPages(pages, slot, route) {
  const inside = pages
    .filter(({ parts }) => slot.every((part, depth) => parts[depth] === part))
    .map(({ parts, path }) => ({ path, inner: parts.slice(slot.length) }))
    .filter(({ inner }) => !inner.some((part) => /^\(\.+\)./.test(part)))
    .map((page) => ({ ...page, ranks: segments(page.inner).map(rank).join("") }))
    .sort((one, other) => (one.ranks < other.ranks ? -1 : 1));
  for (const { path, inner } of inside) {
    const fits = fit(segments(inner), route);
    if (fits) yield { path, parts: [...slot, ...inner] };
    if (fits === "all") return;
  }
}

function* appRoutes(folder, endings) {
  const files = [];
  for (const path of filesBelow(folder)) {
    const parts = relative(folder, dirname(path)).split(sep).filter(Boolean);
    const [name, ending] = split(basename(path), endings);
    if (["page", "route"].includes(name) && ending && !parts.some((part) => part.startsWith("_")))
      files.push({ path, parts, kind: name === "page" ? "page" : "api" });
  }
  const pages = files.filter(({ kind }) => kind === "page");
  const beside = (parts) =>
    AROUND.flatMap((name) => endings.map((end) => join(folder, ...parts, name + end))).filter(isFile);
  // From the page's folder up to `top`: what surrounds it, and what slots show beside it.
  function* surroundings(parts, top) {
    for (let depth = top; depth <= parts.length; depth++) {
      const place = parts.slice(0, depth);
      yield* beside(place);
      for (const name of readdirSync(join(folder, ...place)).filter((inner) => inner.startsWith("@"))) {
        const slot = [...place, name];
        yield* beside(slot);
        for (const page of slotPages(pages, slot, segments(parts.slice(depth)))) {
          yield page.path;
          yield* surroundings(page.parts, slot.length);
        }
      }
    }
  }
  for (const { path, parts, kind } of files) {
    const around = kind === "page" ? [...surroundings(parts, 0)] : [];
    yield { path: appPath(parts), kind, file: path, around };
  }
}

function* pageRoutes(folder, endings) {
  const shell = ["_app", "_document"].flatMap((name) => endings.map((end) => join(folder, name + end)));
  for (const path of filesBelow(folder)) {
    const [name, ending] = split(basename(path), endings);
    const parts = relative(folder, dirname(path)).split(sep).filter(Boolean);
    if (!ending || name.endsWith(".d") || (!parts.length && NO_ROUTES.has(name))) continue;
    const kind = parts[0] === "api" || (!parts.length && name === "api") ? "api" : "page";
    const shown = name === "index" ? parts : [...parts, name];
    const around = kind === "page" ? shell.filter(isFile) : [];
    yield { path: `/${shown.join("/")}`, kind, file: path, around };
  }
}

function split(name, endings) {
  const ending = endings.find((end) => name.endsWith(end));
  return ending ? [name.slice(0, -ending.length), ending] : [name, undefined];
}

/** What next.config says of routes, where it says so in plain words. */
function configured(app) {
  const config = firstFile(["js", "mjs", "cjs", "ts", "mts"].map((end) => join(app, `next.config.${end}`)));
  const text = config ? readFileSync(config, "utf8").replace(COMMENT, "$1 ") : "";
  const [, listed] = text.match(/\bpageExtensions\s*:\s*\[([^\]]*)\]/) ?? [];
  const [, basePath] = text.match(/\bbasePath\s*:\s*["'`]([^"'`$]*)["'`]/) ?? [];
  const endings = listed?.match(/[\w.]+(?=["'`])/g) ?? ["tsx", "ts", "jsx", "js"];
  // The longest first: `page.tsx` goes before `tsx`.
  return { basePath, endings: endings.map((end) => `.${end}`).sort((a, b) => b.length - a.length) };
}

/** An app of Next.js. */
function ofNext(app) {
  const settings = configured(app);
  // Next.js looks into src only where neither stands beside it.
  const home = [app, join(app, "src")].find((place) =>
    ["app", "pages"].some((name) => isFolder(join(place, name))),
  );
  if (!home) throw new Error(`${app} has neither app/ nor pages/, nor has its src/`);
  const routes = [["app", appRoutes], ["pages", pageRoutes]].flatMap(([name, found]) =>
    isFolder(join(home, name)) ? [...found(join(home, name), settings.endings)] : [],
  );
  const shared = EVERYWHERE.flatMap((name) => settings.endings.map((end) => join(home, name + end)));
  return { basePath: settings.basePath, routes, shared };
}

// --- React Router ----------------------------------------------------------------------------------

const CODE = [".tsx", ".ts", ".jsx", ".js", ".mjs", ".mts"];
const withCode = (path) => firstFile([path, ...CODE.map((end) => path + end)]);

/** What a configuration says in plain words: the text after a name. */
function configuredText(app, name, member) {
  const config = withCode(join(app, name));
  const text = config ? readFileSync(config, "utf8").replace(COMMENT, "$1 ") : "";
  return text.match(new RegExp(`\\b${member}\\s*:\\s*["'\`]([^"'\`$]*)["'\`]`))?.[1];
}

/** The literals of a module: texts, lists and calls, as they are written; all else is `undefined`. */
class Literals {
  #tokens;
  #at = 0;

  constructor(text) {
    const bare = text.replace(COMMENT, "$1 ");
    const forms = /"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|`([^`$]*)`|(\.\.\.|[A-Za-z_$][\w$]*|\S)/g;
    this.#tokens = [...bare.matchAll(forms)].map(([, ...found]) => {
      const text = found.slice(0, 3).find((one) => one !== undefined);
      return text === undefined ? { sign: found[3] } : { text };
    });
  }

  /** The value that stands after some words. */
  after(...words) {
    const at = this.#tokens.findIndex((_, index) =>
      words.every((word, offset) => this.#tokens[index + offset]?.sign === word),
    );
    if (at < 0) return undefined;
    this.#at = at + words.length;
    return this.#value();
  }

  #sign = () => this.#tokens[this.#at]?.sign;

  #value() {
    if (this.#sign() === "await") this.#at++;
    const { text, sign } = this.#tokens[this.#at++] ?? {};
    let value;
    if (text !== undefined) value = { text };
    else if (sign === "[") value = { list: this.#list("]") };
    else if (sign === "(") [value] = this.#list(")");
    else if (sign === "{") this.#list("}");
    else if (/^[A-Za-z_$]/.test(sign ?? "")) {
      value = { name: sign };
      if (this.#sign() === "(") {
        this.#at++;
        value = { call: sign, given: this.#list(")") };
      }
    }
    // A type (`satisfies RouteConfig`) changes nothing; anything else is computed.
    const typed = ["as", "satisfies"].includes(this.#sign());
    return this.#skipped() && !typed ? undefined : value;
  }

  #list(end) {
    const values = [];
    while (this.#at < this.#tokens.length && this.#sign() !== end) {
      if (this.#sign() === "...") this.#at++;
      values.push(this.#value());
      if (this.#sign() === ",") this.#at++;
    }
    this.#at++;
    return values;
  }

  /** Goes on to what ends a value, and tells whether there was anything before it. */
  #skipped() {
    const began = this.#at;
    for (let depth = 0; this.#at < this.#tokens.length; this.#at++) {
      const sign = this.#sign();
      if (!depth && [",", ";", ")", "]", "}"].includes(sign)) break;
      // Without a semicolon, the next statement ends it.
      if (!depth && ["export", "const", "import", "function"].includes(sign)) break;
      if (["(", "[", "{"].includes(sign)) depth++;
      if ([")", "]", "}"].includes(sign)) depth--;
    }
    return this.#at > began;
  }
}

/** The routes of routes.ts: each with the path below its parent, its file, and those inside of it. */
function written(app, file) {
  const text = readFileSync(file, "utf8");
  const computed = new Error(`${file} computes its routes, and nothing of the app is run`);
  const nodes = (value, seen = []) => {
    if (value?.list) return value.list.flatMap((one) => nodes(one, seen));
    if (value?.name && !seen.includes(value.name)) {
      const { name } = value;
      const told = ["const", "let"].map((word) => {
        const literals = new Literals(text.replace(new RegExp(`\\b${name}\\s*:[^=]*=`), `${name} =`));
        return literals.after(word, name, "=");
      });
      return nodes(told.find(Boolean), [...seen, name]);
    }
    const { call, given = [] } = value ?? {};
    const texts = given.flatMap((one) => (one?.text === undefined ? [] : [one.text]));
    const inside = given.findLast((one) => one?.list || one?.name || one?.call);
    const inner = () => nodes(inside ?? { list: [] }, seen);
    const at = (name) => {
      const found = name === undefined ? undefined : withCode(join(app, name));
      if (!found) throw computed;
      return found;
    };
    if (call === "route") return [{ path: texts[0], file: at(texts[1]), children: inner() }];
    if (call === "index") return [{ path: "", file: at(texts[0]), children: [] }];
    if (call === "layout") return [{ file: at(texts[0]), children: inner() }];
    if (call === "prefix") return [{ path: texts[0], bare: true, children: inner() }];
    if (call === "flatRoutes") return flat(app);
    throw computed;
  };
  return nodes(new Literals(text).after("export", "default"));
}

/** The routes of a folder by its files' names, as `flatRoutes()` reads them. */
function flat(app) {
  const folder = join(app, "routes");
  const found = readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const name = entry.isDirectory() ? entry.name : entry.name.replace(/\.[cm]?[jt]sx?$|\.mdx?$/, "");
    if (entry.isFile() && name === entry.name) return [];
    const file = entry.isFile()
      ? join(folder, entry.name)
      : ["route", "index"].map((inner) => withCode(join(folder, name, inner))).find(Boolean);
    return file ? [{ file, name, parts: name.match(/(?:\[[^\]]*\]|[^.[\]])+/g) ?? [], children: [] }] : [];
  });
  const top = [];
  for (const route of found) {
    const inside = (one) => one !== route && route.name.startsWith(`${one.name}.`);
    const [parent] = found.filter(inside).sort((one, other) => other.name.length - one.name.length);
    const own = route.parts.slice(parent?.parts.length ?? 0);
    const shown = own.filter((part) => !/^_/.test(part)).map(flatPart);
    // A layout without a path of its own has none to be found at.
    if (own.at(-1) === "_index" || shown.length) route.path = shown.join("/");
    (parent?.children ?? top).push(route);
  }
  return top;
}

/** A part of a file's name as a part of the path. */
function flatPart(part) {
  const [, optional] = part.match(/^\((.*)\)$/) ?? [];
  const inner = (optional ?? part).replace(/_$/, "");
  const path = inner === "$" ? "*" : inner.replace(/^\$/, ":").replace(/\[([^\]]*)\]/g, "$1");
  return optional === undefined ? path : `${path}?`;
}

function ofReactRouter(app) {
  const home = join(app, configuredText(app, "react-router.config", "appDirectory") ?? "app");
  const listed = withCode(join(home, "routes"));
  if (!listed && !isFolder(join(home, "routes")))
    throw new Error(`${home} has neither routes.ts nor routes/`);
  const shell = ["root", "entry.client", "entry.server"].map((name) => withCode(join(home, name)));
  const routes = [];
  const walk = (nodes, above, around) => {
    for (const { path, file, bare, children } of nodes) {
      const shown = [above, path].filter(Boolean).join("/").replace(/\/+/g, "/");
      if (path !== undefined && !bare && file) {
        const page = /\bexport\s+default\b|\bas\s+default\b/.test(readFileSync(file, "utf8"));
        for (const one of spelled(shown.split("/").filter(Boolean), /^(.+)\?$/))
          routes.push({ path: `/${one.join("/")}`, kind: page ? "page" : "api", file, around });
      }
      walk(children, shown, file ? [...around, file] : around);
    }
  };
  walk(listed ? written(home, listed) : flat(home), "", []);
  const config = withCode(join(app, "react-router.config"));
  return {
    basePath: configuredText(app, "react-router.config", "basename"),
    routes,
    shared: [...shell, listed, config].filter(Boolean),
  };
}

/** A path with and without each of its parts that may be missing. */
function spelled(parts, optional) {
  if (!parts.length) return [[]];
  const [first, ...others] = parts;
  const rest = spelled(others, optional);
  const [, inner] = first.match(optional) ?? [];
  return inner === undefined
    ? rest.map((one) => [first, ...one])
    : rest.flatMap((one) => [one, [inner, ...one]]);
}

// --- SvelteKit -------------------------------------------------------------------------------------

function ofSvelteKit(app) {
  const config = withCode(join(app, "svelte.config"));
  const text = config ? readFileSync(config, "utf8").replace(COMMENT, "$1 ") : "";
  const source = join(app, "src");
  const home = join(app, text.match(/\broutes\s*:\s*["']([^"']+)["']/)?.[1] ?? "src/routes");
  if (!isFolder(home)) throw new Error(`${home} is no folder`);
  const hooks = ["hooks", "hooks.server", "hooks.client", "service-worker", "instrumentation.server"];
  const params = join(source, "params");
  const routes = [];
  for (const path of filesBelow(home)) {
    const [, what] = basename(path).match(/^\+(page|server)(?:@[^.]*)?(?:\.server)?\.(?:svelte|[jt]s)$/) ?? [];
    if (!what) continue;
    const parts = relative(home, dirname(path)).split(sep).filter(Boolean);
    const around = parts
      .filter((part) => part.includes("="))
      .flatMap((part) => withCode(join(params, part.match(/=(\w+)/)?.[1] ?? "")) ?? []);
    for (let depth = 0; what === "page" && depth <= parts.length; depth++)
      for (const name of readdirSync(join(home, ...parts.slice(0, depth))))
        if (/^\+(?:layout|error)[@.]/.test(name)) around.push(join(home, ...parts.slice(0, depth), name));
    const shown = parts.filter((part) => !/^\(.*\)$/.test(part)).map(sveltePart);
    for (const one of spelled(shown, /^\[(\[[^.\]].*\])\]$/))
      routes.push({
        path: `/${one.join("/")}`,
        kind: what === "page" ? "page" : "api",
        file: path,
        around,
        // A page's component before what loads its data.
        chief: path.endsWith(".svelte"),
      });
  }
  const own = [{ pattern: "$lib", targets: [join(source, "lib")] }];
  own.push({ pattern: "$lib/*", targets: [join(source, "lib/*")] });
  const [, listed = ""] = text.match(/\balias\s*:\s*\{([^}]*)\}/) ?? [];
  for (const [, name, target] of listed.matchAll(/["']?([\w$@~#/*-]+)["']?\s*:\s*["']([^"']+)["']/g)) {
    own.push({ pattern: name, targets: [resolve(app, target)] });
    if (!name.includes("*")) own.push({ pattern: `${name}/*`, targets: [resolve(app, target, "*")] });
  }
  return {
    basePath: text.match(/\bbase\s*:\s*["']([^"']*)["']/)?.[1],
    routes,
    shared: [...hooks.map((name) => withCode(join(source, name))), join(source, "app.html"), config].filter(Boolean),
    aliases: own,
  };
}

/** A segment of which only some is a parameter is a parameter to the service. */
function sveltePart(part) {
  const mixed = /\[/.test(part) && !/^\[+(?:\.\.\.)?[\w-]+(?:=[\w-]+)?\]+$/.test(part);
  const plain = part.replace(/\[(?:x|u\+)([0-9a-f]+)\]/gi, (_, code) => String.fromCodePoint(parseInt(code, 16)));
  return mixed && /\[/.test(plain) ? `[${plain.replace(/\W+/g, "_")}]` : plain.replace(/^\[\.\.\.(\w+)(?:=\w+)?\]$/, "[[...$1]]");
}

// --- The graph -------------------------------------------------------------------------------------

const FRAMEWORKS = { next: ofNext, "react-router": ofReactRouter, sveltekit: ofSvelteKit };

/** The framework of an app, by its configuration and by what it depends on. */
function recognized(app) {
  const { dependencies = {}, devDependencies = {} } = readJson(join(app, "package.json"));
  const needs = (name) => name in dependencies || name in devDependencies;
  if (withCode(join(app, "svelte.config")) || needs("@sveltejs/kit")) return "sveltekit";
  const routed = withCode(join(app, "react-router.config")) || needs("@react-router/dev");
  return routed && !needs("next") ? "react-router" : "next";
}

function graph(app, { root = app, basePath, framework = recognized(app) } = {}) {
  if (!Object.hasOwn(FRAMEWORKS, framework))
    throw new Error(`--framework is one of ${Object.keys(FRAMEWORKS).join(", ")}`);
  const told = FRAMEWORKS[framework](app);
  const base = (basePath ?? told.basePath ?? "").replace(/\/$/, "");
  const resolver = new Resolver(app, root, told.aliases);
  const found = new Map();
  for (const { path, kind, file, around, chief } of told.routes) {
    const shown = base + path === base + "/" && base ? base : base + path;
    // Those that no address tells apart, `/[id]` and `/img-[id]`, are one; the shorter name is plain.
    const shape = `${kind} ${shown.replace(/\[[\w=-]+\]/g, "[]")}`;
    const route = found.get(shape) ?? { path: shown, kind, file, starts: [] };
    if (shown.length < route.path.length) route.path = shown;
    // What else is shown under the path stands in a slot.
    if (chief ?? !/[\\/]@/.test(file)) route.file = file;
    route.starts.push(file, ...around, ...told.shared.filter(isFile));
    found.set(shape, route);
  }
  const named = (path) => relative(root, path).split(sep).join("/");
  const routes = [...found.values()].map(({ path, kind, file, starts }) => ({
    path,
    kind,
    file: named(file),
    files: [...resolver.reachable(starts)].map(named).sort(),
  }));
  const key = ({ path, kind }) => `${path} ${kind}`;
  routes.sort((one, other) => (key(one) < key(other) ? -1 : 1));
  return { schema_version: 1, generator: "route-graph", framework, routes };
}

// --- The command -----------------------------------------------------------------------------------

function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      root: { type: "string" },
      "base-path": { type: "string" },
      framework: { type: "string" },
    },
  });
  const app = realpathSync(positionals[0] ?? ".");
  const repository = [...ancestors(app)].find((folder) => existsSync(join(folder, ".git"))) ?? app;
  const root = values.root ? realpathSync(values.root) : repository;
  if (!isWithin(root, app)) throw new Error(`${app} is not within ${root}`);
  const chosen = { root, basePath: values["base-path"], framework: values.framework };
  process.stdout.write(`${JSON.stringify(graph(app, chosen))}\n`);
}

try {
  main();
} catch (error) {
  process.stderr.write(`route-graph: ${error.message}\n`);
  process.exitCode = 1;
}
