#!/usr/bin/env bash
# Claim: Optimizely's sequential test of a sample ratio takes weights for shares, and never alarms.
# Tools: ssrm-test 0.1.5, numpy 1.26.4 (PyPI)
# Seen: 5,000 visitors of which 60 % are in one arm have a p-value below 1e-10 for [0.5, 0.5], and 1 for [1, 1] and [50, 50], with no error.
# Matters: splits are written as weights everywhere else (50:50), and the check of the draw is then always green.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq ssrm-test==0.1.5 numpy==1.26.4
cat > ratio.py <<'PY'
import numpy as np
from ssrm_test.ssrm_test import sequential_p_values

arrivals = np.array([[60, 40]] * 50)
for split in ([0.5, 0.5], [1, 1], [50, 50]):
    print(sequential_p_values(arrivals, np.array(split))[-1] < 1e-10, end=" ")
PY
seen=$(env/bin/python ratio.py 2>/dev/null)
echo "alarms for shares, for 1:1, for 50:50: $seen"
[ "$seen" = "True False False " ]
