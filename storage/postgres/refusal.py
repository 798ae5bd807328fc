"""Refusals of the store: each carries a stable code for programs."""


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not a fault
    """A request that the store does not carry out; nothing of it is stored."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class Conflict(Refusal):
    """The request contradicts stored data."""


class Locked(Refusal):
    """The project's settings do not leave this choice to the request."""


class Missing(Refusal):
    """The request names something that does not exist in its project."""


class Invalid(Refusal):
    """A member breaks a rule that only the store can check."""

    def __init__(self, code: str, detail: str, *, pointer: str) -> None:
        super().__init__(code, detail)
        self.pointer = pointer
