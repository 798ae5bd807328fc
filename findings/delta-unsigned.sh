#!/usr/bin/env bash
# Claim: delta-rs keeps an unsigned column as a signed one of the same width, and refuses the first value beyond it.
# Tools: deltalake 1.6.6, pandas 3.1.1, pyarrow 26.0.1 (PyPI)
# Seen: a day with 127 orders downcast by pandas to uint8 is written as a byte; the next day with 128 raises "Can't cast value 128 to type Int8".
# Matters: a job that has exported outcomes for months stops on its best day, or at the first hash above 2^63.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq deltalake==1.6.6 pandas==3.1.1 pyarrow==26.0.1
cat > orders.py <<'PY'
import pandas as pd
from deltalake import DeltaTable, write_deltalake

for orders in 127, 128:
    day = pd.DataFrame({"orders": pd.to_numeric(pd.Series([orders]), downcast="unsigned")})
    try:
        write_deltalake("days", day, mode="append")
        print(DeltaTable("days").schema().fields[0].type)
    except Exception as error:  # noqa: BLE001
        print(str(error).rsplit(": ", 1)[-1])
PY
seen=$(env/bin/python orders.py)
echo "$seen"
grep -q '"byte"' <<<"$seen" && grep -q "Can't cast value 128 to type Int8" <<<"$seen"
