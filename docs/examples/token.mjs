// A router's token in a Cloudflare worker, or any JavaScript with Web Crypto.
const bytes = (text) => new TextEncoder().encode(text);

export async function token(key, environment, session, commit, flags) {
  const parts = ["1", environment, session, commit.toLowerCase()];
  for (const name of Object.keys(flags).sort()) parts.push(name, String(flags[name]));
  const hmac = { name: "HMAC", hash: "SHA-256" };
  const signer = await crypto.subtle.importKey("raw", bytes(key), hmac, false, ["sign"]);
  const mac = await crypto.subtle.sign("HMAC", signer, bytes(parts.join("\0")));
  return Array.from(new Uint8Array(mac), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
