"""The command line's root: `deploy-reward` and the modules of its commands."""

from typing import Any

import click

from cli.lazy_group import LazyGroup

GROUPS = {
    "Changes": {
        "plan": "cli.changes.plan:plan",
        "deploy": "cli.changes.deploy:deploy",
        "withdraw": "cli.changes.withdraw:withdraw",
        "register": "cli.changes.register:register",
        "list": "cli.changes.listing:list_experiments",
        "wait": "cli.changes.wait:wait",
        "explain": "cli.changes.explain:explain",
        "verify": "cli.verify:verify",
        "close": "cli.changes.close:close",
        "place": "cli.changes.place:place",
        "portfolio": "cli.changes.portfolio:portfolio",
    },
    "Projects": {
        "project": "cli.operations.projects:project",
        "keys": "cli.operations.projects:keys",
        "settings": "cli.operations.projects:settings",
        "doctor": "cli.operations.doctor:doctor",
        "dashboard": "cli.operations.dashboard:dashboard",
    },
    "Data": {
        "import": "cli.imports.command:import_history",
        "outcomes": "cli.outcomes:outcomes",
        "metrics": "cli.metrics:metrics",
        "simulate": "canary_traffic.simulate:simulate",
        "forget": "cli.operations.forget:forget",
    },
    "The service": {
        "up": "cli.processes.up:up",
        "api": "cli.processes.parts:api",
        "dagster": "cli.processes.parts:dagster",
        "migrate": "cli.processes.parts:migrate",
        "mcp": "cli.processes.mcp:mcp",
    },
    "Operation": {
        "evaluate": "cli.operations.evaluate:evaluate",
        "audit": "cli.operations.audit:audit",
        "rebuild": "cli.operations.rebuild:rebuild",
        "audit-trail": "cli.operations.audit_trail:audit_trail",
        "webhooks": "cli.operations.webhooks:webhooks",
        "freeze": "cli.operations.freeze:freeze",
        "unfreeze": "cli.operations.freeze:unfreeze",
    },
}
COMMANDS = {name: place for group in GROUPS.values() for name, place in group.items()}

# Words that people may type for a command.
MEANT = {
    **dict.fromkeys(("verdict", "verdicts", "reward", "result", "show"), ("wait", "explain")),
    **dict.fromkeys(("status", "check", "health"), ("doctor", "explain")),
    **dict.fromkeys(("start", "run", "serve", "server", "demo"), ("up",)),
    **dict.fromkeys(("experiment", "experiments", "ls"), ("list", "explain")),
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
        "storage.log.file_errors.LakeError",
        "storage.pipeline.engines.engine.EngineError",
        "storage.postgres.durability.WeakStoreError",
        "own_postgres.server.EmbeddedPostgresError",
        "storage.postgres.refusal.Refusal",
        "storage.schema.migrate.StoreVersionError",
        "storage.tenants.secret.SecretError",
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


@click.group(cls=Commands, groups=GROUPS, meant=MEANT)
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
