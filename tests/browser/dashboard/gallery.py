"""A gallery: a canary for each state that an experiment can be in, each in an environment."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import text

from tests.world import World, at

DAY = 24 * 60.0
# Canaries that are open began here; those that have ended, a day and a half before.
LATE, EARLY = 6 * DAY, 4.5 * DAY
MINUTES = 200.0
SPENT = {"kind": "mean", "sources": ["paid"], "cap": 90.0, "currency": "USD"}


@dataclass(kw_only=True)
class Gallery:
    """A project whose experiments are named for the state that they are in."""

    story: World
    experiments: dict[str, str] = field(default_factory=dict[str, str])
    deploys: dict[str, str] = field(default_factory=dict[str, str])
    followed: str = ""

    def path(self, name: str) -> str:
        return f"/dashboard/experiments/{self.experiments[name]}"

    def again(self) -> None:
        """Registers anew what has an answer, and walks on."""
        self.experiments["second"] = self.story.register(deploy_id=self.deploys["futility"])
        self.story.tick(minutes=LATE + 500)


def hung(story: World) -> Gallery:
    """The gallery, of which a walk has yet to make something."""
    gallery = Gallery(story=story)
    gallery.story.settings(metrics={"spent": SPENT})
    for paint in (_unfair, _alone, _money, _ended, _shipped, _guarded, _young):
        paint(gallery)
    old, new, deploy_id = _canary(gallery, "followed", "Larger pictures")
    for start, rate in ((LATE, 0.1), (LATE + 550, 0.5)):
        _visit(gallery, "followed", old, 200, start=start, order=0.1)
        _visit(gallery, "followed", new, 200, start=start, order=rate)
    story.send()
    gallery.followed = story.register(deploy_id=deploy_id)
    return gallery


def _canary(
    gallery: Gallery, name: str, message: str, *, start: float = LATE, share: float | None = 0.5
) -> tuple[str, str, str]:
    """The commits of control and treatment, and the treatment's deploy."""
    number = len(gallery.experiments) + 1
    old, new = f"{number:02x}0dc0de", f"{number:02x}feed5e"
    gallery.story.deploy(old, minutes=start - DAY, environment=name)
    deploy = gallery.story.deploy(
        new,
        minutes=start,
        base=old,
        allocation=share,
        environment=name,
        commit={"message": message, "author": "ada"},
    )
    return old, new, deploy["deploy_id"]


def _visit(
    gallery: Gallery,
    name: str,
    commit: str,
    units: int,
    *,
    start: float = LATE,
    minutes: float = MINUTES,
    **rates: float,
) -> list[str]:
    return gallery.story.crowd(
        commit, start=start, minutes=minutes, units=units, rates=rates, environment=name
    )


def _register(gallery: Gallery, name: str, deploy_id: str, **members: Any) -> None:
    # An experiment begins with what its project sends before; nothing is served twice.
    gallery.story.send()
    gallery.story.goes_on()
    gallery.deploys[name] = deploy_id
    gallery.experiments[name] = gallery.story.register(deploy_id=deploy_id, **members)


def _unfair(gallery: Gallery) -> None:
    old, new, deploy = _canary(gallery, "shares", "Prefetch the next page")
    _visit(gallery, "shares", old, 100, order=0.1)
    _visit(gallery, "shares", new, 300, order=0.1)
    worth = {"name": "order", "value_per_conversion": 40}
    _register(gallery, "shares", deploy, target_metric=worth)
    old, new, deploy = _canary(gallery, "crossing", "Remember the basket", share=None)
    for commit, other in ((old, new), (new, old)):
        for session in _visit(gallery, "crossing", commit, 200, order=0.1)[::2]:
            begun = next(event for event in gallery.story.events if event["session_id"] == session)
            moved = datetime.fromisoformat(begun["occurred_at"]).timestamp() + 300
            again = datetime.fromtimestamp(moved, tz=datetime.fromisoformat(at(0)).tzinfo)
            gallery.story.events.append(
                {**begun, "commit": other, "event": "page_view", "occurred_at": again.isoformat()}
            )
    _register(gallery, "crossing", deploy)


def _alone(gallery: Gallery) -> None:
    old, new, deploy = _canary(gallery, "alone", "Rewrite the search", share=1.0)
    _visit(gallery, "alone", old, 200, start=LATE - 210, order=0.1)
    _visit(gallery, "alone", new, 200, order=0.2)
    _register(gallery, "alone", deploy)
    # What is under test came together with another change.
    old, between, _ = _canary(gallery, "aliased", "Translate the shop")
    third = "a11a5ed123"
    commit = {"message": "Show prices with tax", "author": "grace"}
    deploy = gallery.story.deploy(
        third, minutes=LATE, base=between, environment="aliased", commit=commit
    )["deploy_id"]
    _visit(gallery, "aliased", old, 200, order=0.1)
    _visit(gallery, "aliased", third, 200, order=0.2)
    worth = {"name": "order", "value_per_conversion": 40}
    _register(gallery, "aliased", deploy, control_commit=between, target_metric=worth)


