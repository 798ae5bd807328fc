#!/usr/bin/env bash
# Claim: OpenFeature's Python SDK serves a boolean flag as an integer, the one for Node.js refuses it.
# Tools: openfeature-sdk 0.10.0 (PyPI), @openfeature/server-sdk 1.23.0 (npm)
# Seen: Python answers True, reason STATIC; Node.js the code's default, TYPE_MISMATCH.
# Matters: after a flag's type is changed one service serves treatment and the other the default.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq openfeature-sdk==0.10.0
npm install --silent --no-save @openfeature/server-sdk@1.23.0 @openfeature/core@1.12.0 >/dev/null
cat > flag.py <<'PY'
from openfeature import api
from openfeature.provider.in_memory_provider import InMemoryFlag, InMemoryProvider

api.set_provider(InMemoryProvider({"limit": InMemoryFlag("on", {"on": True})}))
details = api.get_client().get_integer_details("limit", 0)
print(details.value, details.reason, details.error_code)
PY
cat > flag.mjs <<'JS'
import { OpenFeature, InMemoryProvider } from "@openfeature/server-sdk";
const limit = { variants: { on: true }, defaultVariant: "on", disabled: false };
await OpenFeature.setProviderAndWait(new InMemoryProvider({ limit }));
const details = await OpenFeature.getClient().getNumberDetails("limit", 0);
console.log(details.value, details.reason, details.errorCode);
JS
python=$(env/bin/python flag.py) javascript=$(node flag.mjs)
printf 'Python: %s\nNode.js: %s\n' "$python" "$javascript"
[[ "$python" == "True STATIC None" && "$javascript" == "0 ERROR TYPE_MISMATCH" ]]
