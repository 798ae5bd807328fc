// A shop in Hono: its middleware makes a second span of each request, beside that of Node.js.
import { serve } from "@hono/node-server";
import { httpInstrumentationMiddleware } from "@hono/otel";
import { Hono } from "hono";
import { HTTPException } from "hono/http-exception";

const app = new Hono();
app.use("*", httpInstrumentationMiddleware());
const page = (context) => context.text("a page");
for (const path of ["/api/items", "/api/items/:pk", "/api/items/:pk/stock", "/old/:pk{[0-9]+}"])
  app.get(path, page);
app.route("/sub", new Hono().get("/deep/:id", page));
app.get("/gone", () => {
  throw new HTTPException(404);
});
app.get("/boom", () => {
  throw new Error("a fault of the shop");
});
app.onError((error, context) => context.body(null, error.status ?? 500));
serve({ fetch: app.fetch, port: Number(process.env.PORT), hostname: "127.0.0.1" });
