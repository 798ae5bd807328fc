"""The command `up`: the whole service on a machine, under a supervisor."""

import fcntl
import os
import shlex
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click
from own_postgres.server import EmbeddedPostgres, make_data_dir
from rich.console import Console

from cli.command import command_name
from cli.operations.actor import command_actor
from cli.operations.dashboard import sign_in_link
from cli.operations.options import data_dir_option
from cli.operations.projects import exported_keys
from cli.processes import children
from cli.processes.dagster_home import (
    claim_folders,
    dagster_environment,
    write_dagster_home,
    write_workspace,
)
from cli.processes.supervisor import Child, StopRequest, Supervisor, stop_on_signals
from storage.postgres.durability import refuse_weak_store
from storage.postgres.engine import opened_engine
from storage.schema.migrate import upgrade
from storage.tenants.keys import KeyKind, Role
from storage.tenants.projects import (
    FIRST_KINDS,
    CreatedProject,
    create_key,
    create_project,
    list_projects,
)
from storage.tenants.setting_changes import apply_settings
from storage.tenants.sign_ins import LINK_LIFETIME, create_link
from storage.tenants.store_secret import store_secret

FIRST_PROJECT = "default"
DEMO_PROJECT = "demo"
DEMO_SECONDS = 300.0
KEY_USES = {
    KeyKind.WRITE: "CI and servers: deploys, graphs, revenue",
    KeyKind.PUBLIC: "browsers: runtime events",
    KeyKind.PROJECT: "agents: registering, verdicts",
}
RUNNING = "Running. Ctrl-C stops everything."


