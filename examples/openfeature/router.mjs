// A router: an OpenFeature client asks which build each session gets, and hands the request on.
// The project's setting ofrep is `server`.
// npm install @openfeature/server-sdk @openfeature/ofrep-provider; then:
//   SERVICE_API_URL=… SERVICE_WRITE_KEY=wk_… BUILDS='{"4f2a9c1d": "http://127.0.0.1:3001", …}' node router.mjs
import { OFREPProvider } from "@openfeature/ofrep-provider";
import { OpenFeature } from "@openfeature/server-sdk";
import { randomUUID } from "node:crypto";
import http from "node:http";

const { SERVICE_API_URL, SERVICE_WRITE_KEY, PORT = "8080" } = process.env;
const builds = JSON.parse(process.env.BUILDS);
const [stable] = Object.keys(builds); // served where the service can't be asked

await OpenFeature.setProviderAndWait(
  new OFREPProvider({
    baseUrl: SERVICE_API_URL,
    headers: [["X-Service-Project-Key", SERVICE_WRITE_KEY]],
    timeoutMs: 500,
  }),
);
const features = OpenFeature.getClient();

const server = http.createServer(async (request, response) => {
  const cookie = /(?:^|; )session=([^;]+)/.exec(request.headers.cookie ?? "");
  const session = cookie ? cookie[1] : randomUUID();
  const { value, flagMetadata } = await features.getStringDetails("commit", stable, {
    targetingKey: session,
  });
  const commit = value in builds ? value : stable;
  const upstream = http.request(
    new URL(request.url, builds[commit]),
    { method: request.method, headers: request.headers },
    (answer) => {
      const timing = [`commit;desc=${commit}`];
      if (commit === value && flagMetadata.assignment)
        timing.push(`assignment;desc=${flagMetadata.assignment}`);
      response.writeHead(answer.statusCode, {
        ...answer.headers,
        "Set-Cookie": `session=${session}; Path=/; Max-Age=2592000; SameSite=Lax`,
        "Server-Timing": timing.join(", "),
      });
      answer.pipe(response);
    },
  );
  upstream.on("error", () => response.writeHead(502).end());
  request.pipe(upstream);
});
server.listen(Number(PORT), "127.0.0.1", () =>
  console.log(`http://127.0.0.1:${server.address().port}`),
);
