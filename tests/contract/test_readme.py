"""The README's tables are what the code declares; `make golden` rewrites them."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.config import SETTINGS
from exporter.metrics import FAMILIES
from exporter.scrape import Reason
from exporter.snapshot import Fault
from host.services import SERVICES
from host.settings import SETTINGS as DOCKER_SETTINGS
from native.settings import SETTINGS as STACK_SETTINGS
from probes.config import SETTINGS as PROBE_SETTINGS
from probes.metrics import FAMILIES as PROBE_FAMILIES
from probes.verdict import Code
from tests.inputs import NEWEST, TESTS

README = TESTS.parent / "README.md"


def code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def settings() -> str:
    rows = [
        f"| `{s.name}` | {f'`{s.default}`' if s.default else ''} | {s.meaning} |" for s in (*SETTINGS, *PROBE_SETTINGS)
    ]
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows])


def stack_settings() -> str:
    own = {setting.name for setting in (*SETTINGS, *PROBE_SETTINGS)}
    known = [(s.name, s.default, s.meaning) for s in (*STACK_SETTINGS, *DOCKER_SETTINGS) if s.name not in own]
    known += [(s.port.setting, str(s.port.default), f"{s.name}'s port") for s in SERVICES if s.port]
    rows = [f"| `{name}` | {f'`{default}`' if default else ''} | {meaning} |" for name, default, meaning in known]
    rows = [row for row in rows if row.split("`")[1] not in own]
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows])


def alerts() -> str:
    """Return a row for each alert, with the first sentence of its runbook."""
    groups = yaml.safe_load((TESTS.parent / "prometheus" / "rules" / "alerts.yml").read_text(encoding="utf-8"))[
        "groups"
    ]
    rows = []
    for rule in (rule for group in groups for rule in group["rules"]):
        path = f"prometheus/runbooks/{rule['alert']}.md"
        meaning = (TESTS.parent / path).read_text(encoding="utf-8").split("## Meaning\n\n")[1].split("\n\n")[0]
        first = re.split(r"(?<=[.?!])\s", meaning.replace("\n", " "))[0]
        rows.append(f"| [`{rule['alert']}`]({path}) | {rule['labels']['severity']} | {first} |")
    return "\n".join(["| alert | severity | when |", "| --- | --- | --- |", *rows])


def metrics(families: Iterable[Any]) -> str:
    rows = [
        f"| `{f.name}` | {f.kind.__name__.removesuffix('MetricFamily').lower()} | {code(f.labels)} | {f.help} |"
        for f in families
    ]
    return "\n".join(["| name | type | labels | meaning |", "| --- | --- | --- | --- |", *rows])


def exposition() -> str:
    shown = ("up", "prefix_caching_enabled", "queried_tokens", "hit_tokens", "prompt_tokens", "kv_usage", "evicted")
    text = (TESTS / "golden" / NEWEST.name).read_text(encoding="utf-8").replace('target="file"', 'target="vllm"')
    wanted = re.compile(rf"apc_(engine_)?({'|'.join(shown)})")
    return "```text\n" + "\n".join(line for line in text.splitlines() if wanted.match(line)) + "\n```"


SECTIONS: dict[str, Callable[[], str]] = {
    "exposition": exposition,
    "settings": settings,
    "stack": stack_settings,
    "alerts": alerts,
    "metrics": lambda: metrics(FAMILIES),
    "probe": lambda: metrics(PROBE_FAMILIES),
    "verdicts": lambda: code(Code),
    "reasons": lambda: code(Reason),
    "faults": lambda: code(Fault),
}


def test_generated_sections(golden: Callable[[Path, str], None]) -> None:
    text = README.read_text(encoding="utf-8")
    for name, make in SECTIONS.items():
        between = re.compile(rf"<!-- {name} -->.*?<!-- end -->", re.DOTALL)
        assert len(between.findall(text)) == 1, name
        start, end = between.search(text).span()  # type: ignore[union-attr]  # counted above
        text = f"{text[:start]}<!-- {name} -->\n{make()}\n<!-- end -->{text[end:]}"
    golden(README, text)


def test_every_command_of_the_readme_is_a_target_of_the_makefile() -> None:
    makefile = (TESTS.parent / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z][a-z-]+)", README.read_text(encoding="utf-8"))):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("path", ["Makefile"])
def test_each_recipe_has_at_most_two_lines(path: str) -> None:
    for rule in (TESTS.parent / path).read_text(encoding="utf-8").split("\n\n"):
        assert sum(line.startswith("\t") for line in rule.splitlines()) <= 2, rule
