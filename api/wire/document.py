"""The OpenAPI document: FastAPI's own, with the bodies, answers and problems that routes name."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.wire.documentation import MODELS, OWN_FAILURES, OWN_PROBLEMS, REF
from api.wire.problem import CODES

_SECURITY: Mapping[str, dict[str, str]] = {
    "ProjectKey": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Service-Project-Key",
        "description": "Key: write `wk_…`, public `pk_…`, project `rk_…` or read `ro_…`.",
    },
    "Bearer": {"type": "http", "scheme": "bearer", "description": "A write key."},
    "KeyInQuery": {
        "type": "apiKey",
        "in": "query",
        "name": "key",
        "description": "For `navigator.sendBeacon`, which can set no header.",
    },
}


_HEADERS: Mapping[str, dict[str, Any]] = {
    "X-Request-Id": {
        "description": "By which the service's log names this request.",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
    },
    "WWW-Authenticate": {"required": True, "schema": {"type": "string"}},
    "Retry-After": {
        "description": "Seconds until it is worth asking again.",
        "required": True,
        "schema": {"type": "integer", "minimum": 0},
    },
    "RateLimit": {"required": True, "schema": {"type": "string"}},
    "RateLimit-Policy": {"required": True, "schema": {"type": "string"}},
}


_HEADERS_BY_STATUS: Mapping[int, Sequence[str]] = {
    401: ("WWW-Authenticate",),
    429: ("Retry-After", "RateLimit", "RateLimit-Policy"),
    503: ("Retry-After",),
}


# Failures of any request before an operation sees it. A fault of ours (500) is not part of the
# interface.
_OF_EVERY_REQUEST = ("request_timeout", "overloaded", "stopping")


_OF_A_KEY = ("missing_key", "malformed_key", "unknown_key", "differing_keys", "wrong_key_kind")


_OF_A_BODY = ("invalid_json", "body_too_large", "unsupported_media_type", "invalid_request")


_FAULT: Mapping[str, Any] = {
    "type": "object",
    "required": ["code", "detail"],
    "properties": {
        "pointer": {"type": "string", "description": "JSON pointer into the body."},
        "parameter": {"type": "string", "description": "Name of a parameter of the address."},
        "header": {"type": "string", "description": "Name of a header."},
        "code": {"type": "string"},
        "detail": {"type": "string"},
    },
}


_PROBLEM: Mapping[str, Any] = {
    "type": "object",
    "description": "RFC 9457",
    "required": ["type", "title", "status", "detail", "code", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "enum": sorted(CODES)},
        "request_id": {"type": "string"},
        "errors": {"type": "array", "items": {"$ref": "#/components/schemas/Fault"}},
    },
}


def document(app: FastAPI) -> dict[str, object]:
    """Returns the OpenAPI document of the app, with the models that its routes name."""
    for route in app.routes:
        if isinstance(route, APIRoute):
            # Name of the operation in generated clients: FastAPI's own id holds the path too.
            route.operation_id = route.name
    described = FastAPI.openapi(app)
    components = described.setdefault("components", {})
    schemas: dict[str, Any] = components.setdefault("schemas", {})
    models = [model for model in MODELS.values() if issubclass(model, BaseModel)]
    structs = [model for model in MODELS.values() if not issubclass(model, BaseModel)]
    _, bodies = models_json_schema([(model, "validation") for model in models], ref_template=REF)
    _, written = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    schemas.update(bodies.get("$defs", {}))
    schemas.update(written)
    schemas.update(Fault=_FAULT, Problem=_PROBLEM)
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = dict(_SECURITY)
    components["headers"] = dict(_HEADERS)
    for operations in described["paths"].values():
        for operation in operations.values():
            _describe_problems(operation)
    return described


def _describe_problems(operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    # FastAPI's own form of 422, which nothing here sends.
    answers.pop("422", None)
    for answer in answers.values():
        answer.setdefault("headers", {}).update(_headers("X-Request-Id"))
    failures = {
        media: {"schema": schema} for media, schema in operation.pop(OWN_FAILURES, {}).items()
    }
    codes = sorted(set(_problems(operation)), key=lambda code: (CODES[code][0], code))
    for status, codes_of_status in groupby(codes, key=lambda code: CODES[code][0]):
        # A status may tell of more than problems: a gate that holds says so by 403.
        own = answers.get(str(status), {})
        problem = _problem_answer(status, list(codes_of_status))
        problem["content"] |= failures
        if "content" in own:
            problem["content"] |= own["content"]
            problem["description"] = f"{own['description']} {problem['description']}"
        answers[str(status)] = problem


def _problems(operation: dict[str, Any]) -> Iterator[str]:
    """Yields the codes that an operation answers with."""
    yield from _OF_EVERY_REQUEST
    yield from operation.pop(OWN_PROBLEMS, ())
    if "security" in operation:
        yield from _OF_A_KEY
        yield from ("not_acceptable", "store_unavailable")
    if "requestBody" in operation:
        yield from _OF_A_BODY
    if any(parameter["in"] == "query" for parameter in operation.get("parameters", ())):
        yield "invalid_request"


def _problem_answer(status: int, codes: Sequence[str]) -> dict[str, Any]:
    members = {"status": {"const": status}, "code": {"enum": list(codes)}}
    problem = {"allOf": [{"$ref": REF.format(model="Problem")}, {"properties": members}]}
    return {
        "description": ". ".join(f"`{code}`: {CODES[code][1]}" for code in codes),
        "headers": _headers("X-Request-Id", *_HEADERS_BY_STATUS.get(status, ())),
        "content": {"application/problem+json": {"schema": problem}},
    }


def _headers(*names: str) -> dict[str, dict[str, str]]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
