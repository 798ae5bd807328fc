#!/usr/bin/env bash
# Claim: statsmodels' score interval for two proportions raises an error where neither arm has a conversion.
# Tools: statsmodels 0.15.0, scipy 1.17.1 (PyPI)
# Seen: confint_proportions_2indep(0, 100, 0, 100, method="score") raises ValueError from scipy's solver; newcomb gives -0.037 to 0.037; the z test is nan.
# Matters: a job that compares two arms each hour stops in the first hours of a canary, or at each rare metric.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq statsmodels==0.15.0 scipy==1.17.1
cat > score.py <<'PY'
import warnings

from statsmodels.stats.proportion import confint_proportions_2indep, proportions_ztest

warnings.simplefilter("ignore")
for method in ("score", "newcomb"):
    try:
        print("{:.3f} {:.3f}".format(*confint_proportions_2indep(0, 100, 0, 100, method=method)))
    except ValueError:
        print("raised")
print(proportions_ztest([0, 0], [100, 100])[1])
PY
seen=$(env/bin/python score.py | xargs)
echo "score, newcomb, z: $seen"
[ "$seen" = "raised -0.037 0.037 nan" ]
