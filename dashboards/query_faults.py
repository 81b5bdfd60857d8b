"""What is wrong with the queries of a dashboard, as far as that can be told for sure."""

import re
from collections.abc import Iterator
from typing import Final

from dashboards import names
from dashboards.meaning import HITS, QUERIES, flows, hits_over_queries, share, since_start, subject, unscaled
from dashboards.parts import Asked, Dashboard, at, mappings, text, variables_in
from dashboards.promql import VARIABLE, Aggregation, Binary, Call, Literal, Node, Selector, Subquery, selectors, walk
from exporter.engine import FIELDS, Dialect, Kind, exposed_name

# They need two samples in their window.
OVER_TWO: Final = frozenset(
    {"rate", "irate", "increase", "delta", "idelta", "deriv", "resets", "changes", "predict_linear"}
)
OF_COUNTERS: Final = frozenset({"rate", "irate", "increase"})
INTERVAL: Final = re.compile(r"(?:\$__interval|\$\{__interval|\[\[__interval)(?:_ms)?(?::\w+)?(?:\}|\]\])?(?:ms|s)?")
DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdwy])")
SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800, "y": 31_536_000}
BUCKET: Final = re.compile(r".*_bucket(?::\w+)?")
OF_A_LIFE: Final = re.compile(r"lifetime|since.*start|\bever\b|all.time|cumulative", re.IGNORECASE)
# Of a counter the client library adds `_total`; its bare name finds nothing.
TOTALS: Final = {
    name.removesuffix("_total"): name
    for field in FIELDS
    if field.kind is Kind.COUNTER
    for spelling in field.spellings
    for dialect in spelling.dialects
    for name in [exposed_name(spelling, field.kind, dialect)]
}
# Names of one quantity that some releases expose side by side.
BOTH_NAMES: Final = (Dialect.VLLM_V1, (0, 10))
TWICE: Final = [
    {exposed_name(s, field.kind, Dialect.VLLM_V1) for s in field.spellings if s.covers(*BOTH_NAMES)} for field in FIELDS
]
# With a repeated group, or with many repetitions, an expression may take for ever to match.
LONG_TO_MATCH: Final = re.compile(r"\)[*+{]|(?:[*+{].*){5}", re.DOTALL)


def readable(dashboard: Dashboard) -> Iterator[str]:
    """Look for what is no PromQL."""
    yield from (f"{asked.where}: is no PromQL: {asked.unreadable}" for asked in dashboard.queries if asked.unreadable)


def windows(dashboard: Dashboard) -> Iterator[str]:
    """Look for rates over windows that may hold fewer than two samples, so that they are blank when zoomed in."""
    for asked, node in _nodes(dashboard):
        if not (isinstance(node, Call) and node.function.lower() in OVER_TWO and node.args):
            continue
        over = node.args[0]
        if isinstance(over, Selector) and not over.window and not re.search(VARIABLE, over.name):
            yield f"{asked.where}: {node.function}() needs a window"
        if not isinstance(over, Selector | Subquery):
            continue
        step = seconds(over.step) if isinstance(over, Subquery) else None
        length, apart = seconds(over.window), max(step or 0, dashboard.around.scrape_seconds)
        if INTERVAL.fullmatch(over.window):
            yield f"{asked.where}: $__interval in rate; take $__rate_interval"
        elif length is not None and length < 2 * apart:
            yield f"{asked.where}: {over.window} < 2 x {apart:g}s"


def seconds(duration: str) -> float | None:
    """Return the seconds of a duration such as 1h30m; None for one that is not written out."""
    if duration.isdecimal():
        return float(duration)
    parts = DURATION.findall(duration)
    if "".join(number + unit for number, unit in parts) != duration or not parts:
        return None
    return float(sum(float(number) * SECONDS[unit] for number, unit in parts))


def shares(dashboard: Dashboard) -> Iterator[str]:
    """Look for sums of shares: two caches that are 40 % full are not 80 % full."""
    for asked in dashboard.queries:
        for node in _summed(asked):
            found = share(subject(node))
            name = found.called() if isinstance(found, Selector) else "hits / queries"
            if found and node.op == "sum":
                yield f"{asked.where}: sum() over *_perc, *_ratio, *_rate: {name}; sum both parts, then divide"
            elif isinstance(found, Binary) and node.op == "avg":
                yield f"{asked.where}: avg() over {name}; sum both parts, then divide"


def _summed(asked: Asked) -> Iterator[Aggregation]:
    """Yield sums and means, but no sum that is divided by a count."""
    nodes = [*walk(asked.tree)] if asked.tree else []
    means = {
        id(unscaled(node.left))
        for node in nodes
        if isinstance(node, Binary) and node.op == "/" and getattr(unscaled(node.right), "op", "") == "count"
    }
    yield from (node for node in nodes if isinstance(node, Aggregation) and id(node) not in means)


