#!/usr/bin/env bash
# Claim: pyarrow imports pandas, where it is installed, to build an array of a plain list.
# Tools: pyarrow 26.0.1, pandas 3.1.1 (PyPI)
# Seen: after pa.array([1, 2, 3]) pandas is among the loaded modules; after an array from buffers it is not.
# Matters: a service that writes Parquet pays a quarter of a second of a core, and a hundred MB, in each process that never uses a data frame.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq pyarrow==26.0.1 pandas==3.1.1
cat > load.py <<'PY'
import sys

import pyarrow as pa

pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(bytes(24))])
print("pandas" in sys.modules)
pa.array([1, 2, 3])
print("pandas" in sys.modules)
PY
seen=$(env/bin/python load.py | xargs)
echo "pandas loaded after a buffer, after a list: $seen"
[ "$seen" = "False True" ]
