// A shop in Koa, with its router.
import Router from "@koa/router";
import Koa from "koa";

const app = new Koa();
app.silent = true;
const router = new Router();
const page = (context) => {
  context.body = "a page";
};
for (const path of ["/api/items", "/api/items/:pk", "/api/items/:pk/stock", "/old/:pk"])
  router.get(path, page);
const below = new Router();
below.get("/deep/:id", page);
router.use("/sub", below.routes());
router.get("/gone", (context) => context.throw(404));
router.get("/boom", () => {
  throw new Error("a fault of the shop");
});
app.use(router.routes());
app.listen(process.env.PORT, "127.0.0.1");
