// A shop in NestJS, without a compiler: decorators are called by hand.
import "reflect-metadata";

import { Controller, Get, Module, NotFoundException } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";

class Items {
  page() {
    return "a page";
  }
  gone() {
    throw new NotFoundException();
  }
  boom() {
    throw new Error("a fault of the shop");
  }
}
const made = (decorator, name) =>
  decorator(Items.prototype, name, Object.getOwnPropertyDescriptor(Items.prototype, name));
const paths = ["api/items", "api/items/:pk", "api/items/:pk/stock", "old/:pk", "sub/deep/:id"];
made(Get(paths), "page");
made(Get("gone"), "gone");
made(Get("boom"), "boom");
Controller()(Items);
class Shop {}
Module({ controllers: [Items] })(Shop);
const app = await NestFactory.create(Shop, { logger: false });
await app.listen(process.env.PORT, "127.0.0.1");
