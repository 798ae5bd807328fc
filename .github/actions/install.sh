#!/usr/bin/env bash
# Installs the client from the tree of this action, with the versions that it was tested with.
set -euo pipefail
tree=$(cd "$(dirname "$0")/../.." && pwd)
command -v deploy-reward > /dev/null ||
  pipx install --quiet --pip-args="--constraint $tree/constraints.txt" "$tree/packaging/client${EXTRA:-}"
