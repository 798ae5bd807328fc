#!/usr/bin/env node
// Writes the static graph of a Next.js app: each route, and the files its code is reachable from.
//
//     node next-graph.mjs [APP] [--root REPOSITORY] [--base-path /PATH] > graph.json
//
// APP is the folder of next.config and package.json (default: here). What is found, and what is not:
// docs/next-graph.md. Nothing of the app is run.
import { existsSync, readFileSync, readdirSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from "node:path";
import { parseArgs } from "node:util";

const EXTENSIONS = [
  ...[".tsx", ".ts", ".jsx", ".js", ".mjs", ".cjs", ".mts", ".cts", ".mdx", ".md"],
  ...[".json", ".css", ".scss", ".sass", ".less"],
];
const SCRIPT = /\.(?:[cm]?[jt]sx?|mdx)$/;
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
  const forms = style ? STYLE_ASKED : ASKED;
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

  constructor(app, root) {
    this.#root = root;
    this.#aliases = aliases(firstFile(["tsconfig.json", "jsconfig.json"].map((n) => join(app, n))));
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

function* appRoutes(folder, endings) {
  const named = (place, names) => names.flatMap((name) => endings.map((end) => join(place, name + end)));
  for (const path of filesBelow(folder)) {
    const parts = relative(folder, dirname(path)).split(sep).filter(Boolean);
    const [name, ending] = split(basename(path), endings);
    if (!["page", "route"].includes(name) || !ending || parts.some((part) => part.startsWith("_")))
      continue;
    const around = [];
    for (let depth = 0; name === "page" && depth <= parts.length; depth++) {
      const place = join(folder, ...parts.slice(0, depth));
      const slots = readdirSync(place).filter((inner) => inner.startsWith("@"));
      for (const one of [place, ...slots.map((slot) => join(place, slot))])
        around.push(...named(one, AROUND).filter(isFile));
    }
    yield { path: appPath(parts), kind: name === "page" ? "page" : "api", file: path, around };
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

function graph(app, { root = app, basePath } = {}) {
  const settings = configured(app);
  // Next.js looks into src only where neither stands beside it.
  const home = [app, join(app, "src")].find((place) =>
    ["app", "pages"].some((name) => isFolder(join(place, name))),
  );
  if (!home) throw new Error(`${app} has neither app/ nor pages/, nor has its src/`);
  const base = (basePath ?? settings.basePath ?? "").replace(/\/$/, "");
  const resolver = new Resolver(app, root);
  const shared = EVERYWHERE.flatMap((name) => settings.endings.map((end) => join(home, name + end)));
  const found = new Map();
  for (const [name, routes] of [["app", appRoutes], ["pages", pageRoutes]]) {
    if (!isFolder(join(home, name))) continue;
    for (const { path, kind, file, around } of routes(join(home, name), settings.endings)) {
      const shown = base + path === base + "/" && base ? base : base + path;
      const route = found.get(`${kind} ${shown}`) ?? { path: shown, kind, file, starts: [] };
      // What else is shown under the path stands in a slot.
      if (!/[\\/]@/.test(file)) route.file = file;
      route.starts.push(file, ...around, ...shared.filter(isFile));
      found.set(`${kind} ${shown}`, route);
    }
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
  return { schema_version: 1, generator: "next-graph", routes };
}

// --- The command -----------------------------------------------------------------------------------

function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { root: { type: "string" }, "base-path": { type: "string" } },
  });
  const app = realpathSync(positionals[0] ?? ".");
  const repository = [...ancestors(app)].find((folder) => existsSync(join(folder, ".git"))) ?? app;
  const root = values.root ? realpathSync(values.root) : repository;
  if (!isWithin(root, app)) throw new Error(`${app} is not within ${root}`);
  process.stdout.write(`${JSON.stringify(graph(app, { root, basePath: values["base-path"] }))}\n`);
}

try {
  main();
} catch (error) {
  process.stderr.write(`next-graph: ${error.message}\n`);
  process.exitCode = 1;
}
