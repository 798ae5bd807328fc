#!/usr/bin/env bash
# Claim: PostHog's Python SDK draws a whole number that became a float as another user than Node.js does.
# Tools: posthog 7.91.1 (PyPI), posthog-node 5.70.0 (npm), flags evaluated locally
# Seen: of the ids 0 to 299 none gets another variant as an integer, 157 as the float that pandas makes of it.
# Matters: a batch job that reads ids from a column with gaps exposes people to the other arm.
set -euo pipefail
cd "$(mktemp -d)"
cat > flag.json <<'JSON'
{"id": 1, "name": "", "key": "exp", "active": true, "filters": {
  "groups": [{"properties": [], "rollout_percentage": 100}],
  "multivariate": {"variants": [{"key": "control", "rollout_percentage": 50},
                                {"key": "test", "rollout_percentage": 50}]}}}
JSON
python3 -m venv env
env/bin/pip install -qq posthog==7.91.1
npm install --silent --no-save posthog-node@5.70.0 >/dev/null
cat > draw.py <<'PY'
import json
import warnings

from posthog import Posthog

warnings.simplefilter("ignore")
client = Posthog("phc_x", host="http://127.0.0.1:9", personal_api_key="phx_x", sync_mode=True)
client.feature_flags = [json.load(open("flag.json"))]
local = {"only_evaluate_locally": True, "send_feature_flag_events": False}
for number in range(300):
    print(*(client.get_feature_flag("exp", kind(number), **local) for kind in (int, float)))
PY
cat > draw.mjs <<'JS'
import { readFileSync } from "fs";
import { createServer } from "http";
import { PostHog } from "posthog-node";
const answer = JSON.stringify({ flags: [JSON.parse(readFileSync("flag.json"))], group_type_mapping: {}, cohorts: {} });
const server = createServer((_, response) => response.setHeader("content-type", "application/json").end(answer));
server.listen(0, "127.0.0.1", async () => {
  const host = `http://127.0.0.1:${server.address().port}`;
  const client = new PostHog("phc_x", { host, personalApiKey: "phx_x" });
  await client.reloadFeatureFlags();
  const local = { onlyEvaluateLocally: true, sendFeatureFlagEvents: false };
  for (let number = 0; number < 300; number++) console.log(await client.getFeatureFlag("exp", number, local));
  process.exit(0);
});
JS
env/bin/python draw.py > python.txt 2>/dev/null
node draw.mjs 2>/dev/null > javascript.txt
paste -d' ' python.txt javascript.txt | awk '
  { integers += $1 != $3; floats += $2 != $3 }
  END { print integers " integers and " floats " floats of " NR " have another variant" }' | tee seen.txt
grep -qx '0 integers and 157 floats of 300 have another variant' seen.txt
