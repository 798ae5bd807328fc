// Next.js: the middleware of the stable build.
import { NextResponse } from "next/server";
import { isDrawn } from "./draw.mjs";

export async function middleware(request) {
  const { CANARY_ORIGIN, CANARY_COMMIT, CANARY_SHARE } = process.env;
  const unit = request.cookies.get("session")?.value || crypto.randomUUID();
  const { pathname, search } = request.nextUrl;
  const share = Number(CANARY_SHARE); // 0.1
  const canary = CANARY_ORIGIN && (await isDrawn(CANARY_COMMIT, unit, share));
  const response = canary
    ? NextResponse.rewrite(new URL(pathname + search, CANARY_ORIGIN))
    : NextResponse.next();
  const kept = { path: "/", maxAge: 2592000, sameSite: "lax", secure: true };
  response.cookies.set("session", unit, kept);
  return response;
}
