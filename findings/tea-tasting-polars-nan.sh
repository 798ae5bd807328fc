#!/usr/bin/env bash
# Claim: tea-tasting leaves out a NaN of a pandas column and makes the whole answer NaN for the same column of polars.
# Tools: tea-tasting 1.14.0, pandas 3.1.1, polars 2.1.0 (PyPI)
# Seen: two arms of 1, 2, 3, NaN and 2, 3, 4, NaN have an effect of 1.0 from pandas, and nan, p-value included, from polars; with null in place of NaN polars gives 1.0.
# Matters: a team that moves its frames from pandas to polars loses each metric that has one gap, and an average that leaves NaN out would have been another metric anyway.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq tea-tasting==1.14.0 pandas==3.1.1 polars==2.1.0
cat > effect.py <<'PY'
import pandas as pd
import polars as pl
import tea_tasting as tt

rows = {"variant": [0] * 4 + [1] * 4, "value": [1.0, 2.0, 3.0, float("nan"), 2.0, 3.0, 4.0, float("nan")]}
filled = pl.DataFrame(rows).with_columns(pl.col("value").fill_nan(None))
experiment = tt.Experiment(value=tt.Mean("value"))
for frame in pd.DataFrame(rows), pl.DataFrame(rows), filled:
    print(experiment.analyze(frame)["value"].effect_size)
PY
seen=$(env/bin/python effect.py 2>/dev/null | xargs)
echo "pandas, polars with NaN, polars with null: $seen"
[ "$seen" = "1.0 nan 1.0" ]
