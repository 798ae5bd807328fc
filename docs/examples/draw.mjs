// The published draw, for Node.js, middleware, workers, and browsers over HTTPS.
export async function isDrawn(salt, unit, share) {
  const text = new TextEncoder().encode(`${salt}:${unit}`);
  const digest = await crypto.subtle.digest("SHA-256", text);
  return new DataView(digest).getUint32(0) < Math.round(share * 2 ** 32);
}
