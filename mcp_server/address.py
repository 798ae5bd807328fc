"""Where the reward endpoints are, and the key that opens them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import httpx2


@dataclass(frozen=True, kw_only=True)
class Address:
    """A reward base address and its project key.

    Attributes:
        url: The base that `/v1/reward/...` is appended to, without a trailing slash.
        key: The project key; left out of the representation, so that no log shows it.

    Raises:
        ValueError: If the address is no http(s) address, or the key can't stand in a header. The
            message names the environment variable and never the key.
    """

    url: str
    key: str = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse what could only fail later, where the message would be worse."""
        try:
            url = httpx2.URL(self.url)
        except httpx2.InvalidURL:
            url = httpx2.URL()
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
        url = httpx2.URL(self.url)
        return f"{url.scheme}://{url.netloc.decode()}"

    def redacted(self, text: str) -> str:
        """The text without the key, should an answer have echoed it."""
        return text.replace(self.key, "[key]")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """The address that SERVICE_API_URL and SERVICE_PROJECT_KEY give.

        Raises:
            ValueError: If one is missing or unusable; the message says which.
        """
        url = environ.get("SERVICE_API_URL", "").strip().rstrip("/")
        key = environ.get("SERVICE_PROJECT_KEY", "").strip()
        if not url:
            raise ValueError(
                "SERVICE_API_URL is not set: give the reward base address, "
                "such as http://127.0.0.1:8000"
            )
        if not key:
            raise ValueError(
                "SERVICE_PROJECT_KEY is not set: give the project key (it begins with rk_)"
            )
        return cls(url=url, key=key)