@click.command("up")
@click.option("--demo", is_flag=True, help="Also play canary traffic until two verdicts stand.")
@data_dir_option
@click.option("--api-port", default=8000, show_default=True, help="The API's port; 0: any free.")
@click.option("--dagster-port", default=3000, show_default=True, help="Dagster's port; 0: any.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Where the API listens; never Dagster."
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="The API's processes.",
)
def up(
    *, demo: bool, data_dir: Path, api_port: int, dagster_port: int, host: str, workers: int
) -> None:
    """Run the whole service on this machine: store, API, Dagster.

    Starts the embedded PostgreSQL in the data directory (or uses SERVICE_DATABASE_URL), restarts
    what dies, and stops all at Ctrl-C. The data stay for the next start.
    """
    console = Console(highlight=False, soft_wrap=True)
    make_data_dir(data_dir)
    plan = Plan(
        data_dir=data_dir,
        host=host,
        api_port=api_port or children.free_port(),
        dagster_port=dagster_port or children.free_port(),
        workers=workers,
    )
    with _only_one(data_dir), ExitStack() as stack:
        plan.refuse_taken_ports()
        stop = stack.enter_context(stop_on_signals())
        server = EmbeddedPostgres(data_dir)
        stack.callback(server.stop)
        supervisor = stack.enter_context(Supervisor(report=partial(console.print, markup=False)))
        running = Start(console=console, plan=plan, supervisor=supervisor, stop=stop)
        if running.start(server):
            _show_addresses(console, plan)
            if demo:
                _play_in_background(console, plan, running.url)
            else:
                _show_first_steps(console, plan, running.url)
            supervisor.run(stop)
        console.print("Stopping")
        supervisor.stop()
    console.show_cursor()  # which a demo cut short had hidden
    console.print(f"Stopped. The data stay in {data_dir}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The addresses and folders that `up` will use."""

    data_dir: Path
    host: str
    api_port: int
    dagster_port: int
    workers: int

    @property
    def api_url(self) -> str:
        """The API's address as this machine reaches it."""
        host = children.reachable(self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.api_port}"

    @property
    def dagster_url(self) -> str:
        """The address of Dagster's web server."""
        return f"http://127.0.0.1:{self.dagster_port}"

    def refuse_taken_ports(self) -> None:
        """Say which port is in use, before anything starts."""
        for host, port, option in (
            (self.host, self.api_port, "--api-port"),
            ("127.0.0.1", self.dagster_port, "--dagster-port"),
        ):
            if children.taken(host, port):
                raise click.ClickException(
                    f"port {port} on {host} is in use; give another with {option}"
                )


class Start:
    """A start of the service: its parts in order, each with a line in the terminal."""

    def __init__(
        self, *, console: Console, plan: Plan, supervisor: Supervisor, stop: StopRequest
    ) -> None:
        self._console = console
        self._plan = plan
        self._supervisor = supervisor
        self._stop = stop
        self.url = ""

    def start(self, server: EmbeddedPostgres) -> bool:
        """Start all parts; False when a stop was asked for before all stood."""
        if named := os.environ.get("SERVICE_DATABASE_URL"):
            self.url = named
        elif self._add(children.postgres(server, self._plan.data_dir)):
            self.url = server.url
        else:
            return False
        self._step("Store", self._prepare_store)
        return all(self._add(child) for child in self._servers())

    def _prepare_store(self) -> None:
        refuse_weak_store(self.url)
        upgrade(self.url)
        with opened_engine(self.url) as engine, engine.begin() as connection:
            store_secret(connection, self._plan.data_dir)
        claim_folders(self.url, self._plan.data_dir)

    def _servers(self) -> Generator[Child]:
        plan, code_port = self._plan, children.free_port()
        home = write_dagster_home(plan.data_dir)
        servers = children.Servers(
            data_dir=plan.data_dir,
            env=dagster_environment(self.url, home, plan.data_dir, web_url=plan.dagster_url),
            workspace=write_workspace(home, code_server_port=code_port),
        )
        yield servers.api(host=plan.host, port=plan.api_port, workers=plan.workers)
        # A request names the API's address; what Dagster sends and shows has none to link to.
        dagster = replace(servers, env={"SERVICE_PUBLIC_URL": plan.api_url, **servers.env})
        yield dagster.code_server(port=code_port)
        yield dagster.daemon()
        yield dagster.web_server(port=plan.dagster_port)

    def _add(self, child: Child) -> bool:
        return self._step(child.name, lambda: self._supervisor.add(child, self._stop)) is not False

    def _step(self, name: str, work: Callable[[], bool | None]) -> bool | None:
        begun = time.monotonic()
        with self._console.status(f"starting {name}"):
            result = work()
        if result is not False:
            seconds = time.monotonic() - begun
            self._console.print(f"[green]✓[/] {name:<20}[dim]{seconds:5.1f} s[/]")
        return result


def _first_project(url: str) -> CreatedProject | None:
    """Make the first project of a new store, with its keys; None where there is a project."""
    with opened_engine(url) as engine, engine.begin() as connection:
        names = {project.name for project in list_projects(connection)}
        return (
            None
            if names - {DEMO_PROJECT}
            else create_project(connection, FIRST_PROJECT, by=command_actor())
        )


def demo_project(url: str) -> CreatedProject:
    """The demo's own project, apart from real ones; with fresh keys where it stands already."""
    from canary_traffic.demo import METRIC  # noqa: PLC0415 (a plain start does without its numpy)

    with opened_engine(url) as engine, engine.begin() as connection:
        known = {project.name: project.project_id for project in list_projects(connection)}
        if (number := known.get(DEMO_PROJECT)) is None:
            made = create_project(connection, DEMO_PROJECT, by=command_actor())
            apply_settings(
                connection, made.project_id, {"default_metric": METRIC}, by=command_actor()
            )
            return made
        keys = {
            kind: create_key(connection, number, kind, by=command_actor()) for kind in FIRST_KINDS
        }
        return CreatedProject(project_id=number, name=DEMO_PROJECT, keys=keys)


def _show_addresses(console: Console, plan: Plan) -> None:
    console.print()
    console.print(f"[bold]API[/]       {plan.api_url}   (docs: {plan.api_url}/docs)")
    console.print(
        f"[bold]Dashboard[/] {plan.api_url}/dashboard   (sign in with the project key, to read)"
    )
    console.print(f"[bold]Dagster[/]   {plan.dagster_url}")
    console.print(f"[bold]Data[/]      {plan.data_dir}   (logs in {plan.data_dir / 'logs'})")
    if not os.environ.get("SERVICE_SECRET"):
        secret = plan.data_dir / "secret"
        console.print(f"[bold]Secret[/]    {secret}   (back it up with the data)")
    console.print()


def _show_first_steps(console: Console, plan: Plan, url: str) -> None:
    if (project := _first_project(url)) is not None:
        console.print(f"Made the project [bold]{project.name}[/]. Its keys are shown this once:")
        for kind, use in KEY_USES.items():
            console.print(f"  {kind.value:<8} [cyan]{project.keys[kind]}[/]   [dim]{use}[/]")
        console.print("\nHand them to the commands of the quick start:")
        console.print(f"  export SERVICE_API_URL={plan.api_url}", markup=False)
        for line in exported_keys(project.keys):
            console.print(f"  {line}", markup=False)
        _show_owner_link(console, plan, url, project)
        console.print("\nRecord what is out there now, from a checkout of your code:")
        console.print(
            f'  SERVICE_PROJECT_KEY=$WRITE_KEY {command_name()} deploy "$(git rev-parse HEAD)"\n',
            markup=False,
        )
    console.print(RUNNING)


def _show_owner_link(console: Console, plan: Plan, url: str, project: CreatedProject) -> None:
    """Show a link that signs a browser in as owner of a project, and the command for another."""
    with opened_engine(url) as engine, engine.begin() as connection:
        code = create_link(connection, project.project_id, Role.OWNER, by=command_actor())
    minutes = LINK_LIFETIME.total_seconds() / 60
    console.print(
        "\nSign in to the dashboard as owner of its settings, by this link, once, within"
        f" {minutes:.0f} minutes:"
    )
    console.print(f"  {sign_in_link(plan.api_url, code)}", markup=False)
    folder = shlex.quote(str(plan.data_dir))
    name = "" if project.name == FIRST_PROJECT else f" --project {shlex.quote(project.name)}"
    console.print("Another link, later:")
    console.print(
        f"  {command_name()} dashboard --owner{name} --url {plan.api_url} --data-dir {folder}",
        markup=False,
    )


def _play_in_background(console: Console, plan: Plan, url: str) -> None:
    """Play the demo beside the supervisor, which alone may start children."""
    from canary_traffic.demo import play  # noqa: PLC0415 (a plain start does without its numpy)

    project = demo_project(url)

    def run() -> None:
        try:
            play(
                console,
                api_url=plan.api_url,
                dagster_url=plan.dagster_url,
                keys=project.keys,
                timeout=DEMO_SECONDS,
            )
            _show_owner_link(console, plan, url, project)
        except Exception as error:  # noqa: BLE001 (the service goes on, whatever the demo met)
            console.print(f"The demo ended early: {error}", markup=False)
        console.print(f"\n{RUNNING}")

    threading.Thread(target=run, name="demo", daemon=True).start()


@contextmanager
def _only_one(data_dir: Path) -> Generator[None]:
    """Hold the data directory against a second `up`."""
    path = data_dir / "up.lock"
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip()
            raise click.ClickException(
                f"deploy-reward up runs already on {data_dir} (process {holder}); stop it first, "
                "or name another data directory with --data-dir"
            ) from None
        # On a full disk, for instance: the lock holds without our number in it.
        with suppress(OSError):
            lock.truncate(0)
            os.write(lock.fileno(), str(os.getpid()).encode())
        yield
