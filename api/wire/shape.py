"""The shapes of members: strict types, and the validation that points at what breaks them."""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, LiteralString, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from api.wire.problem import Fault, invalid
from api.wire.strict_json import child_pointer
from domain.absence import NOTHING_RULE, NULL_RULE, is_nothing, is_null
from domain.figures import listed
from domain.metric import NAME_RULE, composed_name

NameT = TypeVar("NameT")

FREE_FORM_BYTES = 4096
# Each unknown member is a fault, which takes a hundred times its bytes.
_MOST_MEMBERS = 256


def _few_members(value: object) -> object:
    if isinstance(value, dict) and len(value) > _MOST_MEMBERS:
        raise PydanticCustomError(
            "too_many_members", "at most {most} members", {"most": _MOST_MEMBERS}
        )
    return value


class Shape(BaseModel):
    """A JSON object with exactly the members it names."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Bodies are validated once they are read; a validator before would unmake JSON's rules."""
        shape = handler(source)
        model = handler.resolve_ref_schema(shape)
        if model["type"] == "model":
            fields = model["schema"]
            few = core_schema.no_info_before_validator_function(_few_members, fields)
            model["schema"] = core_schema.json_or_python_schema(
                json_schema=fields, python_schema=few
            )
        return shape


class OpenShape(BaseModel):
    """A JSON object of which only the members that we read are named."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class FaultShown(Shape):
    """A rule that a member breaks."""

    pointer: str
    code: str
    detail: str


def _not_null(commit: str) -> str:
    if is_null(commit):
        raise PydanticCustomError(NULL_COMMIT, NULL_RULE)
    return commit


def named(name: NameT) -> NameT:
    """Returns an identifier, a name or a flag's value, which no word for nothing is."""
    if isinstance(name, str) and is_nothing(name):
        raise PydanticCustomError(NO_VALUE, NOTHING_RULE)
    return name


def _small(members: dict[str, object]) -> dict[str, object]:
    if free_form_bytes(members) > FREE_FORM_BYTES:
        raise PydanticCustomError(
            "too_large", "at most {most} bytes as JSON", {"most": FREE_FORM_BYTES}
        )
    return members


def free_form_bytes(members: dict[str, object]) -> int:
    """Returns how many bytes a free-form object takes as compact JSON in UTF-8."""
    return len(json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode())


def _composed(name: str) -> str:
    try:
        return composed_name(name)
    except ValueError as broken:
        rule = str(broken)
        raise PydanticCustomError(CODES_OF_NAMES[rule], "{rule}", {"rule": rule}) from None


# The codes of what clients write for nothing, which the checklist counts.
NO_VALUE, NULL_COMMIT = "no_value", "null_commit"
CODES_OF_NAMES: Mapping[str, LiteralString] = {NAME_RULE: "invalid_name", NOTHING_RULE: NO_VALUE}
COMMIT_RULE = "must be 7 to 64 hexadecimal digits, as `git rev-parse HEAD` prints them"
_COMMIT_PATTERN = r"^[0-9a-fA-F]{7,64}$"
# As a base an id of nothing says that there is none.
BaseCommit = Annotated[str, Field(pattern=_COMMIT_PATTERN), AfterValidator(str.lower)]
Commit = Annotated[BaseCommit, AfterValidator(_not_null)]
PatchId = Annotated[
    str, Field(pattern="^(?:[0-9a-f]{40}|[0-9a-f]{64})$"), AfterValidator(_not_null)
]
# An identifier or a name, but no word for nothing.
Name = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(named)]
# A shell or a form may leave spaces around a name that events have without.
_Trimmed = AfterValidator(str.strip)
Environment = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(named), _Trimmed]
FlagName = Annotated[Name, _Trimmed]
# In an address: bodies are read without this character.
NO_NUL = r"^[^\x00]*$"
EnvironmentInQuery = Annotated[Environment, Field(pattern=NO_NUL)]
MetricName = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_composed)]
Actor = Annotated[str, Field(min_length=1, max_length=256)]
RoutePattern = Annotated[str, Field(min_length=1, max_length=512), AfterValidator(named)]
FreeForm = Annotated[dict[str, Any], AfterValidator(_small)]
# A list without a limit of its own is checked up to the first item that breaks a rule.
_ItemT = TypeVar("_ItemT")
LongList = Annotated[list[_ItemT], Field(fail_fast=True)]
# A link that a browser may be sent to: no other scheme, and nothing that ends an attribute.
WebAddress = Annotated[str, Field(max_length=2048, pattern=r"^https?://[^\s\"'<>]+$")]

