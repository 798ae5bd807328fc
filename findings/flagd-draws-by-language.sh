#!/usr/bin/env bash
# Claim: flagd's Python and JavaScript evaluators give half of the same users different variants.
# Tools: openfeature-flagd-core 2.0.0 (PyPI), @openfeature/flagd-core 4.0.1 (npm)
# Seen: of 2,000 targeting keys of one 50:50 `fractional` rule, 1,016 get another variant.
# Matters: a page in Node.js and an API in Python put one visitor in both arms of one experiment.
set -euo pipefail
cd "$(mktemp -d)"
cat > flags.json <<'JSON'
{"flags": {"exp": {"state": "ENABLED", "variants": {"control": "control", "test": "test"},
  "defaultVariant": "control", "targeting": {"fractional": [["control", 50], ["test", 50]]}}}}
JSON
python3 -m venv env
env/bin/pip install -qq openfeature-flagd-core==2.0.0 openfeature-sdk==0.10.0
npm install --silent --no-save @openfeature/flagd-core@4.0.1 @openfeature/core@1.12.0 >/dev/null
env/bin/python - > python.txt <<'PY'
from openfeature.contrib.tools.flagd.core import FlagdCore
from openfeature.evaluation_context import EvaluationContext

core = FlagdCore()
core.set_flags(open("flags.json").read())
for number in range(2000):
    print(core.resolve_string_value("exp", "none", EvaluationContext(f"u{number}")).variant)
PY
cat > draw.cjs <<'JS'
const { FlagdCore } = require("@openfeature/flagd-core");
const core = new FlagdCore();
core.setConfigurations(require("fs").readFileSync("flags.json", "utf8"));
const log = { error() {}, warn() {}, info() {}, debug() {} };
for (let number = 0; number < 2000; number++)
  console.log(core.resolveStringEvaluation("exp", "none", { targetingKey: `u${number}` }, log).variant);
JS
node draw.cjs > javascript.txt
differing=$(paste -d' ' python.txt javascript.txt | awk '$1 != $2' | wc -l)
echo "$differing of $(wc -l < python.txt) users have another variant"
[ "$differing" -eq 1016 ]
