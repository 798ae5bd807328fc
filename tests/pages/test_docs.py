"""The documentation names everything that there is, and everything that it shows is true."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest

from api.app import create_app
from api.runtime.settings import ApiSettings
from api.wire.problem import CODES
from cli.imports.experiments_file import Experiment, ExperimentsFile, read_experiments
from cli.imports.query import MEMBERS as EVENT_MEMBERS
from cli.main import main
from domain.cause import Cause
from domain.contract import Contract
from domain.words import AbstainReason, Verdict
from mcp_server.address import Address
from mcp_server.tools import tools
from storage.tenants.settings import parse_settings
from tests.clients.page import DOCS, blocks, page

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
ROOMS = ("api", "cli", "domain", "mcp_server", "orchestration", "stats", "storage")
VARIABLE = re.compile(r"\b(?:SERVICE|NEXT_PUBLIC)_[A-Z_]*[A-Z]\b")


def named(text: str) -> set[str]:
    """What stands between backticks."""
    return set(re.findall(r"`([^`\n]+)`", text))


def headings(text: str) -> set[str]:
    """The anchors of a page's headings, as code forges make them."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def every_command(group: click.Group, path: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from every_command(command, f"{path}{name} ")
        else:
            yield f"{path}{name}"


def options(command: click.Command) -> set[str]:
    result = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return {name for name in result if name.startswith("-")} | {"--help"}


def test_every_endpoint_is_named() -> None:
    settings = ApiSettings(database_url="postgresql://nowhere/none", secret=b"-")
    paths = create_app(settings).openapi()["paths"]
    endpoints = {f"{method.upper()} {path}" for path, ways in paths.items() for method in ways}
    written = {name for name in named(page("api.md")) if re.match(r"(GET|POST|DELETE) /\S+$", name)}
    assert written == endpoints


def test_every_code_of_a_problem_is_named_with_its_status() -> None:
    rows = re.findall(r"^\| (\d{3}) \| ([^|]+) \|", page("api.md"), re.MULTILINE)
    written = {code: int(status) for status, codes in rows for code in named(codes)}
    assert written == {code: status for code, (status, _) in CODES.items()}


def test_every_member_of_the_contract_is_named_in_order() -> None:
    section = page("api.md").split("## The verdict contract")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == Contract.__struct_fields__


def test_every_command_is_named() -> None:
    commands = set(every_command(main))
    shown = re.findall(
        r"^\| [^|]+ \|", page("operations/settings.md").split("## Commands")[1], re.MULTILINE
    )
    written = named("".join(shown))
    assert written == commands


@pytest.mark.requirement("key.public.variable")
def test_every_variable_that_is_read_is_named_and_no_other() -> None:
    rooms = [*ROOMS, "packages/own-postgres"]
    code = "".join(path.read_text() for room in rooms for path in (ROOT / room).rglob("*.py"))
    section = page("operations/README.md").split("## Variables")[1].split("\n## ")[0]
    # A browser's build reads the public key; the service never does.
    assert set(VARIABLE.findall(section)) == {*VARIABLE.findall(code), "NEXT_PUBLIC_SERVICE_KEY"}


def test_every_member_of_an_import_is_named() -> None:
    words = named(page("import.md"))
    for struct in (ExperimentsFile, Experiment):
        for name in struct.__struct_fields__:
            assert name in words or f"[{name}]" in words, name
    assert words >= EVENT_MEMBERS


def test_every_tool_is_named_with_its_arguments() -> None:
    section = page("mcp.md").split("## Tools")[1].split("\n## ")[0]
    words = {word for name in named(section) for word in re.findall(r"\w+", name)}
    for tool in tools():
        assert tool.name in words
        assert words >= tool.parameters["properties"].keys()


def test_experiments_that_are_shown_can_be_read(tmp_path) -> None:
    for text in blocks(page("import.md"), "toml"):
        (tmp_path / "experiments.toml").write_text(text)
        assert read_experiments(tmp_path / "experiments.toml").experiments


@pytest.mark.parametrize("name", ["operations/settings.md", "sending.md"])
def test_settings_that_are_shown_can_be_applied(name) -> None:
    (text,) = blocks(page(name), "toml")
    parse_settings(tomllib.loads(text))


def _at_an_address(document: dict[str, Any]) -> list[Any]:
    """The servers of a client's configuration that are reached rather than started."""
    servers = document.get("mcpServers", {}).values()
    return [server for server in servers if "url" in server]


