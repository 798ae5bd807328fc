#!/usr/bin/env bash
# Claim: statsmodels gives a constant column beside an intercept a variance inflation factor of 1.
# Tools: statsmodels 0.15.0, numpy 2.4.6 (PyPI)
# Seen: 1.0 for the constant column, 1.0e15 (not infinity) for an exact copy of another column.
# Matters: a design that cannot be identified at all passes the rule "aliased above 10".
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq statsmodels==0.15.0 numpy==2.4.6
cat > vif.py <<'PY'
import warnings

import numpy as np
from statsmodels.stats.outliers_influence import variance_inflation_factor

warnings.simplefilter("ignore")
one, x = np.ones(100), np.random.default_rng(0).normal(size=100)
constant = variance_inflation_factor(np.column_stack([one, x, 3 * one]), 2)
copy = variance_inflation_factor(np.column_stack([one, x, x]), 1)
print(f"{constant:.1f} {copy:.1e}")
PY
seen=$(env/bin/python vif.py)
echo "constant, copy: $seen"
[ "$seen" = "1.0 1.0e+15" ]
