// A page that sends the assignment of its cookie on.
const cookie = (name) => (document.cookie.match(`(?:^|; )${name}=([^;]*)`) || [])[1];

export function send(url, key, event) {
  const [commit, assignment] = (cookie("assignment") || "").split(".");
  const body = { session_id: cookie("session"), commit, assignment, ...event };
  return navigator.sendBeacon(`${url}/v1/events?key=${key}`, JSON.stringify(body));
}
