#!/usr/bin/env bash
# Claim: An abbreviated commit in YAML is text to PyYAML and infinity to ruamel.yaml and JavaScript's yaml, and one of digits is octal to PyYAML alone.
# Tools: PyYAML 6.0.4, ruamel.yaml 0.19.1 (PyPI), yaml 2.9.1 (npm)
# Seen: 12e4567 is '12e4567', inf, Infinity; 0123456 is 42798, 123456, 123456.
# Matters: the commit that a deploy's values name is another in the step that deploys and in the step that registers it.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq pyyaml==6.0.4 ruamel.yaml==0.19.1
npm install --silent --no-save yaml@2.9.1 >/dev/null
cat > read.py <<'PY'
import ruamel.yaml
import yaml

for line in ("commit: 12e4567", "commit: 0123456"):
    for value in (yaml.safe_load(line), ruamel.yaml.YAML(typ="safe").load(line)):
        print(value["commit"], end=" ")
PY
seen=$(env/bin/python read.py)
seen+=$(node -p '["12e4567", "0123456"].map((text) => require("yaml").parse(`commit: ${text}`).commit).join(" ")')
echo "PyYAML and ruamel.yaml of each, JavaScript of both: $seen"
[ "$seen" = "12e4567 inf 42798 123456 Infinity 123456" ]
