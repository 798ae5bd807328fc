"""A form: a body given on the command line, held to the rules that the API holds it to."""

import json
from collections.abc import Mapping
from typing import TypeVar

import click
from pydantic import TypeAdapter

from api.wire.problem import Problem
from api.wire.shape import validated
from api.wire.strict_json import strict_document

FormT = TypeVar("FormT")


def checked(form: type[FormT], members: Mapping[str, object]) -> FormT:
    """The members as the form that they must have.

    Raises:
        click.ClickException: They break a rule; the message says where.
    """
    try:
        return validated(TypeAdapter(form), strict_document(json.dumps(members).encode()))
    except Problem as problem:
        raise click.ClickException(problem.detail) from None
