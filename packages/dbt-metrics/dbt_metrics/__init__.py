"""Metrics of a dbt project: which of MetricFlow's the product can express, and their events."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec

from domain.metric import DAY, Metric, composed_name

_UNITS = ("user", "customer", "visitor", "account", "session")
_CONDITION = re.compile(
    r"\{\{\s*Dimension\(\s*'(?:(\w+)__)?(\w+)'\s*\)\s*\}\}\s*(=|\bin\b)\s*(.+)",
    re.IGNORECASE | re.DOTALL,
)
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)
_VALUE = re.compile(r"'([^']*)'|(-?\d+)|(true|false)", re.IGNORECASE)
# As a nightly run of dbt brings them.
_LATE = {"window_seconds": DAY, "grace_seconds": 3 * DAY}
# An empty text in JSON.
_EMPTY = '""'
# Aggregations of rows that no sum over units gives back.
_NO_SUM = ("average", "median", "percentile", "min", "max")


class ManifestError(ValueError):
    """A file that is no manifest of dbt, or a unit that none of its models has."""


class UnmatchedMetricError(ValueError):
    """Why the product cannot express a metric."""


class Entity(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a semantic model."""

    name: str
    type: str
    expr: str | None = None

    @property
    def column(self) -> str:
        """Its expression in SQL."""
        return self.expr or self.name


class Dimension(Entity, frozen=True, kw_only=True):
    """A property of a semantic model's rows."""


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """An aggregation of a semantic model's rows."""

    name: str
    agg: str
    expr: str | None = None
    agg_time_dimension: str | None = None
    non_additive_dimension: dict[str, Any] | None = None

    @property
    def value(self) -> str:
        """A row's part of the sum, in SQL."""
        column = self.expr or self.name
        if self.agg == "count":
            return "1" if column == "1" else f"CASE WHEN {column} IS NULL THEN 0 ELSE 1 END"
        return f"CASE WHEN {column} THEN 1 ELSE 0 END" if self.agg == "sum_boolean" else column

    @property
    def counts_rows(self) -> bool:
        """Whether each row adds 1."""
        return self.value == "1"


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """The table of a model."""

    alias: str
    relation_name: str | None = None


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of a semantic model's measures."""

    agg_time_dimension: str | None = None


class SemanticModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model of dbt with its keys, properties and aggregations."""

    name: str
    node_relation: Relation
    defaults: Defaults | None = None
    primary_entity: str | None = None
    entities: tuple[Entity, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    measures: tuple[Measure, ...] = ()

    def entity(self, name: str) -> Entity | None:
        """Returns its key of a name."""
        return next((each for each in self.entities if each.name == name), None)

    @property
    def primary(self) -> Entity | None:
        """The key of its rows."""
        kinds = ("primary", "unique")
        return next((each for each in self.entities if each.type in kinds), None)

    def dimension(self, name: str) -> Dimension | None:
        """Returns its property of a name."""
        return next((each for each in self.dimensions if each.name == name), None)


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A condition in SQL, whose columns are named by templates."""

    where_sql_template: str


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions that rows must meet together."""

    where_filters: tuple[Filter, ...] = ()


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A measure or metric that a metric reads."""

    name: str
    filter: Filters | None = None
    offset_window: object | None = None
    offset_to_grain: object | None = None


