"""PromQL as a tree, with Grafana's variables, which may stand anywhere in it.

A library's parser refuses `[$__rate_interval]`, `sum by ($label)` and `${metric}_total`, so this one is our own: it
tells what a query does, not whether Prometheus would take it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

VARIABLE: Final = r"\$\{[^{}]*\}|\$\w+|\[\[\w+(?:[.:]\w+)*\]\]"
TOKEN: Final = re.compile(
    rf"""(?P<skipped>\s+|\#[^\n]*)
    |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
    |(?P<word>(?:[a-zA-Z_:]|{VARIABLE})(?:[\w:]|{VARIABLE})*)
    |(?P<range>\[(?:\[\[[^\[\]]*\]\]|[^\[\]])*\])
    |(?P<number>(?:\d|\.\d)(?:[eE][+-]\d|[\w.]|{VARIABLE})*)
    |(?P<mark>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){{}},@])""",
    re.VERBOSE | re.DOTALL,
)
STEP: Final = re.compile(r":(?![^{\[]*[}\]])")  # a colon, but not that of `${window:raw}`
STRENGTH: Final = (
    {"or": 1, "and": 2, "unless": 2}
    | dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), 3)
    | {"+": 4, "-": 4, "*": 5, "/": 5, "%": 5, "atan2": 5, "^": 6}
)
MATCHES: Final = frozenset({"=", "!=", "=~", "!~"})
MATCHING: Final = frozenset({"on", "ignoring", "group_left", "group_right", "fill", "fill_left", "fill_right"})
AGGREGATIONS: Final = frozenset(
    {"sum", "avg", "min", "max", "count", "group", "stddev", "stdvar", "topk", "bottomk", "quantile", "count_values"}
    | {"limitk", "limit_ratio"}
)
# So that neither reading nor walking a tree runs out of stack.
DEEPEST, MOST_OPERATORS = 60, 300


class NotPromQLError(ValueError):
    """What no Prometheus can read."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A number or a string."""

    text: str


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on a label."""

    label: str
    op: str
    value: str


@dataclass(frozen=True, slots=True)
class Selector:
    """Series by their name and labels; with a window, their samples within it."""

    name: str
    matchers: tuple[Matcher, ...] = ()
    window: str = ""

    def called(self) -> str:
        """Return the name, or what `__name__` is compared with."""
        return self.name or next((m.value for m in self.matchers if m.label == "__name__" and m.op[0] == "="), "")


@dataclass(frozen=True, slots=True)
class Subquery:
    """An expression at every step of a window."""

    expr: "Node"
    window: str
    step: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function and what it is given."""

    function: str
    args: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Many series made fewer; `grouping` is by, without or nothing."""

    op: str
    args: tuple["Node", ...]
    grouping: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Binary:
    """Two expressions and what stands between; `boolean` where a comparison gives 0 or 1."""

    op: str
    left: "Node"
    right: "Node"
    boolean: bool = False


Node = Literal | Selector | Subquery | Call | Aggregation | Binary


def parse(text: str) -> Node | None:
    """Return the tree of an expression; None where variables hide what it is; raises NotPromQLError."""
    tokens = _tokens(text)
    try:
        reader = _Reader(tokens)
        node = reader.expression()
        reader.end()
    except NotPromQLError:
        if any(kind == "word" and re.search(VARIABLE, token) for kind, token in tokens):
            return None
        raise
    return node


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all below it, from left to right."""
    ahead = [node]
    while ahead:
        node = ahead.pop()
        yield node
        ahead.extend(reversed(children(node)))


def children(node: Node) -> tuple[Node, ...]:
    """Return what a node is made of."""
    match node:
        case Binary():
            return (node.left, node.right)
        case Call() | Aggregation():
            return node.args
        case Subquery():
            return (node.expr,)
        case _:
            return ()


def selectors(node: Node) -> list[Selector]:
    """Return all series that an expression asks for."""
    return [found for found in walk(node) if isinstance(found, Selector)]


def _tokens(text: str) -> list[tuple[str, str]]:
    found, place = [], 0
    while place < len(text):
        token = TOKEN.match(text, place)
        if not token:
            raise NotPromQLError(f"{text[place : place + 20]!r} cannot be read")
        if token.lastgroup != "skipped":
            found.append((str(token.lastgroup), token[0]))
        place = token.end()
    return found


def _unquoted(token: str) -> str:
    if token[:1] == "`":
        return token[1:-1]
    return re.sub(r"\\(.)", r"\1", token[1:-1]) if token[:1] in {'"', "'"} else token


