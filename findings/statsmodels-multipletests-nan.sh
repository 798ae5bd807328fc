#!/usr/bin/env bash
# Claim: One p-value that is nan makes all of statsmodels' Benjamini-Hochberg p-values nan, and takes away rejections, without a warning.
# Tools: statsmodels 0.15.0, numpy 2.4.6 (PyPI)
# Seen: of 0.001, 0.04, 0.03 all three are rejected; with a nan beside them one is, all corrected p-values are nan, and Holm counts four tests.
# Matters: a metric without a single conversion has a nan, and takes the discoveries of all other metrics with it.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq statsmodels==0.15.0 numpy==2.4.6
cat > several.py <<'PY'
import warnings

from numpy import isnan, nan
from statsmodels.stats.multitest import multipletests

warnings.simplefilter("error")
for values in ([0.001, 0.04, 0.03], [0.001, nan, 0.04, 0.03]):
    rejected, corrected, *_ = multipletests(values, method="fdr_bh")
    print(sum(rejected), sum(isnan(corrected)), multipletests(values, method="holm")[1][0], end=" ")
PY
seen=$(env/bin/python several.py)
echo "rejected, nan among the corrected, the first by Holm; without and with a nan: $seen"
[ "$seen" = "3 0 0.003 1 4 0.004 " ]
