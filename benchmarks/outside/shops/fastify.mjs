// A shop in Fastify; its instrumentation is its own (@fastify/otel).
import FastifyOtel from "@fastify/otel";
import Fastify from "fastify";

const app = Fastify();
await app.register(new FastifyOtel.FastifyOtelInstrumentation().plugin());
const page = async () => "a page";
for (const path of ["/api/items", "/api/items/:pk", "/api/items/:pk/stock", "/old/:pk(^\\d+)"])
  app.get(path, page);
app.register(async (below) => below.get("/deep/:id", page), { prefix: "/sub" });
app.get("/gone", async () => {
  throw Object.assign(new Error("gone"), { statusCode: 404 });
});
app.get("/boom", async () => {
  throw new Error("a fault of the shop");
});
await app.listen({ port: Number(process.env.PORT), host: "127.0.0.1" });
