// Whether the service stores the events of a session.
export async function inSample(salt, unit, rate) {
  const text = new TextEncoder().encode(`${salt}:${unit}`);
  const digest = new DataView(await crypto.subtle.digest("SHA-256", text));
  return digest.getUint32(0) < Math.round(rate * 2 ** 32);
}