class TypeParams(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a metric, by its type."""

    measure: Input | None = None
    numerator: Input | None = None
    denominator: Input | None = None
    metric_aggregation_params: dict[str, Any] | None = None
    expr: str | int | None = None


class DbtMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of MetricFlow."""

    name: str
    type: str
    type_params: TypeParams = TypeParams()
    filter: Filters | None = None


@dataclass(frozen=True, kw_only=True)
class Event:
    """The event that each row of a model is for a measure, and the rows that count."""

    model: SemanticModel
    measure: Measure
    unit: Entity
    where: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def of_units(self) -> bool:
        """Whether units are counted, and not their rows."""
        return self.measure.agg == "count_distinct" or self.model.primary == self.unit


@dataclass(frozen=True, kw_only=True)
class DbtMetrics:
    """The metrics of a project by their names: each as settings, or the reason why not.

    Attributes:
        unit: The entity that the project's arms are drawn by.
    """

    models: tuple[SemanticModel, ...]
    metrics: tuple[DbtMetric, ...]
    unit: str

    @cached_property
    def expressed(self) -> dict[str, dict[str, Any] | str]:
        """The definition of each metric, or the reason why there is none."""
        return {metric.name: self._definition(metric) for metric in self.metrics}

    @property
    def written(self) -> dict[str, dict[str, Any]]:
        """The definitions alone."""
        return {name: each for name, each in self.expressed.items() if not isinstance(each, str)}

    def _definition(self, metric: DbtMetric) -> dict[str, Any] | str:
        try:
            composed_name(metric.name)
            definition = self._ratio(metric) if metric.type == "ratio" else self._simple(metric)
            msgspec.convert(definition, Metric)
        except (UnmatchedMetricError, ValueError) as error:
            return str(error)
        return definition

    def _simple(self, metric: DbtMetric) -> dict[str, Any]:
        event = self._event(metric)
        kind = "conversion" if event.of_units else "mean"
        return _defined(event, kind=kind)

    def _ratio(self, metric: DbtMetric) -> dict[str, Any]:
        parts = [self._part(metric, metric.type_params.numerator)]
        parts += [self._part(metric, metric.type_params.denominator)]
        for part in parts:
            if not part.measure.counts_rows:
                raise UnmatchedMetricError(
                    f"a ratio counts each event as 1, and {part.measure.name} is"
                    f" {part.measure.agg} of {part.measure.value}"
                )
        if parts[1].where:
            raise UnmatchedMetricError("the events below a ratio's line have no filter")
        return _defined(parts[0], kind="ratio") | {"per": [parts[1].measure.name]}

    def _part(self, metric: DbtMetric, part: Input | None) -> Event:
        named = {each.name: each for each in self.metrics}
        if part is None or part.name not in named:
            raise UnmatchedMetricError("a part of the ratio is no metric of this manifest")
        return self._event(named[part.name], part.filter, metric.filter)

    def _event(self, metric: DbtMetric, *filters: Filters | None) -> Event:
        """Returns the event that a simple metric counts.

        Raises:
            UnmatchedMetricError: It is another metric, or none of the unit's.
        """
        params = metric.type_params
        if metric.type != "simple":
            raise UnmatchedMetricError(_OTHERS.get(metric.type, f"metrics of type {metric.type}"))
        if (own := params.metric_aggregation_params) is not None:
            measure = msgspec.convert({**own, "name": metric.name}, Measure)
            model = next((m for m in self.models if m.name == own.get("semantic_model")), None)
        else:
            asked = params.measure and params.measure.name
            pairs = ((each, model) for model in self.models for each in model.measures)
            measure, model = next((p for p in pairs if p[0].name == asked), (None, None))
        if measure is None or model is None:
            raise UnmatchedMetricError("its measure is in no semantic model of this manifest")
        of_input = params.measure and params.measure.filter
        where = _where(model, (metric.filter, of_input, *filters))
        unit = model.entity(self.unit)
        if unit is None:
            raise UnmatchedMetricError(
                f"{model.name} has no entity {self.unit}: its rows are of no unit"
            )
        summed = self._summed(measure, model, unit)
        return Event(model=model, measure=summed, unit=unit, where=where)

    def _summed(self, measure: Measure, model: SemanticModel, unit: Entity) -> Measure:
        primary = model.primary
        if measure.agg in _NO_SUM:
            raise UnmatchedMetricError(f"{measure.agg} of rows is no sum over units")
        if measure.non_additive_dimension is not None:
            raise UnmatchedMetricError("its rows are states of a time, and do not add up")
        if measure.agg != "count_distinct":
            if primary == unit and not measure.counts_rows:
                raise UnmatchedMetricError(
                    f"a row of {model.name} is the {self.unit} itself, and no event"
                )
            return measure
        column = measure.expr or measure.name
        if column == unit.column:
            return measure
        if primary is not None and column == primary.column:
            return msgspec.structs.replace(measure, agg="count", expr="1")
        raise UnmatchedMetricError(f"distinct values of {column} are no sum over units")

    def queries(self, *, days: int | None = None) -> dict[str, str]:
        """Returns by the model's table the SELECT of the events that the written metrics count.

        Args:
            days: How far back it reads; by default it reads all rows.
        """
        events = dict[tuple[str, str], Event]()
        names = {metric.name: metric for metric in self.metrics}
        for name, definition in self.written.items():
            metric = names[name]
            inputs = [metric] if metric.type == "simple" else []
            inputs += [
                names[part.name]
                for part in (metric.type_params.numerator, metric.type_params.denominator)
                if definition["kind"] == "ratio" and part is not None
            ]
            for each in inputs:
                event = self._event(each)
                key = (event.model.name, event.measure.name)
                asked = dict(events[key].where) if key in events else {}
                # A ratio has filters of its own, beside those of its parts.
                for where in (event.where, definition.get("where", {})):
                    for property_, values in where.items():
                        asked[property_] = [*dict.fromkeys([*asked.get(property_, ()), *values])]
                events[key] = replace(event, where=asked)
        selects = dict[str, list[str]]()
        for event in events.values():
            alias = event.model.node_relation.alias
            selects.setdefault(alias, []).append(self._select(event, days))
        return {alias: "\nUNION ALL\n".join(parts) for alias, parts in selects.items()}

    def _select(self, event: Event, days: int | None) -> str:
        model, measure = event.model, event.measure
        default = model.defaults and model.defaults.agg_time_dimension
        time = model.dimension(measure.agg_time_dimension or default or "")
        at, key = "NULL" if time is None else time.column, (model.primary or event.unit).column
        id_ = f"'{measure.name}-' || CAST({key} AS VARCHAR(100))"
        columns = [
            f"'{measure.name}' AS event",
            f"'dbt-' || CAST({key} AS VARCHAR(100)) AS session_id",
            f"CAST({event.unit.column} AS VARCHAR(100)) AS user_ref",
            f"{at} AS occurred_at",
            f"{id_} AS event_id",
            f"{'1' if event.of_units else measure.value} AS value",
            f"{_properties(event)} AS properties",
        ]
        table = model.node_relation.relation_name or model.node_relation.alias
        since = "" if days is None else f"\nWHERE {at} >= CURRENT_TIMESTAMP - INTERVAL '{days}' DAY"
        return f"SELECT {', '.join(columns)}\nFROM {table}{since}"


_OTHERS = {
    "derived": "arithmetic of metrics has no test: measure its parts",
    "cumulative": "a total over time is no outcome of a unit: measure what it sums",
    "conversion": "its base is an event, and an experiment's is the exposure: measure what follows",
}


def _defined(event: Event, *, kind: str) -> dict[str, Any]:
    where = {"where": dict(event.where)} if event.where else {}
    return {"sources": [event.measure.name], "kind": kind, **where, **_LATE}


def _properties(event: Event) -> str:
    """Returns the JSON of the properties that filters ask for, in SQL.

    Of a property the values alone that are asked for: any other, NULL too, is the empty text.
    """
    texts: list[str] = []
    for name, values in event.where.items():
        if (dimension := event.model.dimension(name)) is None:
            continue
        cases = " ".join(
            f"WHEN {_quoted(value)} THEN {_quoted(json.dumps(value, ensure_ascii=False))}"
            for value in values
        )
        written = (
            f"CASE CAST({dimension.column} AS VARCHAR(100)) {cases} ELSE {_quoted(_EMPTY)} END"
        )
        texts.append(f"{_quoted(json.dumps(name))} || ':' || {written}")
    return " || ".join(["'{'", " || ',' || ".join(texts), "'}'"]) if texts else "NULL"


def _quoted(text: str) -> str:
    """Returns a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _where(model: SemanticModel, filters: tuple[Filters | None, ...]) -> dict[str, list[str]]:
    """Returns filters as values of properties.

    Raises:
        UnmatchedMetricError: A condition is another, or is of another model.
    """
    result = dict[str, list[str]]()
    for condition in _conditions(filters):
        match = _CONDITION.fullmatch(condition)
        values = [] if match is None else _values(match[4], listed=match[3].lower() == "in")
        if match is None or not values:
            raise UnmatchedMetricError(
                f"a filter asks for values of properties, and not: {' '.join(condition.split())}"
            )
        primary = model.primary_entity or (model.primary and model.primary.name)
        entity, name = match[1] or primary, match[2]
        if entity != primary or model.dimension(name) is None:
            raise UnmatchedMetricError(
                f"its filter reads {entity}__{name}, which is none of {model.name}"
            )
        if name in result and result[name] != values:
            raise UnmatchedMetricError(f"its filter asks twice for {name}")
        result[name] = values
    return result


def _conditions(filters: tuple[Filters | None, ...]) -> Iterator[str]:
    for each in filters:
        for condition in () if each is None else each.where_filters:
            yield from (part.strip() for part in _AND.split(condition.where_sql_template.strip()))


def _values(text: str, *, listed: bool) -> list[str]:
    """Returns the values of a condition; none where it holds anything else."""
    inner = text.strip()
    if listed:
        if not (inner.startswith("(") and inner.endswith(")")):
            return []
        inner = inner[1:-1]
    parts = [part.strip() for part in inner.split(",")] if listed else [inner]
    matches = [_VALUE.fullmatch(part) for part in parts]
    return (
        [(match[1] if match[1] is not None else match[0].lower()) for match in matches if match]
        if all(matches)
        else []
    )


def read_metrics(manifest: bytes, semantic: bytes | None = None, *, unit: str = "") -> DbtMetrics:
    """Returns the metrics of a project of dbt.

    Args:
        manifest: `target/manifest.json`.
        semantic: `target/semantic_manifest.json`, which goes before; by default the manifest tells.
        unit: The entity that arms are drawn by; by default one that is called like a user.

    Raises:
        ManifestError: A file is no manifest, or no model has the unit.
    """
    models, metrics = _read(manifest)
    if semantic is not None:
        models, metrics = _read(semantic)
    entities = {entity.name for model in models for entity in model.entities}
    chosen = unit or next((name for name in _UNITS if name in entities), "")
    if chosen not in entities:
        known = ", ".join(sorted(entities)) or "no entity"
        raise ManifestError(f"name the unit: --unit {unit or 'ENTITY'} of {known}")
    return DbtMetrics(models=models, metrics=metrics, unit=chosen)


def _read(text: bytes) -> tuple[tuple[SemanticModel, ...], tuple[DbtMetric, ...]]:
    try:
        document = msgspec.json.decode(text)
        models, metrics = (
            [*each.values()] if isinstance(each := document[name], dict) else each
            for name in ("semantic_models", "metrics")
        )
        return (
            msgspec.convert(models, tuple[SemanticModel, ...]),
            msgspec.convert(metrics, tuple[DbtMetric, ...]),
        )
    except (KeyError, TypeError, UnicodeError, msgspec.MsgspecError) as error:
        raise ManifestError(f"no manifest of dbt with semantic models: {error!r}") from None
