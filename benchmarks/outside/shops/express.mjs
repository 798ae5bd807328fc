// A shop in Express.
import express from "express";

const app = express();
const page = (_, response) => response.send("a page");
app.get("/api/items{/:pk}", page);
app.get("/api/items/:pk/stock", page);
app.get(/^\/old\/(\d+)$/, page);
const below = express.Router();
below.get("/deep/:id", page);
app.use("/sub", below);
app.get("/gone", (_, __, next) => next(Object.assign(new Error("gone"), { status: 404 })));
app.get("/boom", () => {
  throw new Error("a fault of the shop");
});
app.use((error, _, response, __) => response.status(error.status ?? 500).end());
app.listen(process.env.PORT, "127.0.0.1");
