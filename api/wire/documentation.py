"""The words of a route for the OpenAPI document: its body, its answers and its problems."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

REF = "#/components/schemas/{model}"


# The models of bodies and answers that routes name, by their names in the document.
MODELS: dict[str, type] = {}
# Where an operation says which problems of its own it has; left out of the document.
OWN_PROBLEMS = "x-problems"
# Where it says in which forms of its own it tells of failures; left out as well.
OWN_FAILURES = "x-failures"


class PlainRoute(APIRoute):
    """A route whose function takes the request and returns the answer, with nothing between.

    FastAPI documents it; its own work on parameters costs half of a small request.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns the function itself."""
        return self.endpoint


def reading(
    *,
    body: Mapping[str, object] | None = None,
    examples: Mapping[str, object] | None = None,
    keys: Sequence[str] = ("ProjectKey",),
    parameters: Sequence[Mapping[str, object]] = (),
    required: bool = True,
    problems: Sequence[str] = (),
    last_wins: bool = False,
    failures: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Returns the OpenAPI members of an operation that reads its request by itself.

    Args:
        body: JSON schema of the body, by content type.
        problems: Codes that it answers with, besides those that its key, body or parameters
            bring.
        failures: JSON schema of a failure by content type, where another protocol has its own.
    """
    own = [*problems, *(("duplicate_member",) if body is not None and not last_wins else ())]
    operation: dict[str, object] = {OWN_PROBLEMS: own, OWN_FAILURES: failures or {}}
    if keys:
        operation["security"] = [{key: []} for key in keys]
    if parameters:
        operation["parameters"] = list(parameters)
    if body is not None:
        shown = {name: {"value": value} for name, value in (examples or {}).items()}
        operation["requestBody"] = {
            "required": required,
            "content": {
                media: {"schema": schema, "examples": shown} for media, schema in body.items()
            },
        }
    return operation


def answered(*structs: type[msgspec.Struct]) -> dict[str, object]:
    """Returns the members of an answer whose JSON is any of some structs."""
    content = json_body(*structs)["application/json"]
    return {"content": {"application/json": {"schema": content}}}


def json_body(*models: type) -> dict[str, object]:
    """Returns the schema of a JSON body that is any of some models."""
    MODELS.update((model.__name__, model) for model in models)
    refs = [{"$ref": REF.format(model=model.__name__)} for model in models]
    return {"application/json": refs[0] if len(refs) == 1 else {"anyOf": refs}}
