"""Links: the page of an experiment, as Dagster's pages and messages name it."""

import os


def experiment_address(experiment_id: str) -> str | None:
    """Returns the address of an experiment's page; None where ours is unknown or no plain address.

    Read from SERVICE_PUBLIC_URL, the address under which users reach the API.
    """
    address = os.environ.get("SERVICE_PUBLIC_URL", "").rstrip("/")
    if not address.startswith(("http://", "https://")) or any(sign in address for sign in "() <>|"):
        return None
    return f"{address}/dashboard/experiments/{experiment_id}"


def experiment_link(experiment_id: str) -> str:
    """Returns an experiment's name as Markdown: its page where we know our address, else text."""
    address = experiment_address(experiment_id)
    return experiment_id if address is None else f"[{experiment_id}]({address})"
