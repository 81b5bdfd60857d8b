"""Which tests of the rules notice that a name is gone: an exported one that is renamed, or a recorded one.

All of promtool's tests take too long to be run again for each name. So of each test only those of its assertions are
played that the change can reach, with only the rules that they rest on: where that fails, the whole fails too.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

Json = dict[str, Any]
Piece = tuple[str, Json]  # the list that an assertion stands in, and itself
Passes = Callable[[Path], bool]  # whether promtool is content with a file of tests

NAME: Final = re.compile(
    r"(?<![\w:$])(?:(?:target|model|fleet|engine):apc_\w+:\w+|apc_\w+|up(?=\{)|ALERTS|prometheus_\w+_total)"
)
QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
ALERT: Final = re.compile(r'alertname="(\w+)"')
MINUTES: Final = {"h": 60.0, "m": 1.0, "s": 1 / 60}
ASSERTIONS: Final = ("promql_expr_test", "alert_rule_test")


def names(expression: str) -> set[str]:
    """Return the metrics in a PromQL expression."""
    return set(NAME.findall(QUOTED.sub('""', expression)))


@dataclass(frozen=True)
class Rule:
    """A rule and the group that it is of."""

    group: str
    source: Json

    @property
    def name(self) -> str:
        """What it records, or the alert."""
        return str(self.source.get("record") or self.source["alert"])

    @property
    def annotations(self) -> dict[str, str]:
        """The texts of an alert."""
        return dict(self.source.get("annotations", {}))

    @property
    def uses(self) -> set[str]:
        """The metrics of its expression."""
        return names(self.source["expr"])

    @property
    def reads(self) -> set[str]:
        """Those, and the ones that its annotations ask for."""
        return self.uses | {name for text in self.annotations.values() for name in NAME.findall(text)}

    def without(self, name: str) -> "Rule":
        """Return the rule recording another name than this, or else reading one that nobody has."""
        key = "record" if self.source.get("record") == name else "expr"
        changed = re.sub(rf"(?<![\w:]){re.escape(name)}(?![\w:])", f"{name}_gone", self.source[key])
        return Rule(self.group, {**self.source, key: changed})


def load(folder: Path) -> list[Rule]:
    """Return all rules, in the order of their evaluation."""
    files = [yaml.safe_load((folder / name).read_text(encoding="utf-8")) for name in ("recording.yml", "alerts.yml")]
    return [Rule(group["name"], rule) for content in files for group in content["groups"] for rule in group["rules"]]


def renamed(rules: list[Rule], name: str) -> list[Rule]:
    """Return the rules with a name taken away: where it is recorded, else from all that read it."""
    recorded = any(rule.source.get("record") == name for rule in rules)
    return [rule.without(name) if (rule.name == name if recorded else name in rule.uses) else rule for rule in rules]


def above(rules: list[Rule], wanted: Iterable[str]) -> set[str]:
    """Return these names and all that they rest on."""
    found = set(wanted)
    while more := {read for rule in rules if rule.name in found for read in rule.reads} - found:
        found |= more
    return found


def below(rules: list[Rule], wanted: Iterable[str]) -> set[str]:
    """Return these names and all that rest on them."""
    found = set(wanted)
    while more := {rule.name for rule in rules if rule.reads & found} - found:
        found |= more
    return found


@dataclass(frozen=True)
class Case:
    """One test of a file of promtool's, with the file's other settings."""

    file: Path
    frame: Json
    body: Json

    @property
    def steps(self) -> int:
        """How many evaluations it takes."""
        length = max(minutes(assertion["eval_time"]) for _, assertion in self.pieces())
        return round(length / minutes(self.frame["evaluation_interval"]))

    def pieces(self) -> Iterator[Piece]:
        """Yield its assertions."""
        for kind in ASSERTIONS:
            yield from ((kind, assertion) for assertion in self.body.get(kind, []))

    def about(self, reached: set[str]) -> list[Piece]:
        """Return its assertions about any of these names."""
        return [(kind, assertion) for kind, assertion in self.pieces() if about(kind, assertion) & reached]

    def write(self, folder: Path, rules: list[Rule], pieces: list[Piece]) -> Path:
        """Write a part of it, to be run with these rules."""
        folder.mkdir(parents=True)
        groups = {rule.group: [r.source for r in rules if r.group == rule.group] for rule in rules}
        content = {"groups": [{"name": name, "rules": sources} for name, sources in groups.items()]}
        # JSON is YAML, and is written many times as fast.
        (folder / "rules.yml").write_text(json.dumps(content), encoding="utf-8")
        body = {key: value for key, value in self.body.items() if key not in ASSERTIONS}
        body |= {kind: [assertion for of, assertion in pieces if of == kind] for kind in ASSERTIONS}
        path = folder / "test.yml"
        path.write_text(json.dumps({**self.frame, "rule_files": ["rules.yml"], "tests": [body]}), encoding="utf-8")
        return path


def load_cases(folder: Path) -> list[Case]:
    """Return the single tests of all files, the shortest first."""
    contents = {path: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yml"))}
    found = [Case(path, content, body) for path, content in contents.items() for body in content["tests"]]
    return sorted(found, key=lambda case: case.steps)


def about(kind: str, assertion: Json) -> set[str]:
    """Return the metrics and alerts that an assertion is about; none is named by one about all alerts alike."""
    if kind == "alert_rule_test":
        return {assertion["alertname"]}
    shown = " ".join([assertion["expr"], *(str(sample.get("labels", "")) for sample in assertion["exp_samples"])])
    return (names(assertion["expr"]) - {"ALERTS"}) | set(ALERT.findall(shown))


def minutes(duration: str) -> float:
    """Return the minutes of a duration such as 1h30m."""
    return sum(int(number) * MINUTES[unit] for number, unit in re.findall(r"(\d+)([hms])", duration))


def noticed(rules: list[Rule], changed: list[Rule], cases: list[Case], passes: Passes, folder: Path) -> bool:
    """Tell whether a test fails with the changed rules that passes with the others."""
    reached = below(rules, {rule.name for rule, other in zip(rules, changed, strict=True) if rule != other})
    for number, case in enumerate(cases):
        pieces = case.about(reached)
        needed = above(rules, {name for kind, assertion in pieces for name in about(kind, assertion)})
        kept = [index for index, rule in enumerate(rules) if rule.name in needed]
        if not pieces or passes(case.write(folder / f"{number}-changed", [changed[index] for index in kept], pieces)):
            continue
        whole = case.write(folder / f"{number}-whole", [rules[index] for index in kept], pieces)
        assert passes(whole), f"{case.file.name}: a part of {case.body.get('name')!r} fails with unchanged rules"
        return True
    return False
