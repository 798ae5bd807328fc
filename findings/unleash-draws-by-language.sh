#!/usr/bin/env bash
# Claim: Unleash's Python and Node.js clients draw users whose id has a letter beyond ASCII by different numbers.
# Tools: UnleashClient 6.9.1 (PyPI), unleash-client 6.12.1 (npm)
# Seen: of 500 ids in ASCII at a rollout of 50 % none differs; of 500 with an umlaut 250 do.
# Matters: users by name or e-mail are in the canary of one service and not of the other, in both arms of one experiment.
set -euo pipefail
cd "$(mktemp -d)"
cat > flags.json <<'JSON'
{"version": 1, "features": [{"name": "cart", "type": "release", "enabled": true, "strategies": [
  {"name": "flexibleRollout", "parameters": {"rollout": "50", "stickiness": "userId", "groupId": "cart"}}]}]}
JSON
python3 -m venv env
env/bin/pip install -qq UnleashClient==6.9.1
npm install --silent --no-save unleash-client@6.12.1 >/dev/null
cat > draw.py <<'PY'
import json

from UnleashClient import UnleashClient
from UnleashClient.cache import FileCache

cache = FileCache("shop", directory=".")
cache.bootstrap_from_dict(json.load(open("flags.json")))
quiet = {"disable_metrics": True, "disable_registration": True}
client = UnleashClient(url="http://127.0.0.1:9/api", app_name="shop", cache=cache, **quiet)
client.initialize_client(fetch_toggles=False)
for name in ("user", "jürgen"):
    print(*(int(client.is_enabled("cart", {"userId": f"{name}-{n}"})) for n in range(500)), sep="\n")
client.destroy()
PY
cat > draw.cjs <<'JS'
const { Unleash } = require("unleash-client");
const data = JSON.parse(require("fs").readFileSync("flags.json", "utf8")).features;
const quiet = { disableMetrics: true, disableAutoStart: true, refreshInterval: 0 };
const client = new Unleash({ url: "http://127.0.0.1:9/api", appName: "shop", bootstrap: { data }, ...quiet });
for (const event of ["error", "warn"]) client.on(event, () => {});
client.once("ready", () => {
  for (const name of ["user", "jürgen"])
    for (let n = 0; n < 500; n++) console.log(Number(client.isEnabled("cart", { userId: `${name}-${n}` })));
  process.exit();
});
client.start().catch(() => {});
JS
env/bin/python draw.py > python.txt 2>/dev/null
node draw.cjs > javascript.txt
differing() { paste -d' ' python.txt javascript.txt | sed -n "$1" | awk '$1 != $2' | wc -l; }
echo "drawn otherwise: $(differing 1,500p) of 500 in ASCII, $(differing 501,1000p) of 500 with an umlaut"
[ "$(wc -l < javascript.txt)" -eq 1000 ] && [ "$(differing 1,500p)" -eq 0 ] && [ "$(differing 501,1000p)" -gt 200 ]
