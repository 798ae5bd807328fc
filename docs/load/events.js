// Page views at a given rate, whether or not earlier ones are answered: docs/operations/scale.md.
// k6 run -e URL=... -e KEY=... -e RATE=200 -e SECONDS=30 -e BATCH=100 events.js
import { check } from "k6";
import http from "k6/http";

const { URL, KEY, RATE = "200", SECONDS = "30", BATCH = "100" } = __ENV;
const RUN = Date.now();

export const options = {
  scenarios: {
    events: {
      executor: "constant-arrival-rate",
      rate: Number(RATE),
      timeUnit: "1s",
      duration: `${SECONDS}s`,
      preAllocatedVUs: 64,
      maxVUs: 1000,
    },
  },
};

export default function sends() {
  const events = Array.from({ length: Number(BATCH) }, (_, place) => {
    const id = `${RUN}-${__VU}-${__ITER}-${place}`;
    return {
      event_id: `e-${id}`,
      session_id: `s-${id}`,
      event: "page_view",
      occurred_at: new Date().toISOString(),
      environment: "load",
      route: "/",
      commit: place % 2 ? "bada550" : "c0ffee0",
    };
  });
  const headers = { "Content-Type": "application/json", "X-Service-Project-Key": KEY };
  const answer = http.post(`${URL}/v1/events`, JSON.stringify({ events }), { headers });
  check(answer, { accepted: ({ status }) => status === 202 });
}
