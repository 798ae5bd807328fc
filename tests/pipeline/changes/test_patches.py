"""A change as git moves it: the command line tells the service by which commit users have it."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import main
from storage.tenants.keys import KeyKind
from tests.cli.conftest import serving
from tests.world import DAY, A, K

Git = Callable[..., str]
SQUASH = "merge --squash k;commit -m Squash;tag m"
MERGE = "merge --no-ff -m Merge k;tag m"
OTHER = "cherry-pick o"
VM = "revert --no-edit -m 1 m;tag v"


@pytest.fixture
def git(tmp_path, monkeypatch) -> Git:
    """A repository: `a` is what users have, `k` the canary's commit on it, main stands at `a`."""
    monkeypatch.chdir(tmp_path)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "ada@shop.example")

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(file: str, tag: str) -> None:
        Path(file).write_text(file)
        git("add", file)
        git("commit", "-m", f"Add {file}")
        git("tag", tag)

    # GitHub's button writes the number of the pull request, and no commit.
    Path("undo").write_text('Revert "Squash (#12)" (#13)\n\nReverts ada/shop#12\n')
    git("init", "--initial-branch=main")
    commit("shop", "a")
    git("checkout", "-b", "canary")
    commit("checkout", "k")
    git("checkout", "-b", "other", "a")
    commit("banner", "o")
    git("checkout", "main")
    return git


@pytest.fixture
def step(git, story, monkeypatch) -> Iterator[Callable[[str], None]]:
    """Does a step of a story: of git, or `deploy COMMIT BASE SHARE`, each at a later minute."""
    monkeypatch.setenv("SERVICE_PROJECT_KEY", story.project.keys[KeyKind.WRITE])
    minutes = iter([-DAY, 0.0, *range(1200, 1300)])
    with serving(story) as url:
        monkeypatch.setenv("SERVICE_API_URL", url)

        def deploy(commit: str, base: str = "", share: str = "") -> None:
            words = ["deploy", git("rev-parse", commit), "--deployed-at", story.at(next(minutes))]
            words += ["--base", git("rev-parse", base)] if base else []
            words += ["--allocation", share] if share else []
            done = CliRunner().invoke(main, words)
            assert done.exit_code == 0, done.output

        def step(words: str) -> None:
            if words.startswith("deploy "):
                deploy(*words.split()[1:])
            else:
                git(*words.split())

        yield step


# Each commit reverts the last: v is the revert of m, w of v, x of w.
V, W, X = (f"revert --no-edit {of};tag {name}" for of, name in ("mv", "vw", "wx"))
PICK = "cherry-pick -x k;tag c"
SQUASHED = f"{SQUASH};deploy m a"
BACK = f"{SQUASHED};{V};deploy v m"
ASIDE = f"{SQUASHED};checkout -b t;{V};checkout main"
ASKED = "merge --squash k;commit -m Squash(#12);tag m;deploy m a"
STORIES = {
    "a squash": (SQUASHED, "promoted"),
    "a merge": (f"{MERGE};deploy m a", "promoted"),
    "an amend": ("checkout -b r k;commit --amend -m Reworded;tag m;deploy m a", "promoted"),
    "a rebase": (f"{OTHER};checkout -b r k;rebase main;tag m;deploy m o", "promoted"),
    "a cherry-pick": (f"{PICK};deploy c a", "promoted"),
    "a cherry-pick beside it": (f"{OTHER};{PICK};deploy c a 0.1", "arriving"),
    "a squash, after its end": (f"{SQUASH};deploy k a 0;deploy m a", "promoted"),
    "a squash, then its end": (f"{SQUASHED};deploy k a 0", "promoted"),
    "a revert": (BACK, "withdrawn"),
    "a merge's revert": (f"{MERGE};deploy m a;{VM};deploy v m", "withdrawn"),
    "its own revert": (
        "deploy k a 1;checkout canary;revert --no-edit k;tag v;deploy v k",
        "withdrawn",
    ),
    "its base again": ("deploy k a 1;deploy a", "withdrawn"),
    "a build without it": ("deploy k a 1;deploy o a", "withdrawn"),
    "a revert's revert": (f"{BACK};{W};deploy w v", "promoted"),
    "both at once": (f"{SQUASHED};{V};{W};deploy w m", "promoted"),
    "three at once": (f"{SQUASHED};{V};{W};{X};deploy x m", "withdrawn"),
    "two more": (f"{BACK};{W};{X};deploy x v", "withdrawn"),
    "picked again": (f"{BACK};{PICK};deploy c v", "promoted"),
    "and reverted again": (
        f"{BACK};{PICK};deploy c v;revert --no-edit c;tag d;deploy d c",
        "withdrawn",
    ),
    "a button's revert": (
        f"{ASKED};revert --no-commit m;commit -F undo;tag v;deploy v m",
        "withdrawn",
    ),
    "a squashed revert": (
        f"{ASIDE};merge --squash t;commit --no-edit;tag s;deploy s m",
        "withdrawn",
    ),
    "a merged revert": (f"{ASIDE};merge --no-ff -m Back t;tag s;deploy s m", "withdrawn"),
}