# Where pydantic's word or sentence does not serve a reader of JSON.
_CODES = {
    "extra_forbidden": "unknown_member",
    "model_type": "object_type",
    "dict_type": "object_type",
}
_DETAILS = {
    "extra_forbidden": "there is no such member",
    "missing": "is required",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be an array",
    "string_type": "must be a string",
    "int_type": "must be an integer, written without a point",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
}
# By pydantic's sentence, which names the pattern alone.
_DETAILS_OF_PATTERNS = {f"String should match pattern '{_COMMIT_PATTERN}'": COMMIT_RULE}

ValidatedT = TypeVar("ValidatedT")


def validated(shape: TypeAdapter[ValidatedT], document: object) -> ValidatedT:
    """Returns a document as the shape that it must have.

    Raises:
        Problem: It breaks a rule; each fault points at its member, and none quotes a value.
    """
    try:
        return shape.validate_python(document)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        raise invalid([_body_fault(error, document, shape) for error in errors]) from None


def _body_fault(error: ErrorDetails, document: object, shape: TypeAdapter[Any]) -> Fault:
    """Returns a fault of pydantic's as a fault of the body."""
    said, name = detail(error), error["loc"][-1] if error["loc"] else ""
    if error["type"] == "extra_forbidden" and (places := _places(shape).get(str(name))):
        said = f"{said}: it stands in {listed(sorted(places))}"
    return Fault(at=_pointer(error["loc"], document), code=code(error), detail=said)


@cache
def _places(shape: TypeAdapter[Any]) -> Mapping[str, set[str]]:
    """Returns the members of a body's objects, each with where it stands."""
    schema, places = shape.json_schema(), defaultdict[str, set[str]](set)

    def walk(node: Mapping[str, Any], at: str) -> None:
        named = schema.get("$defs", {}).get(node.get("$ref", "").rpartition("/")[2], node)
        for branch in (*named.get("anyOf", ()), *named.get("oneOf", ())):
            walk(branch, at)
        for name, member in named.get("properties", {}).items():
            places[name].add(f"{at}{name}")
            walk(member, f"{at}{name}.")

    walk(schema, "")
    return places


def code(error: ErrorDetails) -> str:
    """Returns the stable word for a fault of pydantic's."""
    return _CODES.get(error["type"], error["type"])


def detail(error: ErrorDetails) -> str:
    """Returns the sentence for a fault of pydantic's."""
    said = _DETAILS.get(error["type"]) or _DETAILS_OF_PATTERNS.get(error["msg"], error["msg"])
    return re.sub(r"^\w+ should ", "must ", said)


def _pointer(location: Sequence[str | int], document: object) -> str:
    """Returns the pointer to a fault, the words that pydantic adds for unions left out."""
    pointer, node = "", document
    for number, part in enumerate(location, start=1):
        if isinstance(node, list) and isinstance(part, int):
            pointer, node = f"{pointer}/{part}", node[part]
        elif isinstance(node, dict) and isinstance(part, str):
            if part in node:
                pointer, node = child_pointer(pointer, part), node[part]
            elif number == len(location):
                pointer = child_pointer(pointer, part)
    return pointer


def by_form(value: object) -> str:
    """Returns the branch of `text or object` that a value is read as, for a single fault."""
    return "<object>" if isinstance(value, dict) else "<text>"
