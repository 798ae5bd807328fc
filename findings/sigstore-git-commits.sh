#!/usr/bin/env bash
# Claim: sigstore for Python refuses to sign or read a statement about a git commit, whose digest in-toto's own library takes.
# Tools: sigstore 4.5.1, in-toto-attestation 0.9.3 (PyPI)
# Seen: a subject with the digest gitCommit is valid to in-toto-attestation; sigstore raises "Input should be 'sha256', …".
# Matters: an attestation about a commit, not a file, has to hide the commit in the predicate or in a name to be signed by sigstore.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq sigstore==4.5.1 in-toto-attestation==0.9.3
cat > statement.py <<'PY'
import json

from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from sigstore.dsse import Statement
from sigstore.errors import Error


def answer(kind, length):
    digest = {kind: "a" * length}
    ResourceDescriptor(name="shop", digest=digest).validate()
    body = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "shop", "digest": digest}],
        "predicateType": "https://example.com/verdict",
        "predicate": {},
    }
    try:
        Statement(json.dumps(body).encode())
    except Error as error:
        return "refused" if "should be 'sha256'" in str(error) else error
    return "taken"


print(answer("sha256", 64), answer("gitCommit", 40))
PY
seen=$(env/bin/python statement.py 2>/dev/null)
echo "sigstore, of a sha256 and of a gitCommit that in-toto-attestation takes: $seen"
[ "$seen" = "taken refused" ]
