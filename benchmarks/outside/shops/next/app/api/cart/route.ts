import { cookies } from "next/headers";
import { NextResponse } from "next/server";

import { products } from "@/lib/products";

export async function POST(request: Request) {
  const { id } = await request.json();
  if (id === "3") throw new Error("no stock record");
  if (!products.some((each) => each.id === id)) {
    return NextResponse.json({ detail: "no such book" }, { status: 404 });
  }
  (await cookies()).set("cart", id);
  return NextResponse.json({ id });
}
