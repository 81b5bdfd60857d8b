"""What is wrong with the variables of a dashboard: choices that go stale or empty when targets come and go."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from dashboards import promql
from dashboards.parts import Dashboard, Json, at, kind, named, place, text, variables_in

ON_TIME_RANGE_CHANGE: Final = 2
LISTING: Final = re.compile(r"\s*(label_values|label_names|query_result|metrics)\s*\((.*)\)\s*", re.DOTALL)
PRODUCT: Final = re.compile(r"(?:.*[\W_])?(?:apc|vllm|sglang)[\W_].*")
# What is another one tomorrow. A choice of what stays, narrowed to these, is empty then.
COMING_AND_GOING: Final = re.compile(
    r"(?:\w+_)?(?:instance|pod|pod_name|node|nodename|host|hostname|target|container|container_id|ip|address|replica)"
)
MENDED: Final = {"=": "=~", "!=": "!~"}


def variables(dashboard: Dashboard) -> Iterator[str]:
    """Look for choices that go stale, and for those that do not narrow what they should."""
    chosen = [v for v in dashboard.variables if kind(v) == "query"]
    for variable in chosen:
        where = named("variable", variable)
        yield from _choice(variable)
        function, of, _ = _listed(variable)
        if function and not _of_product(function, of):
            yield f"{where}: {function} without a product metric"
        used = variables_in(_query(variable) + text(variable.get("regex")))
        for other in chosen:
            if other is not variable and _comes_and_goes(other) and text(other.get("name")) in used:
                yield f"{where} chained on {text(other.get('name'))}"


def choices(dashboard: Dashboard) -> Iterator[str]:
    """Look for several values or All compared as if they were one, and for variables that are none."""
    several = {
        text(v.get("name")) for v in dashboard.variables if kind(v) == "query" or v.get("includeAll") or v.get("multi")
    }
    for asked in dashboard.queries:
        for selector in promql.selectors(asked.tree) if asked.tree else ():
            for matcher in selector.matchers:
                if matcher.op in MENDED:
                    for name in sorted(variables_in(matcher.value) & several):
                        yield f"{asked.where}: {name} used with {matcher.op} instead of {MENDED[matcher.op]}"
    there = {text(v.get("name")) for v in dashboard.variables}
    for where, used in _uses(dashboard):
        yield from (f"{where}: ${name} is no variable here" for name in sorted(used - there) if name[:2] != "__")


def _uses(dashboard: Dashboard) -> Iterator[tuple[str, set[str]]]:
    """Yield where variables are used, and which; a replacement may name the groups of its expression alike."""
    for asked in dashboard.queries:
        yield asked.where, set() if "?P<" in asked.expr else variables_in(asked.expr)
    for variable in dashboard.variables:
        yield named("variable", variable), variables_in(_query(variable))
    for panel in dashboard.panels:
        if repeated := text(panel.get("repeat")):
            yield f"{place(panel)} is repeated", {repeated}


def _choice(variable: Json) -> Iterator[str]:
    """Look whether all values are the default, as an expression that holds tomorrow too."""
    where = named("variable", variable)
    if not variable.get("includeAll"):
        yield f"{where}: includeAll false"
        return
    if variable.get("allValue") != ".*":
        yield f"{where}: allValue is not .*"
    if at(variable, "current", "value") not in (["$__all"], "$__all"):
        yield f"{where}: All is not the default"
    if variable.get("refresh") != ON_TIME_RANGE_CHANGE:
        yield f"{where}: not read anew with the time range"


def _query(variable: Json) -> str:
    """Return the query, which stands in one of three places; the editor of old has metric and label apart."""
    query = variable.get("query")
    if isinstance(query, Mapping) and query.get("label") and not query.get("query"):
        return f"label_values({text(query.get('metric'))}, {text(query.get('label'))})"
    found = text(at(query, "query")) if isinstance(query, Mapping) else text(query)
    return found or text(variable.get("definition"))


def _listed(variable: Json) -> tuple[str, str, str]:
    """Return by which function values are listed, of what, and of which label; nothing where it is another query."""
    found = LISTING.fullmatch(_query(variable))
    if not found:
        return "", "", ""
    of, _, label = found[2].rpartition(",") if found[1] == "label_values" else (found[2], "", "")
    return found[1], of.strip(), label.strip()


def _of_product(function: str, of: str) -> bool:
    """Tell whether what is asked is of this product and what it watches; a variable may be."""
    if function in {"metrics", "label_names"}:
        return bool(PRODUCT.fullmatch(f"{of}_") or variables_in(of))
    try:
        tree = promql.parse(of)
    except promql.NotPromQLError:
        return False
    called = [selector.called() for selector in promql.selectors(tree)] if tree else ["apc_"]
    return any(PRODUCT.fullmatch(name) or variables_in(name) for name in called)


def _comes_and_goes(variable: Json) -> bool:
    return bool(COMING_AND_GOING.fullmatch(_listed(variable)[2] or text(variable.get("name"))))