class _Reader:
    """Reads one expression from left to right."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens, self.place, self.depth, self.operators = [*tokens, ("end", "")], 0, 0, 0

    @property
    def kind(self) -> str:
        return self.tokens[self.place][0]

    @property
    def ahead(self) -> str:
        return self.tokens[self.place][1]

    def take(self, wanted: str = "") -> str:
        kind, token = self.tokens[self.place]
        if kind == "end" or (wanted and token != wanted):
            raise NotPromQLError(f"{wanted or 'more'} is missing{f' before {token!r}' if token else ' at the end'}")
        self.place += 1
        return token

    def end(self) -> None:
        if self.kind != "end":
            raise NotPromQLError(f"{self.ahead!r} is one too many")

    def expression(self, weakest: int = 1) -> Node:
        self.depth += 1
        if self.depth > DEEPEST or self.operators > MOST_OPERATORS:
            raise NotPromQLError("it is nested too deep or too long")
        left = self.signed()
        while (strength := STRENGTH.get(self.ahead.lower(), 0)) >= weakest:
            self.operators += 1
            op = self.take().lower()
            boolean = self.matching()
            left = Binary(op, left, self.expression(strength + (op != "^")), boolean)
        self.depth -= 1
        return left

    def signed(self) -> Node:
        if self.ahead in {"+", "-"}:
            self.take()
            return self.expression(STRENGTH["^"])
        return self.ranged(self.atom())

    def matching(self) -> bool:
        """Pass over how two sides are matched; tell whether there is a `bool`."""
        boolean = False
        while (word := self.ahead.lower()) in MATCHING or word == "bool":
            self.take()
            boolean |= word == "bool"
            if word != "bool" and self.ahead == "(":
                self.listed()
        return boolean

    def listed(self) -> tuple[str, ...]:
        """Return what stands in parentheses, word by word."""
        self.take("(")
        found = []
        while self.ahead != ")":
            found.append(_unquoted(self.take()))
        self.take(")")
        return tuple(word for word in found if word != ",")

    def ranged(self, node: Node) -> Node:
        """Read what may follow an atom: windows, and the moment it is taken at."""
        while True:
            word = self.ahead.lower()
            if self.kind == "range":
                window, *step = STEP.split(self.take()[1:-1], maxsplit=1)
                if isinstance(node, Selector) and not (node.window or step):
                    node = replace(node, window=window.strip())
                else:
                    node = Subquery(node, window.strip(), step[0].strip() if step else "")
            elif word in {"offset", "@"}:
                self.take()
                while self.ahead in {"+", "-"}:
                    self.take()
                if self.ahead != "(":
                    self.take()
                if self.ahead == "(":
                    self.listed()
            elif word in {"anchored", "smoothed"}:
                self.take()
            else:
                return node

    def atom(self) -> Node:
        if self.ahead == "(":
            self.take()
            node = self.expression()
            self.take(")")
            return node
        if self.ahead == "{":
            return self.selector("")
        if self.kind in {"number", "string"}:
            return Literal(_unquoted(self.take()))
        if self.kind != "word":
            raise NotPromQLError(f"something is missing {f'before {self.ahead!r}' if self.ahead else 'at the end'}")
        word = self.take()
        if self.ahead.lower() in {"by", "without"} or (word.lower() in AGGREGATIONS and self.ahead == "("):
            return self.aggregation(word.lower())
        if self.ahead == "(":
            return Call(word, self.arguments())
        return Literal(word) if word.lower() in {"inf", "nan"} else self.selector(word)

    def aggregation(self, op: str) -> Node:
        grouping, labels = self.grouping()
        args = self.arguments()
        if not grouping:
            grouping, labels = self.grouping()
        return Aggregation(op, args, grouping, labels)

    def grouping(self) -> tuple[str, tuple[str, ...]]:
        return (self.take().lower(), self.listed()) if self.ahead.lower() in {"by", "without"} else ("", ())

    def arguments(self) -> tuple[Node, ...]:
        self.take("(")
        found = []
        while self.ahead != ")":
            found.append(self.expression())
            if self.ahead != ")":
                self.take(",")
        self.take(")")
        return tuple(found)

    def selector(self, name: str) -> Selector:
        if self.ahead != "{":
            return Selector(name)
        self.take()
        matchers = []
        while self.ahead != "}":
            label = _unquoted(self.take())
            if self.ahead in MATCHES:
                matchers.append(Matcher(label, self.take(), _unquoted(self.take())))
            elif not re.search(VARIABLE, label):  # a name in quotes; a variable stands for matchers
                name = label
            if self.ahead != "}":
                self.take(",")
        self.take("}")
        return Selector(name, tuple(matchers))
