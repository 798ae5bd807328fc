// A page's client: gathers events, keeps those that were not taken, and ends with a beacon.
const ADDRESS = "https://reward.example/v1/events?key=pk_...";
const PASSING = [408, 429, 502, 503, 504];
const MOST_WAITING = 1000;
let waiting = [];
let notBefore = 0;
let pause = 500;

export function track(event, sessionId, members = {}) {
  const own = { event_id: crypto.randomUUID(), occurred_at: new Date().toISOString() };
  waiting.push({ event, session_id: sessionId, ...own, ...members });
}

export async function flush() {
  if (!waiting.length || Date.now() < notBefore) return;
  const events = waiting.splice(0, 100);
  let answer = null;
  try {
    answer = await fetch(ADDRESS, { method: "POST", body: encoded(events), keepalive: true });
  } catch {} // no answer: nobody knows whether it was stored
  if (answer && !PASSING.includes(answer.status)) {
    pause = 500;
    return;
  }
  const asked = 1000 * Number(answer?.headers.get("Retry-After"));
  notBefore = Date.now() + (asked || pause) * (1 + Math.random() / 2);
  pause = Math.min(2 * pause, 30000);
  waiting = [...events, ...waiting].slice(-MOST_WAITING);
}

function encoded(events) {
  // The clock of this attempt: by it the service corrects a clock that is wrong.
  return JSON.stringify({ events, sent_at: new Date().toISOString() });
}

setInterval(flush, 1000);
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState !== "hidden" || !waiting.length) return;
  const events = waiting.slice(0, 100);
  if (navigator.sendBeacon(ADDRESS, encoded(events))) waiting = waiting.slice(events.length);
});
