"""The release: the version of the distribution that holds this code."""

from importlib.metadata import PackageNotFoundError, version


def release() -> str:
    """The version of the service, or of its client where the service is not installed."""
    try:
        return version("deploy-reward")
    except PackageNotFoundError:
        return version("deploy-reward-client")