def stacks(dashboard: Dashboard) -> Iterator[str]:
    """Look for shares that the panel adds up, one upon the other or over time."""
    for asked in dashboard.queries:
        if not (asked.tree and isinstance(share(asked.tree), Selector)):
            continue
        alone = isinstance(asked.tree, Aggregation) and not asked.tree.labels
        if at(asked.holder, "fieldConfig", "defaults", "custom", "stacking", "mode") == "normal" and (
            not alone or len(mappings(asked.holder.get("targets"))) > 1
        ):
            yield f"{asked.where}: shares stacked upon each other; they do not add up"
        calcs = at(asked.holder, "options", "reduceOptions", "calcs")
        if isinstance(calcs, list) and "sum" in calcs:
            yield f"{asked.where}: shares summed over time"


def ratios(dashboard: Dashboard) -> Iterator[str]:
    """Look for hit rates that are none: upside down, since the engine's start, or 0 where there is no traffic."""
    for asked, node in _nodes(dashboard):
        if not isinstance(node, Binary):
            continue
        if node.op == "/" and flows(node.left) == {QUERIES} and flows(node.right) == {HITS}:
            yield f"{asked.where}: queries / hits is upside down; take hits / queries"
        if hits_over_queries(node) and since_start(node.left) and since_start(node.right) and not _of_a_life(asked):
            yield f"{asked.where}: hits / queries since the start; take rate() of both"
        if node.op == "or" and _zero(node.right) and isinstance(share(node.left), Binary):
            yield f"{asked.where}: or vector(0) makes a hit rate of 0 out of no traffic"


def _of_a_life(asked: Asked) -> bool:
    """Tell whether a panel says that it shows what was since the start."""
    return bool(OF_A_LIFE.search(text(asked.holder.get("title"))))


def _zero(node: Node) -> bool:
    value = subject(node) if isinstance(node, Call) and node.function != "vector" else node
    args = value.args if isinstance(value, Call) else (value,)
    return len(args) == 1 and isinstance(args[0], Literal) and args[0].text in {"0", "0.0"}


def counters(dashboard: Dashboard) -> Iterator[str]:
    """Look for sums before rates, which take one engine's restart for traffic, and for quantiles without buckets."""
    for asked, node in _nodes(dashboard):
        if not (isinstance(node, Call) and node.args):
            continue
        over, function = node.args[0], node.function.lower()
        inner = over.expr if isinstance(over, Subquery) else over
        if function in OF_COUNTERS and isinstance(inner, Aggregation) and inner.op == "sum":
            yield f"{asked.where}: {function}() over sum(); take the rate, then sum"
        if function == "histogram_quantile" and _without_le(node.args[-1]):
            yield f"{asked.where}: histogram_quantile() over {getattr(node.args[-1], 'op', '')}() without le"


def _without_le(node: Node) -> bool:
    """Tell whether buckets are put together; a variable among the labels may be le."""
    if not isinstance(node, Aggregation) or any(variables_in(label) for label in node.labels):
        return False
    lost = "le" in node.labels if node.grouping == "without" else "le" not in node.labels
    return lost and any(BUCKET.fullmatch(selector.called()) for selector in selectors(node))


def metrics(dashboard: Dashboard) -> Iterator[str]:
    """Look for names that do not exist: they show nothing, without an error."""
    for asked, node in _nodes(dashboard):
        if not isinstance(node, Selector) or re.search(VARIABLE, node.name):
            continue
        for name in names.unknown(node.name):
            yield f"{asked.where}: {name} is neither declared nor recorded"
        if node.name in TOTALS:
            yield f"{asked.where}: {node.name} exists as {TOTALS[node.name]} alone"


def doubles(dashboard: Dashboard) -> Iterator[str]:
    """Look for an old and a new name taken together, which some releases expose side by side: both are counted."""
    for asked, node in _nodes(dashboard):
        rate = isinstance(node, Call) and node.function.lower() in OVER_TWO
        if not rate and not (isinstance(node, Aggregation) and node.op == "sum" and "__name__" not in node.labels):
            continue
        for pattern in {m.value for s in selectors(node) for m in s.matchers if (m.label, m.op) == ("__name__", "=~")}:
            if any(len(_matching(pattern, twice)) > 1 for twice in TWICE):
                yield f"{asked.where}: {pattern} is one thing under two names"


def _matching(pattern: str, candidates: set[str]) -> list[str]:
    if LONG_TO_MATCH.search(pattern) or variables_in(pattern):
        return []
    try:
        return [name for name in candidates if re.fullmatch(pattern, name)]
    except re.error:
        return []


def _nodes(dashboard: Dashboard) -> Iterator[tuple[Asked, Node]]:
    for asked in dashboard.queries:
        yield from ((asked, node) for node in (walk(asked.tree) if asked.tree else ()))
