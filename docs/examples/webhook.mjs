// Whether a webhook is genuine: its signature and its age.
import { createHmac, timingSafeEqual } from "node:crypto";

export function isGenuine(headers, body, secret, tolerance = 300) {
  const key = Buffer.from(secret.replace("whsec_", ""), "base64");
  const sentAt = headers["webhook-timestamp"];
  const hmac = createHmac("sha256", key).update(`${headers["webhook-id"]}.${sentAt}.`).update(body);
  const expected = Buffer.from(`v1,${hmac.digest("base64")}`);
  const fresh = Math.abs(Date.now() / 1000 - Number(sentAt)) <= tolerance;
  return fresh && headers["webhook-signature"].split(" ").some((signature) => {
    const given = Buffer.from(signature);
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
}
