#!/usr/bin/env bash
# Claim: Reading a DSSE envelope with securesystemslib takes the signatures out of the document that was handed over.
# Tools: securesystemslib 1.6.0 (PyPI)
# Seen: after Envelope.from_dict(document) its signatures are [{}]; the same document read again raises KeyError: 'sig'.
# Matters: a gate that verifies an attestation and then stores or forwards the document hands on one that nobody can verify.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq securesystemslib==1.6.0
cat > read.py <<'PY'
from securesystemslib.dsse import Envelope

document = {
    "payload": "e30=",
    "payloadType": "application/vnd.in-toto+json",
    "signatures": [{"keyid": "a", "sig": "c2ln"}],
}
Envelope.from_dict(document)
print(document["signatures"], end=" ")
try:
    Envelope.from_dict(document)
except KeyError as error:
    print("KeyError", error)
PY
seen=$(env/bin/python read.py)
echo "left in the document, and at the second reading: $seen"
[ "$seen" = "[{}] KeyError 'sig'" ]
