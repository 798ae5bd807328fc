"""Dependencies of the endpoints: the caller, by its project key."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from api.runtime.keyring import Caller, admitted
from storage.tenants.keys import READING_KINDS, KeyKind


def _by(*kinds: KeyKind, bearer: bool = False) -> Callable[[Request], Awaitable[Caller]]:
    async def caller(request: Request) -> Caller:
        return await admitted(request, *kinds, bearer=bearer)

    return caller


Writer = Annotated[Caller, Depends(_by(KeyKind.WRITE))]
RevenueWriter = Annotated[Caller, Depends(_by(KeyKind.WRITE, bearer=True))]
Reader = Annotated[Caller, Depends(_by(*READING_KINDS))]
Registrar = Annotated[Caller, Depends(_by(KeyKind.PROJECT))]
