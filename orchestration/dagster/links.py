"""Links: the pages of an experiment outside of Dagster."""

import os


def experiment_link(experiment_id: str) -> str:
    """Returns an experiment's name as Markdown: its page where we know our address, else text.

    Read from SERVICE_PUBLIC_URL, the address under which users reach the API.
    """
    address = os.environ.get("SERVICE_PUBLIC_URL", "").rstrip("/")
    if not address.startswith(("http://", "https://")) or any(sign in address for sign in "() "):
        return experiment_id
    return f"[{experiment_id}]({address}/dashboard/experiments/{experiment_id})"