def _money(gallery: Gallery) -> None:
    for name, message, more in (
        ("mean", "Suggest what goes with it", 0.0),
        ("mean_kept", "Free delivery from thirty", 40.0),
    ):
        old, new, deploy = _canary(gallery, name, message)
        for commit, value in ((old, 20.0), (new, 20.0 + more)):
            for number, session in enumerate(_visit(gallery, name, commit, 400)):
                if number % 4 == 0:
                    begun = LATE + MINUTES * (number + 0.5) / 400
                    gallery.story.events.append(
                        {
                            "session_id": session,
                            "commit": commit,
                            "event": "paid",
                            "environment": name,
                            "occurred_at": at(begun + 1),
                            "value": value + number % 7,
                        }
                    )
        _register(gallery, name, deploy, target_metric="spent")


def _ended(gallery: Gallery) -> None:
    old, new, deploy = _canary(gallery, "futility", "Rename the buttons", start=EARLY)
    for commit in (old, new):
        _visit(gallery, "futility", commit, 900, start=EARLY, order=0.5)
    gallery.story.settings(futility_margin=0.6)
    _register(gallery, "futility", deploy)
    gallery.story.settings(futility_margin=None, horizon_days=1)
    old, new, deploy = _canary(gallery, "horizon", "A calmer start page", start=EARLY)
    for commit in (old, new):
        _visit(gallery, "horizon", commit, 100, start=EARLY, order=0.1)
    _register(gallery, "horizon", deploy)
    old, new, deploy = _canary(gallery, "shares_ended", "Bigger buttons", start=EARLY)
    _visit(gallery, "shares_ended", old, 100, start=EARLY, order=0.1)
    _visit(gallery, "shares_ended", new, 300, start=EARLY, order=0.1)
    _register(gallery, "shares_ended", deploy)
    gallery.story.settings(horizon_days=28, contrast_hours=1)
    for name, share, message in (
        ("promoted", 1.0, "Pay by invoice"),
        ("withdrawn", 0.0, "Ask for a rating"),
    ):
        old, new, deploy = _canary(gallery, name, message, start=EARLY)
        for commit in (old, new):
            _visit(gallery, name, commit, 100, start=EARLY, order=0.1)
        after = EARLY + MINUTES
        gallery.story.deploy(new, minutes=after, allocation=share, environment=name)
        left = new if share else old
        _visit(gallery, name, left, 100, start=after + 30, minutes=400, order=0.1)
        _register(gallery, name, deploy)
    old, new, deploy = _canary(gallery, "superseded", "Compress the pictures", start=EARLY)
    for commit in (old, new):
        _visit(gallery, "superseded", commit, 100, start=EARLY, order=0.1)
    next_one, after = "5afe5afe12", EARLY + MINUTES
    gallery.story.deploy(
        next_one, minutes=after, base=new, allocation=0.5, environment="superseded"
    )
    for commit in (old, next_one):
        _visit(gallery, "superseded", commit, 100, start=after + 30, minutes=400, order=0.1)
    _register(gallery, "superseded", deploy, control_commit=old)
    gallery.story.settings(contrast_hours=24, futility_margin=0.01)
    old, new, deploy = _canary(gallery, "closed", "Try a darker header")
    for commit in (old, new):
        _visit(gallery, "closed", commit, 100, order=0.1)
    _register(gallery, "closed", deploy)
    _closed(gallery, "closed")


def _closed(gallery: Gallery, name: str) -> None:
    service = gallery.story
    answer = service.post(f"/v1/reward/{gallery.experiments[name]}/close", {})
    assert answer.status_code == 200, answer.text
    with service.store.engine.begin() as connection:
        connection.execute(
            text("UPDATE experiments SET closed_at = :at WHERE experiment_id = :id"),
            {"at": datetime.fromisoformat(at(LATE + 150)), "id": gallery.experiments[name]},
        )


def _shipped(gallery: Gallery) -> None:
    for name, share in (("shipped", 1.0), ("dropped", 0.0)):
        old, new, deploy = _canary(gallery, name, "Ask for less")
        for commit, rate in ((old, 0.1), (new, 0.5)):
            _visit(gallery, name, commit, 200, order=rate)
        gallery.story.deploy(new, minutes=LATE + 450, allocation=share, environment=name)
        _register(gallery, name, deploy, guardrails=[])


def _guarded(gallery: Gallery) -> None:
    for name, message, order, error in (
        ("almost", "Save the address", 0.5, 0.01),
        ("breached", "Load fonts later", 0.1, 0.2),
    ):
        old, new, deploy = _canary(gallery, name, message)
        _visit(gallery, name, old, 200, order=0.1, error=0.01)
        _visit(gallery, name, new, 200, order=order, error=error)
        _register(gallery, name, deploy, guardrails=["error"])


def _young(gallery: Gallery) -> None:
    _, _, deploy = _canary(gallery, "quiet", "Group the invoices")
    _register(gallery, "quiet", deploy)
    # Of no deploy yet: the next to production is meant, or that of a commit.
    gallery.experiments["next"] = gallery.story.register()
    gallery.experiments["awaited"] = gallery.story.register(
        treatment_commit="c0ffeec0ffee", target_metric="signup"
    )
    gallery.experiments["never"] = gallery.story.register(
        treatment_commit="0ddba110ddba", target_metric="signup"
    )
    _closed(gallery, "never")
