"""`verify`: who holds an attestation and the service's key needs no service to trust a verdict."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result

from domain.evidence.attestation import Statement
from storage.tenants.attestations import Attestations
from storage.tenants.keys import KeyKind
from storage.views.attestation import statement_on
from tests.cli.changes.test_wait import ABSTAIN, BREACHED, ENDED, evidence, published
from tests.cli.changes.test_wait import FOUND as KEPT_NUMBERS

pytestmark = pytest.mark.shared_store

BASE, SHA = "a" * 40, "b" * 40
KEEP = {"verdict": "keep", **KEPT_NUMBERS}
# As of the service that `served` runs.
SECRET, OTHER = b"a secret of the tests, long enough", b"the secret of another service, too"


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Someone who was handed an attestation and the service's key, and asks no service."""

    service: Any
    experiment_id: str
    key: Path
    file: Path
    command: Callable[..., Result]

    def verify(self, envelope: object, *words: str) -> tuple[int, str]:
        """The exit code for an envelope, and what is printed."""
        self.file.write_text(envelope if isinstance(envelope, str) else json.dumps(envelope))
        result = self.command("verify", self.file, "--key", self.key, *words)
        return result.exit_code, result.output.strip()

    def statement(self, now: datetime) -> Statement:
        """The statement as the service makes it at another time."""
        return self.service.in_store(
            lambda connection: statement_on(
                connection, self.service.project_id, self.experiment_id, now=now
            )
        )

    def attestation(self) -> Any:
        """The attestation over REST."""
        return self.service.get(f"/v1/reward/{self.experiment_id}/attestation").json()


@pytest.fixture
def holder(served, command, tmp_path, monkeypatch) -> Holder:
    """A holder of the attestation of a canary that the service keeps."""
    pem = served.client.get("/.well-known/deploy-reward-key").text
    key = tmp_path / "service.pem"
    key.write_text(pem)
    monkeypatch.delenv("SERVICE_API_URL")
    served.deploy(BASE)
    served.deploy(SHA, 0.1)
    experiment_id = served.register(treatment_commit=SHA, target_metric="order")
    served.freeze()
    published(served, experiment_id, KEEP, evidence())
    return Holder(
        service=served,
        experiment_id=experiment_id,
        key=key,
        file=tmp_path / "verdict.json",
        command=command,
    )


def payload_of(envelope: Any) -> Any:
    return json.loads(base64.b64decode(envelope["payload"]))


def signed(secret: bytes, statement: Statement) -> Any:
    """An envelope that somebody with another secret, or the service at another time, made."""
    return msgspec.to_builtins(Attestations(secret).signed(statement))


def test_a_keep_that_was_handed_on_is_verified_without_the_service(holder) -> None:
    envelope = holder.attestation()
    code, said = holder.verify(envelope, "--commit", SHA)
    assert code == 0
    assert said.startswith(f"keep, final: commit:{SHA} on order in production of project ")
    stated = payload_of(envelope)
    assert stated["_type"] == "https://in-toto.io/Statement/v1"
    assert stated["subject"] == [{"name": f"commit:{SHA}", "digest": {"gitCommit": SHA}}]
    verdict = stated["predicate"]
    assert verdict["contract"] == holder.service.contract(holder.experiment_id)
    assert verdict["evidence"] == {
        "sha256": holder.service.evidence(holder.experiment_id)["digest"]
    }
    assert len(verdict["policy"]["sha256"]) == 64
    registration = holder.service.bound(holder.experiment_id)
    assert verdict["log"]["since"] == registration["starts_at"]
    issued, expires = (datetime.fromisoformat(verdict[at]) for at in ("issued_at", "expires"))
    assert expires - issued == timedelta(days=7)


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ({"verdict": "rollback", **KEPT_NUMBERS}, 10, "rollback, final"),
        ({"verdict": "iterate", **KEPT_NUMBERS, **BREACHED}, 11, "iterate, final"),
        (ENDED, 12, "abstain (power), final"),
        ({**ABSTAIN, **BREACHED}, 13, "abstain (power), not decided yet"),
        (ABSTAIN, 14, "abstain (power), not decided yet"),
        ({**ABSTAIN, "abstain_reason": "interacting"}, 15, "abstain (interacting)"),
    ],
)
def test_it_exits_with_the_verdict_and_only_a_final_keep_is_0(
    served, command, tmp_path, answer, code, words
) -> None:
    served.deploy(BASE)
    served.deploy(SHA, 0.1)
    experiment_id = served.register(treatment_commit=SHA, target_metric="order")
    served.freeze()
    published(served, experiment_id, answer, evidence())
    file = tmp_path / "verdict.json"
    file.write_bytes(served.get(f"/v1/reward/{experiment_id}/attestation").content)
    # The environment names the service, so that its own key is asked for.
    result = command("verify", file)
    assert (result.exit_code, result.output.startswith(words)) == (code, True), result.output


def test_a_verdict_on_history_says_that_it_is_a_hint(served, command, tmp_path) -> None:
    served.deploy(BASE)
    served.deploy(SHA, 0.1)
    experiment_id = served.register(treatment_commit=SHA, target_metric="order")
    served.freeze()
    published(served, experiment_id, KEEP, evidence(retrospective=True))
    file = tmp_path / "verdict.json"
    file.write_bytes(served.get(f"/v1/reward/{experiment_id}/attestation").content)
    assert "; on history, a hint alone, exp_" in command("verify", file).output


