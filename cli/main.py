"""The command line's root: `deploy-reward` and the modules of its commands."""

from typing import Any

import click

from cli.lazy_group import LazyGroup

COMMANDS = {
    "up": ("cli.processes.up:up", "Run the whole service on this machine: store, API, Dagster."),
    "api": ("cli.processes.parts:api", "Serve the REST API alone."),
    "dagster": (
        "cli.processes.parts:dagster",
        "Run Dagster alone: code server, daemon and web server.",
    ),
    "migrate": ("cli.processes.parts:migrate", "Make the tables of the store."),
    "project": ("cli.operations.projects:project", "Create and list projects."),
    "keys": (
        "cli.operations.projects:keys",
        "Create, list and revoke keys; show those that sign.",
    ),
    "settings": ("cli.operations.projects:settings", "Show and apply a project's settings."),
    "dashboard": (
        "cli.operations.dashboard:dashboard",
        "Print a link that signs a browser in, once.",
    ),
    "import": (
        "cli.imports.command:import_history",
        "Read historical data from NDJSON, CSV or Parquet.",
    ),
    "outcomes": (
        "cli.outcomes:outcomes",
        "Send outcomes that come late, from NDJSON, CSV or Parquet.",
    ),
    "evaluate": (
        "cli.operations.evaluate:evaluate",
        "Materialize the assets once, for every project.",
    ),
    "plan": (
        "cli.changes.plan:plan",
        "Say how many days a canary takes, and how to make it quicker.",
    ),
    "deploy": (
        "cli.changes.deploy:deploy",
        "Record a deploy, or a step of its ramp, and print its id.",
    ),
    "withdraw": (
        "cli.changes.withdraw:withdraw",
        "Withdraw a deploy that was recorded by mistake.",
    ),
    "register": (
        "cli.changes.register:register",
        "Register a change as an experiment and print its id.",
    ),
    "place": (
        "cli.changes.place:place",
        "Ask for a place for a change: a flag, or a canary's share.",
    ),
    "wait": ("cli.changes.wait:wait", "Wait for a verdict, and exit with it."),
    "explain": ("cli.changes.explain:explain", "Show the evidence behind a verdict."),
    "doctor": (
        "cli.operations.doctor:doctor",
        "Check whether a project is wired right, and say what to do.",
    ),
    "portfolio": (
        "cli.changes.portfolio:portfolio",
        "Measure a week's changes together, against a hold-back.",
    ),
    "close": ("cli.changes.close:close", "End an experiment by hand, without a verdict."),
    "freeze": ("cli.operations.freeze:freeze", "Hold every webhook back; evidence goes on."),
    "unfreeze": (
        "cli.operations.freeze:unfreeze",
        "End a freeze and send the webhooks that waited.",
    ),
    "webhooks": (
        "cli.operations.webhooks:webhooks",
        "List deliveries to webhooks, and send them again.",
    ),
    "audit-trail": (
        "cli.operations.audit_trail:audit_trail",
        "List who changed settings, keys and experiments, newest first.",
    ),
    "audit": ("cli.operations.audit:audit", "Recompute a verdict from raw events and compare."),
    "forget": (
        "cli.operations.forget:forget",
        "Erase a person; their part of the counts stays, without a name.",
    ),
    "rebuild": (
        "cli.operations.rebuild:rebuild",
        "Compute all anew from raw events, and swap it in at once.",
    ),
    "simulate": (
        "cli.simulate:simulate",
        "Send a canary's traffic, or that of many changes.",
    ),
    "mcp": ("cli.processes.mcp:mcp", "Serve the reward endpoints as MCP tools over stdio."),
}

# What people type who know the thing and not its word here.
MEANT = {
    **dict.fromkeys(("verdict", "verdicts", "reward", "result", "show"), ("wait", "explain")),
    **dict.fromkeys(("status", "check", "health"), ("doctor", "explain")),
    **dict.fromkeys(("start", "run", "serve", "server", "demo"), ("up",)),
    **dict.fromkeys(("experiment", "experiments", "list"), ("dashboard", "explain")),
    **dict.fromkeys(("rollback", "promote", "ramp"), ("deploy",)),
    **dict.fromkeys(("login", "open"), ("dashboard",)),
    **dict.fromkeys(("init", "create"), ("project",)),
    **dict.fromkeys(("log", "history"), ("audit-trail",)),
    **dict.fromkeys(("stop", "end"), ("close",)),
    "replay": ("import", "simulate"),
    "load": ("import",),
    "config": ("settings",),
}

# Faults whose message is for people, by name: to import them costs half a second, and the client
# holds none of them.
UNREACHABLE = "sqlalchemy.exc.OperationalError"
PLAIN_FAULTS = frozenset(
    {
        "cli.processes.supervisor.ChildFailedError",
        "storage.lake.lake.LakeError",
        "storage.pipeline.engines.engine.EngineError",
        "storage.postgres.durability.WeakStoreError",
        "storage.postgres.embedded.EmbeddedPostgresError",
        "storage.postgres.refusal.Refusal",
        "storage.schema.migrate.StoreVersionError",
    }
)


class Commands(LazyGroup):
    """The root's group, which turns refusals into plain lines."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 (click's signature)
        """Run a command; a refusal of the store becomes a plain line."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            plain = _plain_fault(error)
            if plain is None:
                raise
            raise click.ClickException(plain) from error


def _plain_fault(error: Exception) -> str | None:
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    if UNREACHABLE in names:
        reason = str(getattr(error, "orig", error)).splitlines()[0]
        return (
            f"the store cannot be reached: {reason} (does its server run, and is"
            " SERVICE_DATABASE_URL right?)"
        )
    return None if names.isdisjoint(PLAIN_FAULTS) else str(error)


def _say_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked:
        # Only `--version` reads the metadata of the installed distribution.
        from mcp_server.release import release  # noqa: PLC0415

        click.echo(f"{ctx.info_name}, version {release()}")
        ctx.exit()


@click.group(cls=Commands, places=COMMANDS, meant=MEANT)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_say_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Ship a change to a share of your traffic, and learn what to do with it."""
