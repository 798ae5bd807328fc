// Tells the service what a page's visitor was served, and does. How to use it: docs/sending.md.
(() => {
  const NAME = "deployReward";
  const PASSING = [408, 429, 502, 503, 504];
  const POOR = { lcp: 4000, cls: 0.25, inp: 500 };
  // In UTF-8 at most 48 KB: a browser lets 64 KiB outlive a page.
  const MOST_TEXT = 16000;
  const MOST_WAITING = 500;
  const MOST_FAILURES = 20;
  const MONTH = 2592000;

  const script = document.currentScript;
  const earlier = window[NAME] || [];
  if (earlier.init) return;

  // Whatever goes wrong here is no business of the page.
  const safe = (work) => (...told) => {
    try {
      return work(...told);
    } catch {}
  };
  // Caught on the way down: not all of these come up to the window again.
  const on = (name, listener) => addEventListener(name, safe(listener), true);
  // Not randomUUID, which plain http does not have.
  const id = () => crypto.getRandomValues(new Uint32Array(4)).join("-");
  const time = () => new Date().toISOString();
  const cookie = safe(
    (name) => name && `; ${document.cookie}`.split(`; ${name}=`)[1]?.split(";")[0],
  );
  const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content;
  const loading = performance.getEntriesByType("navigation")[0] || {};

  let shared = {};
  let options = {};
  let address, route, path, broken, timer, tracked, tell;
  let early = [];
  let waiting = [];
  let sending = 0;
  let notBefore = 0;
  let failures = 0;
  // Until when each unit is silent that the service keeps no events of.
  let silent = {};

  function track(event, members) {
    if (!address) return early.push([event, members]);
    // As text at once: what can't be sent fails here, not amid others.
    const text = JSON.stringify({
      event,
      route,
      event_id: id(),
      occurred_at: time(),
      ...shared,
      ...members,
    });
    tracked = [shared.session_id, shared.user_ref];
    if (text.length < MOST_TEXT && !(Date.now() < silent[tracked])) waiting.push(text);
    later();
  }

  function later() {
    if (waiting[0] && !timer && !sending)
      timer = setTimeout(flush, Math.max(1000, notBefore - Date.now()));
  }

  async function flush(leaving) {
    clearTimeout(timer);
    timer = 0;
    if (!waiting[0]) return;
    let count = 0;
    let size = 0;
    while (waiting[count] && (size += waiting[count].length) < MOST_TEXT) count++;
    const events = waiting.splice(0, count);
    const sampled = !waiting[0] && tracked;
    // The clock of this attempt: by it the service corrects a clock that is wrong.
    const body = `{"sent_at":"${time()}","events":[${events}]}`;
    let answer;
    sending++;
    try {
      const old = leaving && !("keepalive" in Request.prototype);
      // Text needs no preflight, for which a page that ends has no time.
      answer =
        old && navigator.sendBeacon(address, body)
          ? {}
          : await fetch(address, {
              method: "POST",
              body,
              keepalive: true,
              credentials: "omit",
              signal: AbortSignal.timeout?.(30000),
            });
      // Nothing was stored of valid events: the unit is not in the project's sample.
      if ((await answer.json()).accepted === 0) silent[sampled] = Date.now() + 36e5;
    } catch {}
    sending--;
    if (answer && !PASSING.includes(answer.status)) failures = 0;
    else {
      const asked = 1000 * answer?.headers.get("Retry-After");
      const wait = asked || Math.min(500 * 2 ** failures, 30000);
      notBefore = Date.now() + wait * (1 + Math.random() / 2);
      // For some ten minutes: later on nothing that waited would count.
      if (++failures < MOST_FAILURES) waiting = [...events, ...waiting].slice(-MOST_WAITING);
    }
    later();
  }

  function leave() {
    tell();
    while (waiting[0] && Date.now() > notBefore) flush(true);
    // What must still wait is the next page's to send.
    sessionStorage[NAME] = JSON.stringify(waiting);
  }

  function page(told) {
    const asked = options.route;
    path = location.pathname;
    route = told || (asked?.call ? asked(path) : path);
    broken = false;
    track("page_view");
  }

  function moved() {
    if (location.pathname !== path) page();
  }

  function fail(kind, error, at) {
    if (broken || !error) return;
    broken = true;
    // Without its message, which may quote what somebody typed.
    track("error", { properties: { kind, name: error.name, at } });
  }

  // Returns what tells the vitals of this page as they are when it is first hidden.
  function vitals() {
    const landing = route;
    const found = {};
    const slow = {};
    let looks = [];
    let first, last, burst;
    const observe = (type, see, more) => {
      if (!PerformanceObserver.supportedEntryTypes.includes(type)) return;
      const all = (list) => list.forEach(see);
      const observer = new PerformanceObserver((list) => all(list.getEntries()));
      observer.observe({ type, buffered: true, ...more });
      return looks.push(() => all(observer.takeRecords()));
    };
    const interacted = ({ interactionId, duration }) => {
      if (interactionId) slow[interactionId] = Math.max(duration, slow[interactionId] || 0);
    };
    // A page that was loaded in the background was painted when nobody looked.
    if (!document.hidden)
      observe("largest-contentful-paint", ({ startTime }) => {
        found.lcp = Math.max(0, startTime - (loading.activationStart || 0));
      });
    // The worst burst of shifts: less than a second between two, five in all.
    const shifts = observe("layout-shift", ({ hadRecentInput, startTime, value }) => {
      if (hadRecentInput) return;
      if (startTime - last < 1000 && startTime - first < 5000) burst += value;
      else {
        first = startTime;
        burst = value;
      }
      last = startTime;
      found.cls = Math.max(found.cls, burst);
    });
    if (shifts) found.cls = 0;
    // The slowest interaction, one of each fifty left out.
    observe("event", interacted, { durationThreshold: 40 });
    observe("first-input", interacted);

    return () => {
      for (const look of looks) look();
      const ranked = Object.values(slow).sort((one, other) => other - one);
      found.inp = ranked[Math.floor((performance.interactionCount || 0) / 50)] ?? ranked.pop();
      for (const name in looks[0] && POOR) {
        const value = found[name];
        if (value >= 0) track(name, { value: +value.toFixed(4), route: landing });
        if (value > POOR[name]) track("poor_" + name, { route: landing });
      }
      looks = [];
    };
  }

  // Returns what a cookie of this site names at random, and lets it live on for so many seconds.
  function remember(name, seconds) {
    const own = cookie(name) || id();
    const secure = location.protocol === "https:" ? ";Secure" : "";
    safe(() => {
      document.cookie = `${name}=${own};Max-Age=${seconds};Path=/;SameSite=Lax${secure}`;
    })();
    return own;
  }

  function start() {
    const { assignment: named, environment, flags: served, key, url, visitor } = options;
    const session_id = cookie(options.cookie) || remember("dr_unit", MONTH);
    // Without consent it ends at once. One that cannot be kept would be another on each page.
    remember("dr_visitor", visitor === "send" ? MONTH : 0);
    const user_ref = options.user_ref || cookie("dr_visitor");
    const flags = typeof served === "string" ? JSON.parse(served) : served;
    const [build, assignment] = (cookie(named) || meta(named))?.split(".") || [];
    const timing = loading.serverTiming?.find(({ name }) => name === "commit");
    const commit = [build, options.commit, meta("commit"), timing?.description].find((told) =>
      /^[0-9a-f]{7,64}$/i.test(told),
    );
    shared = { session_id, commit, assignment, environment, flags, user_ref, ...shared };
    const base = url ? url.replace(/\/?$/, "/") : script?.src || location.origin;
    address = new URL(`v1/events?key=${key}`, base);
    safe(() => {
      silent = sessionStorage;
      waiting.push(...JSON.parse(silent[NAME]));
    })();
    page(options.route?.call ? "" : options.route);
    for (const event of early) track(...event);
    tell = safe(safe(vitals)());
    on("visibilitychange", () => document.hidden && leave());
    on("pagehide", leave);
    on("pageshow", ({ persisted }) => persisted && page());
    on("popstate", moved);
    for (const name of ["pushState", "replaceState"]) {
      const original = history[name];
      history[name] = function (...told) {
        original.apply(this, told);
        safe(moved)();
      };
    }
    on("error", ({ error, filename, lineno, colno }) =>
      fail("error", error, `${filename.split("?")[0]}:${lineno}:${colno}`),
    );
    on("unhandledrejection", ({ reason }) => fail("unhandledrejection", reason || {}));
  }

  function init(told) {
    if (options.key) return;
    options = { ...script?.dataset, ...told };
    const { doNotTrack, globalPrivacyControl } = navigator;
    if (options.dnt === "respect" && (doNotTrack === "1" || globalPrivacyControl)) early = 0;
    // A page that is only prepared has no visitor yet.
    else if (document.prerendering) on("prerenderingchange", start);
    else start();
  }

  const set = (members) => Object.assign(shared, members);
  const calls = { init, track, page, set };
  for (const name in calls) calls[name] = safe(calls[name]);
  calls.push = safe(([name, ...told]) => calls[name](...told));
  window[NAME] = calls;
  // What the page asked for before this file was here.
  safe(() => earlier.forEach(calls.push))();
  if (script?.dataset.key) calls.init();
})();