def test_configurations_of_clients_start_the_mcp_server() -> None:
    text = page("mcp.md")
    result: list[dict[str, Any]] = [
        *(json.loads(block) for block in blocks(text, "json")),
        *(tomllib.loads(block) for block in blocks(text, "toml")),
    ]
    over_http = [server for document in result for server in _at_an_address(document)]
    assert [server["url"] for server in over_http] == ["http://127.0.0.1:8000/mcp"]
    members = ("mcpServers", "servers", "context_servers", "mcp_servers")
    shown = [
        (member, document[member])
        for document in result
        for member in document.keys() & set(members)
        if not _at_an_address(document)
    ]
    assert sorted(member for member, _ in shown) == sorted(members)
    for _, servers in shown:
        (server,) = servers.values()
        assert list(servers) == ["service-reward"]
        assert (server["command"], server["args"]) == ("deploy-reward", ["mcp"])
        environment = {**server["env"], "SERVICE_PROJECT_KEY": "rk_1"}
        assert Address.from_environment(environment).url == "http://127.0.0.1:8000"


def test_commands_of_clients_start_the_mcp_server() -> None:
    shown = [shlex.split(block) for block in blocks(page("mcp.md"), "sh")]
    assert shown
    for words in shown:
        if "http" in words:
            # It asks a running service: nothing is started.
            assert words[words.index("--cli") + 1].endswith("/mcp")
            continue
        assert words[words.index("--") + 1 :] == ["deploy-reward", "mcp"]
        given = [after for word, after in pairwise(words) if word in {"--env", "-e"}]
        environment = dict(pair.split("=", 1) for pair in given)
        assert Address.from_environment(environment).url == "http://127.0.0.1:8000"
        assert environment["SERVICE_PROJECT_KEY"] == "rk_..."


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if not link.startswith(("http:", "https:")):
            target, _, anchor = link.partition("#")
            result = path.parent / target if target else path
            assert result.exists(), link
            assert not anchor or anchor in headings(result.read_text()), link


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_that_are_shown_exist_with_their_options(path) -> None:
    shown = re.findall(r"deploy-reward ([a-z][^\n`#|]*)", path.read_text())
    for line in shown:
        words = line.split()
        command: click.Command = main
        while words and isinstance(command, click.Group):
            result = command.get_command(click.Context(command), words.pop(0))
            assert result is not None, line
            command = result
        unknown = {word for word in words if word.startswith("-") and word != "-"}
        unknown -= options(command)
        assert not unknown, line


def linked(path: Path) -> set[Path]:
    """The pages of ours that a page links to."""
    targets = {link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text())}
    files = {(path.parent / target).resolve() for target in targets if target.endswith(".md")}
    return files & set(PAGES)


def test_every_page_is_reached_from_the_index_and_the_index_from_the_readme() -> None:
    reached, waiting = set[Path](), {DOCS / "README.md"}
    while waiting:
        page = waiting.pop()
        reached.add(page)
        # Whoever comes by the README came from outside.
        waiting |= linked(page) - reached - {ROOT / "README.md"}
    assert {*DOCS.rglob("*.md")} <= reached
    assert DOCS / "README.md" in linked(ROOT / "README.md")


WORDS = re.findall(r"^### (.+)$", page("glossary.md"), re.MULTILINE)
# What a newcomer stumbles over; each page leads to it where it comes first.
HARD = ("arm", "attempt", "conversion", "exposure", "guardrail", "static graph", "stratum", "unit")
FIRST_PAGES = ("quick-start.md", "concepts.md")


def test_the_source_quotes_headings_that_the_pages_have() -> None:
    quoted = [
        (name, heading)
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        for name, heading in re.findall(r"docs/([a-z]+\.md),\s+(?:# )?'([^']+)'", path.read_text())
    ]
    assert len(quoted) > 10
    unknown = [each for each in quoted if f"# {each[1]}\n" not in page(each[0])]
    assert unknown == []


def test_the_glossary_is_in_the_order_of_the_alphabet() -> None:
    assert sorted(WORDS, key=lambda word: word.replace("`", "").casefold()) == WORDS


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_link_to_the_glossary_leads_to_a_word_that_stands_there(path) -> None:
    anchors = headings("".join(f"### {word}\n" for word in WORDS))
    output = re.findall(r"\]\([^)#\s]*glossary\.md#([^)]+)\)", path.read_text())
    assert set(output) <= anchors


def test_the_glossary_has_the_words_that_answers_use() -> None:
    words = {name for title in WORDS for name in re.findall(r"[\w ρα-]+", title)}
    text = page("glossary.md")
    spoken = {
        *Verdict,
        *AbstainReason,
        *Cause,
        *({"lift", "cadence"} & set(Contract.__struct_fields__)),
    }
    assert not {word for word in spoken if word not in words and f"`{word}`" not in text}


@pytest.mark.parametrize("name", FIRST_PAGES)
def test_a_hard_word_is_linked_where_it_comes_first(name) -> None:
    # Without code, headings and quotations.
    prose = re.sub(r"^```.*?^```$", "", page(name), flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^[#>].*$|`[^`\n]*`", "", prose, flags=re.MULTILINE)
    for word in HARD:
        pattern = word.replace(" ", r"\s+")
        if first := re.search(rf"\b{pattern}s?\b", prose, re.IGNORECASE):
            before = prose[: first.start()]
            assert before.count("[") > before.count("]"), f"{word} in {name}"
