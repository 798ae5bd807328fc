"""Verifiers of in-toto, as PyPI has them, take an attestation of ours and refuse an altered one."""

import base64
import json
from typing import Any

import pytest

from tests.cli.changes.test_wait import FOUND as KEPT_NUMBERS
from tests.cli.changes.test_wait import evidence, published
from tests.processes.registry import output_of, python_of

pytestmark = [pytest.mark.process, pytest.mark.world]

BASE, SHA = "a" * 40, "b" * 40
PACKAGES = ("securesystemslib[crypto]", "in-toto-attestation", "cryptography")
# The key's id is the SHA-256 of its DER form, which the page names.
VERIFIER = """
import base64, copy, hashlib, json, os
from cryptography.hazmat.primitives import serialization
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

key = serialization.load_pem_public_key(os.environ["KEY"].encode())
form = serialization.PublicFormat.SubjectPublicKeyInfo
keyid = hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()
verifier = SSlibKey.from_crypto(key, keyid=keyid)

def verified(document):
    try:
        # It takes the document apart.
        Envelope.from_dict(copy.deepcopy(document)).verify([verifier], 1)
    except VerificationError:
        return None
    payload = base64.b64decode(document["payload"])
    statement = json_format.Parse(payload, statement_pb2.Statement())
    Statement.copy_from_pb(statement).validate()
    return json_format.MessageToDict(statement)

print(json.dumps([verified(each) for each in json.loads(os.environ["ENVELOPES"])]))
"""


def test_verifiers_of_dsse_and_in_toto_take_a_verdict_and_refuse_an_altered_one(
    tenant, tmp_path
) -> None:
    python = python_of(tmp_path, PACKAGES)
    tenant.deploy(BASE)
    tenant.deploy(SHA, 0.1)
    experiment_id = tenant.register(treatment_commit=SHA, target_metric="order")
    tenant.freeze()
    published(tenant, experiment_id, {"verdict": "keep", **KEPT_NUMBERS}, evidence())
    flag = {"name": "new_cart", "treatment": True}
    flagged = tenant.register(treatment_flag=flag, target_metric="order")
    commit, flag, altered = (
        attestation(tenant, each) for each in (experiment_id, flagged, experiment_id)
    )
    payload = base64.b64decode(altered["payload"]).replace(b'"keep"', b'"rollback"')
    altered["payload"] = base64.b64encode(payload).decode()
    printed = output_of(
        [python, "-c", VERIFIER],
        folder=tmp_path,
        KEY=tenant.client.get("/.well-known/deploy-reward-key").text,
        ENVELOPES=json.dumps([commit, flag, altered]),
    )
    on_commit, on_flag, refused = json.loads(printed)
    assert on_commit["subject"] == [{"name": f"commit:{SHA}", "digest": {"gitCommit": SHA}}]
    assert on_commit["predicate"]["contract"]["verdict"] == "keep"
    assert on_flag["subject"][0]["name"] == "flag:new_cart=true"
    assert refused is None


def attestation(tenant: Any, experiment_id: str) -> dict[str, Any]:
    return tenant.get(f"/v1/reward/{experiment_id}/attestation").json()
