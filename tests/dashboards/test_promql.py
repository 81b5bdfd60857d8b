"""The reader of PromQL: what binds how, and where variables may stand."""

import pytest

from dashboards.promql import Aggregation, Binary, Call, Literal, Matcher, NotPromQLError, Selector, Subquery, parse

A, B, C = Selector("a"), Selector("b"), Selector("c")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a + b * c", Binary("+", A, Binary("*", B, C))),
        ("(a + b) * c", Binary("*", Binary("+", A, B), C)),
        ("a - b - c", Binary("-", Binary("-", A, B), C)),
        ("a ^ b ^ c", Binary("^", A, Binary("^", B, C))),
        ("a or b AND c", Binary("or", A, Binary("and", B, C))),
        ("-a > bool 1e-3", Binary(">", A, Literal("1e-3"), boolean=True)),
        ("a / on (x) group_left (y) b", Binary("/", A, B)),
        ("a offset -5m @ end() / b @ 1609746000", Binary("/", A, B)),
        ("sum(a) by (x, y)", Aggregation("sum", (A,), "by", ("x", "y"))),
        ("TOPK without (x) ($k, a)", Aggregation("topk", (Selector("$k"), A), "without", ("x",))),
        ("$agg by ($x) (a)", Aggregation("$agg", (A,), "by", ("$x",))),
        ("rate(a[5m])", Call("rate", (Selector("a", window="5m"),))),
        ("rate(a[[[window]]])", Call("rate", (Selector("a", window="[[window]]"),))),
        ("(a)[1h:${step:raw}]", Subquery(A, "1h", "${step:raw}")),
        ("a[${w:raw}:]", Subquery(A, "${w:raw}", "")),
        ("a{$filters, x=~'it\\'s', y!=`\\d`,}", Selector("a", (Matcher("x", "=~", "it's"), Matcher("y", "!=", "\\d")))),
        ('{"a.b", x="y"} # all', Selector("a.b", (Matcher("x", "=", "y"),))),
        ("${prefix}:a_$kind", Selector("${prefix}:a_$kind")),
        ("a $operator b", None),
    ],
)
def test_trees(text: str, tree: object) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("sum(a", ", is missing at the end"),
        ("a b", "'b' is one too many"),
        ("a +", "something is missing at the end"),
        ("a{x==~'y'}", """"~'y'}" cannot be read"""),
        ("a; b", "'; b' cannot be read"),
        ("(" * 2000, "it is nested too deep or too long"),
        (" + ".join("a" * 2000), "it is nested too deep or too long"),
    ],
)
def test_what_is_none(text: str, fault: str) -> None:
    with pytest.raises(NotPromQLError) as error:
        parse(text)
    assert str(error.value) == fault