@pytest.mark.parametrize(("steps", "state"), STORIES.values(), ids=STORIES)
def test_what_git_does_to_a_change_is_known_from_its_deploys(
    story, git, step, steps, state
) -> None:
    step("deploy a")
    step("deploy k a 0.5")
    experiment = story.register(treatment_commit=git("rev-parse", "k"))
    for words in steps.split(";"):
        step(words)
    assert story.bound(experiment)["situation"]["state"] == state


@pytest.fixture
def sha256(monkeypatch) -> None:
    monkeypatch.setenv("GIT_DEFAULT_HASH", "sha256")


@pytest.mark.usefixtures("sha256")
def test_ids_of_64_digits_are_known_as_those_of_40(story, git, step) -> None:
    step("deploy a")
    step("deploy k a 0.5")
    experiment = story.register(treatment_commit=git("rev-parse", "k"))
    steps, state = STORIES["both at once"]
    for words in steps.split(";"):
        step(words)
    assert len(git("rev-parse", "k")) == 64
    assert story.bound(experiment)["situation"]["state"] == state


@pytest.mark.parametrize("brought", [{"patch_id": "5" * 40}, {"changes": [K, "bbbbbbb2"]}])
@pytest.mark.parametrize("state", ["promoted", "withdrawn"])
def test_a_canary_that_is_registered_after_its_squash_is_compared_with_its_base(
    story, brought, state
) -> None:
    story.deploy(A, minutes=-DAY)
    story.deploy(K, 0.5, minutes=0, base=A, commit={"patch_id": "5" * 40})
    story.deploy("bbbbbbb2", 1, minutes=60, base=A, commit=brought)
    if state == "withdrawn":
        reverts = {"reverts": ["bbbbbbb2"]}
        story.deploy("ddddddd4", 1, minutes=90, base="bbbbbbb2", commit=reverts)
    bound = story.bound(story.register(treatment_commit=K))
    assert (bound["situation"]["state"], bound["control_commit"]) == (state, A)


def test_a_build_that_was_recorded_before_the_canary_it_stands_on_promotes_it(story) -> None:
    story.deploy(A, minutes=-DAY)
    story.deploy("bbbbbbb2", 1, minutes=60, base=K)
    story.deploy(K, 0.5, minutes=0, base=A)
    bound = story.bound(story.register(treatment_commit=K))
    assert (bound["situation"]["state"], bound["control_commit"]) == ("promoted", A)


@pytest.mark.parametrize(
    ("steps", "because"), [STORIES["a squash, then its end"], STORIES["three at once"]]
)
def test_what_git_does_to_a_change_ends_its_experiment(story, git, step, steps, because) -> None:
    step("deploy a")
    step("deploy k a 0.5")
    for build in ("a", "k"):
        commit = git("rev-parse", build)
        story.crowd(commit, start=0, minutes=1200, units=300, rates={"order": 0.2})
    for words in steps.split(";"):
        step(words)
    last = git("rev-parse", "HEAD")
    story.crowd(last, start=1230, minutes=1600, units=1500, rates={"order": 0.2})
    experiment = story.judged(treatment_commit=git("rev-parse", "k"), minutes=1200 + 3 * DAY)
    assert story.evidence(experiment)["ended_because"] == because
