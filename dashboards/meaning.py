"""What a PromQL tree comes to: a share, hits or queries, a counter as it stands."""

import re
from typing import Final

from dashboards.promql import Aggregation, Binary, Call, Literal, Node, Selector, Subquery, selectors
from exporter import engine

SHARE: Final = re.compile(r"(?:.*_(?:perc|percent|percentage|pct|ratio|rate|fraction)|.*:ratio\w*)\)?\$?")
# What gives for each series one that means the same.
KEEPING: Final = re.compile(
    r"(?:avg|max|min|last|quantile)_over_time|clamp(?:_max|_min)?|label_(?:replace|join)|sort\w*|abs|round|i?rate"
)
KEEPING_AGGREGATIONS: Final = frozenset({"avg", "max", "min", "quantile", "topk", "bottomk", "limitk"})
COMPARISONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">="})
HITS, QUERIES = "hits", "queries"
# Names of ours and recorded ones; engines' own are known, but for one that adds nothing to the exporter.
OTHERS: Final = {
    HITS: re.compile(r"(?:\w+:)?(?:apc_(?:organic_|external_)?hit_tokens|prompt_tokens_cached)(?:_total)?(?::\w+)?"),
    QUERIES: re.compile(r"(?:\w+:)?apc_(?:queried|lookup|organic|prompt)_tokens(?:_total)?(?::\w+)?"),
}
FIELDS: Final = {HITS: {"hit", "external_hit"}, QUERIES: {"queried", "external_queried", "prompt"}}


def number(node: Node) -> bool:
    """Tell whether it is a number by itself."""
    return isinstance(node, Literal)


def subject(node: Node) -> Node:
    """Return the argument that a function or an aggregation is about: the last vector."""
    args = node.args if isinstance(node, Call | Aggregation) else ()
    return next((arg for arg in reversed(args) if not number(arg)), Literal(""))


def share(node: Node) -> Selector | Binary | None:
    """Return the series, or the quotient of hits over queries, whose shares these are; None if they are none."""
    match node:
        case Selector():
            return node if _called_share(node.called()) else None
        case Subquery():
            return share(node.expr)
        case Call() if KEEPING.fullmatch(node.function.lower()):
            return share(subject(node))
        case Aggregation() if node.op in KEEPING_AGGREGATIONS:
            return share(subject(node))
        case Binary():
            return _share_of_two(node)
        case _:
            return None


def _called_share(name: str) -> bool:
    return bool(SHARE.fullmatch(name)) or any(route.field.largest == 1 for route in engine.routes(name))


def _share_of_two(node: Binary) -> Selector | Binary | None:
    match node.op:
        case "/" if hits_over_queries(node):
            return node
        case op if op in COMPARISONS:  # a filter, or zeros and ones
            return None if node.boolean or op == "==" else share(node.left)
        case "and" | "unless":
            return share(node.left)
        case "or":
            return share(node.left) or share(node.right)
        case "+" | "-" | "*" | "/" if number(node.left) or number(node.right):
            return share(node.left) or share(node.right)
        case _:
            return None


def hits_over_queries(node: Binary) -> bool:
    """Tell a hit rate."""
    return node.op == "/" and flows(node.left) == {HITS} and flows(node.right) == {QUERIES}


def flows(node: Node) -> set[str]:
    """Return whether an expression's series count hits or queries, or something else."""
    return {_flow(selector.called()) for selector in selectors(node)}


def _flow(name: str) -> str:
    fields = {route.field.name for route in engine.routes(name)}
    return next((flow for flow in (HITS, QUERIES) if fields & FIELDS[flow] or OTHERS[flow].fullmatch(name)), "")


def since_start(node: Node) -> bool:
    """Tell whether these are counters as they stand, which count from the engine's start."""
    match node:
        case Selector():
            return node.name.endswith("_total") and not node.window
        case Call() if KEEPING.fullmatch(node.function.lower()):
            return since_start(subject(node))
        case Aggregation():
            return since_start(subject(node))
        case Binary() if node.op in COMPARISONS or number(node.left) or number(node.right):
            return since_start(node.right if number(node.left) else node.left)
        case _:
            return False


def unscaled(node: Node) -> Node:
    """Return an expression without the numbers that it is multiplied with or divided by, and without scalar()."""
    match node:
        case Binary() if node.op in {"*", "/"} and number(node.left) != number(node.right):
            return unscaled(node.right if number(node.left) else node.left)
        case Call() if node.function == "scalar":
            return unscaled(subject(node))
        case _:
            return node
