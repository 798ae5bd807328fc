"""A webhook of a project: where its verdicts are announced, in which format, and which of them."""

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec

from domain.document import form_field
from storage.tenants.receiver_address import is_private_host, private_receivers_allowed

Verdicts = Literal["decided", "closed", "breached", "suspected", "set_up_fault", "base_moved"]
Event = Literal[Verdicts, "placed", "promote", "withdraw"]
Format = Literal["raw", "slack", "github"]
EVENTS: tuple[Event, ...] = get_args(Event)
_MEANINGS = {
    "decided": "decided: a verdict stands",
    "closed": "closed: it ended without a verdict",
    "breached": "breached: a guardrail got worse, before any verdict",
    "suspected": "suspected: it is worse, unless units are lost",
    "set_up_fault": "set up fault: the arms cannot be compared",
    "base_moved": "base moved: users got another build than a canary stands on",
    "placed": "placed: a change got its flag or its share",
    "promote": "promote: a change gave its place back, and may go to everybody",
    "withdraw": "withdraw: a change gave its place back, and is to go",
}
MOST_WEBHOOKS = 10
# Whoever sets a webhook names a variable of the delivering process: of no other use.
TOKEN_PREFIX = "SERVICE_WEBHOOK_TOKEN_"  # noqa: S105 (a name)
# What stands for the path of an address that is shown.
MASK = "…"

# Narrower than any parser of addresses, so that none can read another host out of it.
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<rest>[/?][!-\"$-\[\]-~]*)?"
)
_TOKEN = re.compile(rf"{TOKEN_PREFIX}[A-Z0-9_]{{1,64}}")
_DISPATCHES = re.compile(r"(/api/v3)?/repos/[\w.-]+/[\w.-]+/dispatches")


class Webhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A receiver of announcements.

    Its address may itself be the secret that opens it, as Slack's are: beyond the host it is in
    no error, log or display.
    """

    format: Annotated[
        Format,
        form_field(
            "Format", choices={"raw": "Raw, signed", "slack": "Slack", "github": "GitHub dispatch"}
        ),
    ] = "raw"
    url: Annotated[
        str,
        msgspec.Meta(max_length=2048),
        form_field(
            "Address", example="https://hooks.example/verdicts", secret=True, mentions=("address",)
        ),
    ]
    events: Annotated[
        list[Event], msgspec.Meta(min_length=1), form_field("Events", choices=_MEANINGS)
    ] = msgspec.field(default_factory=lambda: list(EVENTS))
    token_variable: Annotated[
        str | None,
        form_field(
            "Variable of the token",
            "The environment variable that holds the receiver’s bearer token;"
            f" it begins {TOKEN_PREFIX}.",
            mentions=("token",),
        ),
    ] = None

    def __post_init__(self) -> None:
        """Holds the rules of addresses and tokens; no message quotes an address."""
        parts = _require_address(self.url)
        if self.token_variable is not None and not _TOKEN.fullmatch(self.token_variable):
            raise ValueError(
                f"token_variable must begin {TOKEN_PREFIX}, with capitals, digits and _ after it"
            )
        if self.format == "github":
            if not _DISPATCHES.fullmatch(parts["rest"] or ""):
                raise ValueError(
                    "the address of a github webhook is"
                    " https://api.github.com/repos/OWNER/REPO/dispatches"
                )
            if self.token_variable is None:
                raise ValueError("a github webhook needs its token_variable")
        if self.format == "slack" and self.token_variable is not None:
            raise ValueError("a slack webhook takes no token: its address is its secret")

    @property
    def host(self) -> str:
        """All of the address that may be shown."""
        return _require_address(self.url)["host"]

    @property
    def may_be_private(self) -> bool:
        """Whether it may be on a private network: its address says so, and the operator lets it."""
        return is_private_host(self.host) and private_receivers_allowed()

    @property
    def shown(self) -> str:
        """The address with its path masked."""
        return f"{self.url.split('://')[0]}://{self.host}/{MASK}"

    @property
    def target(self) -> str:
        """The webhook's name in its deliveries: a digest that does not reveal the address."""
        return _target(self.url, self.format)


def masked(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a stored webhook with its path masked, and its name, which changes with the path."""
    url, form = stored["url"], stored.get("format", "raw")
    parts = _URL.fullmatch(url)
    return {
        **stored,
        "url": MASK if parts is None else f"{parts['scheme']}://{parts['host']}/{MASK}",
        "target": _target(url, form),
    }


def _target(url: str, form: str) -> str:
    return hashlib.sha256(f"{form} {url}".encode()).hexdigest()[:20]


def _require_address(url: str) -> re.Match[str]:
    """Returns the parts of an address that may be posted to."""
    if MASK in url:
        raise ValueError("the address is masked, as `settings show` prints it: give it whole")
    parts = _URL.fullmatch(url)
    if parts is None or int(parts["port"] or 1) not in range(1, 65536):
        raise ValueError(
            "an address is http(s)://HOST[:PORT][/PATH][?QUERY] in ASCII, without user, password"
            " and fragment"
        )
    if parts["scheme"] == "http" and not is_private_host(parts["host"]):
        raise ValueError(f"{parts['host']} is not on a private network: its address must be https")
    return parts
