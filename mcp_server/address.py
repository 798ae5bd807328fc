"""Where the reward endpoints are, and the key that opens them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True, kw_only=True)
class Address:
    """A reward base address and its project key.

    Attributes:
        url: The base that `/v1/reward/...` is appended to, without a trailing slash.

    Raises:
        ValueError: If the address is no http(s) address, or the key can't stand in a header. The
            message names the environment variable and never the key.
    """

    url: str
    key: str = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse what could only fail later, where the message would be worse."""
        url = _parsed(self.url)
        if url.scheme not in {"http", "https"} or not url.host:
            raise ValueError("SERVICE_API_URL must be an address such as http://127.0.0.1:8000")
        if url.userinfo or url.query or url.fragment:
            raise ValueError("SERVICE_API_URL must hold no credentials, query or fragment")
        # httpx2 quotes an illegal header value in its error: keep such a key out of it.
        if not self.key.isascii() or not self.key.isprintable() or " " in self.key:
            raise ValueError("SERVICE_PROJECT_KEY holds characters that no key has")

    @property
    def origin(self) -> str:
        """Scheme, host and port: what error messages name."""
        url = _parsed(self.url)
        return f"{url.scheme}://{url.netloc.decode()}"

    def redacted(self, text: str) -> str:
        """The text without the key, should an answer have echoed it."""
        return text.replace(self.key, "[key]")

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str], *, needed_key: str = "the project key (rk_…)"
    ) -> Self:
        """The address that SERVICE_API_URL and SERVICE_PROJECT_KEY give.

        Raises:
            ValueError: If a variable is missing or unusable; the message says which.
        """
        url = environ.get("SERVICE_API_URL", "").strip().rstrip("/")
        key = environ.get("SERVICE_PROJECT_KEY", "").strip()
        if not url:
            raise ValueError(
                "SERVICE_API_URL is not set: give the reward base address, "
                "such as http://127.0.0.1:8000"
            )
        if not key:
            raise ValueError(f"SERVICE_PROJECT_KEY is not set: it must hold {needed_key}")
        return cls(url=url, key=key)


def _parsed(text: str) -> "httpx2.URL":
    # Half of what a command's start would cost; help and wrong usages have no address to read.
    import httpx2  # noqa: PLC0415

    try:
        return httpx2.URL(text)
    except httpx2.InvalidURL:
        return httpx2.URL()
