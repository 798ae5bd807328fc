// Posts files by Node's two clients, `fetch` and `http`, each once with a length and once as a
// stream, and prints the statuses. Arguments: URL, key, content encoding ("-": none) and file of
// each request.
import { readFileSync } from "node:fs";
import { request } from "node:http";
import { Readable } from "node:stream";

const byFetch = async (url, headers, body) =>
  (await fetch(url, { method: "POST", headers, body, duplex: "half" })).status;

const byHttp = (url, headers, body) =>
  new Promise((resolve, reject) => {
    const sent = request(url, { method: "POST", headers }, (answer) => {
      answer.resume().on("end", () => resolve(answer.statusCode));
    });
    sent.on("error", reject);
    if (body instanceof Readable) body.pipe(sent);
    else sent.end(body);
  });

const words = process.argv.slice(2);
for (let at = 0; at < words.length; at += 4) {
  const [url, key, encoding, file] = words.slice(at, at + 4);
  const headers = { "Content-Type": "application/json", "X-Service-Project-Key": key };
  if (encoding !== "-") headers["Content-Encoding"] = encoding;
  const body = readFileSync(file);
  for (const send of [byFetch, byHttp]) {
    console.log(await send(url, headers, body));
    console.log(await send(url, headers, Readable.from([body])));
  }
}