def test_before_any_look_it_says_that_nothing_is_decided(holder) -> None:
    commit = "c" * 40
    holder.service.deploy(commit, 0.1)
    experiment_id = holder.service.register(treatment_commit=commit, target_metric="order")
    envelope = holder.service.get(f"/v1/reward/{experiment_id}/attestation").json()
    assert holder.verify(envelope)[0] == 14
    verdict = payload_of(envelope)["predicate"]
    assert (verdict["evidence"], verdict["log"]) == (None, None)


def altered(envelope: Any, **contract: object) -> Any:
    stated = payload_of(envelope)
    stated["predicate"]["contract"].update(contract)
    return {**envelope, "payload": base64.b64encode(json.dumps(stated).encode()).decode()}


def test_an_altered_verdict_is_refused(holder) -> None:
    published_keep = holder.attestation()
    code, said = holder.verify(altered(published_keep, verdict="rollback"))
    assert code == 20
    assert said == "Error: forged or altered: the signature is not the service's"
    # What is signed names the payload's type, too.
    assert holder.verify({**published_keep, "payloadType": "text/plain"})[0] == 20


def test_a_forged_verdict_is_refused_whatever_key_it_names(holder) -> None:
    forged = signed(OTHER, holder.statement(datetime.now(UTC)))
    code, said = holder.verify(forged)
    assert (code, said.startswith("Error: signed by another service: by key ")) == (21, True)
    (signature,) = forged["signatures"]
    (genuine,) = holder.attestation()["signatures"]
    assert (
        holder.verify({**forged, "signatures": [{**signature, "keyid": genuine["keyid"]}]})[0] == 20
    )
    assert holder.verify({**forged, "signatures": [genuine]})[0] == 20
    assert holder.verify({**forged, "signatures": []})[0] == 20


def test_a_signature_counts_whatever_stands_beside_it_and_whatever_it_hints_at(holder) -> None:
    envelope = holder.attestation()
    (genuine,) = envelope["signatures"]
    other = {"keyid": "none", "sig": base64.b64encode(bytes(64)).decode()}
    assert holder.verify({**envelope, "signatures": [other, {"sig": genuine["sig"]}]})[0] == 0


def test_it_is_valid_for_seven_days(holder) -> None:
    now = datetime.now(UTC)
    late = signed(SECRET, holder.statement(now - timedelta(days=7, seconds=1)))
    code, said = holder.verify(late)
    assert (code, said.startswith("Error: expired 20")) == (22, True)
    assert (
        holder.verify(signed(SECRET, holder.statement(now - timedelta(days=6, hours=23))))[0] == 0
    )


def test_a_verdict_on_another_commit_is_refused(holder) -> None:
    envelope = holder.attestation()
    assert holder.verify(envelope, "--commit", SHA[:12])[0] == 0
    code, said = holder.verify(envelope, "--commit", "c" * 40)
    assert (code, said) == (23, f"Error: the verdict is on commit:{SHA}, not on {'c' * 40}")
    # A longer id is another commit, and two digits are any.
    assert holder.verify(envelope, "--commit", f"{SHA}0")[0] == 23
    assert holder.verify(envelope, "--commit", "bb")[0] == 2


@pytest.mark.parametrize("name", ["project", "environment", "metric"])
def test_a_verdict_on_the_commit_of_another_s_is_refused(holder, name) -> None:
    # A project that plays a day gets a keep on any commit, signed with the same key.
    envelope = holder.attestation()
    stated = payload_of(envelope)["predicate"][name]
    assert holder.verify(envelope, "--commit", SHA, f"--{name}", stated)[0] == 0
    code, said = holder.verify(envelope, "--commit", SHA, f"--{name}", "other")
    assert (code, said) == (23, f"Error: its {name} is {stated}, not other")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "not JSON",
        '{"payload": "?", "payloadType": "t", "signatures": []}',
        "\udc80",
    ],
)
def test_what_is_no_attestation_is_said_in_a_line(holder, text) -> None:
    holder.file.write_bytes(text.encode(errors="surrogateescape"))
    result = holder.command("verify", holder.file, "--key", holder.key)
    assert (result.exit_code, result.output.count("\n")) == (1, 1)


def test_a_key_that_is_none_is_named(holder, tmp_path, monkeypatch) -> None:
    holder.file.write_text(json.dumps(holder.attestation()))
    none = tmp_path / "none.pem"
    none.write_text("-----BEGIN PUBLIC KEY-----")
    result = holder.command("verify", holder.file, "--key", none)
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "none.pem holds no public key of Ed25519 in PEM" in result.output
    assert holder.command("verify", holder.file).exit_code == 2
    monkeypatch.setenv("SERVICE_API_URL", "http://127.0.0.1:1")
    result = holder.command("verify", holder.file)
    assert (result.exit_code, "the service's key cannot be had" in result.output) == (1, True)


def test_a_flag_is_named_by_its_value(holder) -> None:
    flag = {"name": "new_cart", "treatment": True}
    experiment_id = holder.service.register(treatment_flag=flag, target_metric="order")
    envelope = holder.service.get(f"/v1/reward/{experiment_id}/attestation").json()
    (subject,) = payload_of(envelope)["subject"]
    assert (subject["name"], [*subject["digest"]]) == ("flag:new_cart=true", ["sha256"])
    assert holder.verify(envelope, "--commit", SHA)[0] == 23


def test_no_project_learns_another_s_verdict(holder) -> None:
    stranger = holder.service.new_project("stranger").keys[KeyKind.PROJECT]
    answer = holder.service.client.get(
        f"/v1/reward/{holder.experiment_id}/attestation",
        headers={"X-Service-Project-Key": stranger},
    )
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_experiment")
