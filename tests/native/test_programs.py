from collections.abc import Mapping
from pathlib import Path

import pytest

from native import settings, tools
from native.programs import ENGINES, STACK, TRAFFIC, Program, Service, ports, resolve
from prometheus import receivers

ALL = (*STACK, *ENGINES.values(), TRAFFIC)
TOOLS = {binary: (f"/tools/{binary}",) for tool in tools.TOOLS.values() for binary in tool.binaries}


def service(program: Program, environ: Mapping[str, str] | None = None) -> Service:
    return resolve(program, settings.read(environ or {}, dict.fromkeys(ports(ALL))), TOOLS)


def test_names_and_default_ports_are_distinct_and_away_from_the_well_known_ones() -> None:
    stack = (*STACK, ENGINES["simulated"], TRAFFIC)
    numbers = [port.default for port in ports(stack)]
    assert len({program.name for program in stack}) == len(stack)
    assert len(set(numbers)) == len(numbers)
    assert not {3000, 8000, 9090} & set(numbers)


@pytest.mark.parametrize("program", ALL, ids=lambda program: " ".join((program.name, *program.argv[-1:])))
def test_every_entry_can_be_filled_in(program: Program) -> None:
    filled = service(program)
    assert not any("{" in text for text in (*filled.argv, *filled.check, filled.host, filled.url, filled.health_url))
    assert bool(filled.port) == bool(filled.setting)
    assert not program.tool or program.tool in tools.TOOLS


def test_all_listen_on_loopback_unless_told_otherwise() -> None:
    assert {service(program).host for program in ALL} == {"127.0.0.1"}


def test_every_setting_of_the_stack_reaches_a_program_or_the_rendering() -> None:
    templates = " ".join(text for p in ALL for text in (p.host, *p.argv, *p.reads, *p.environment.values()))
    known = {setting.name for setting in settings.SETTINGS} | {port.setting for port in ports(ALL)}
    rendered = {"APC_ENV_FILE", "APC_RUN_DIR", "APC_SCRAPE_INTERVAL"} | {setting.name for setting in receivers.SETTINGS}
    assert {name for name in known if f"{{{name}}}" not in templates} == rendered


@pytest.mark.parametrize(
    ("host", "address"),
    [("0.0.0.0", "127.0.0.1:9391"), ("::", "[::1]:9391"), ("::1", "[::1]:9391"), ("10.1.2.3", "10.1.2.3:9391")],
)
def test_an_address_to_listen_on_becomes_one_to_reach(host: str, address: str) -> None:
    exporter = service(STACK[0], {"APC_EXPORTER_HOST": host})
    assert exporter.address == address
    assert exporter.health_url == f"http://{address}/-/healthy"


def test_a_tool_brings_the_beginning_of_its_argv() -> None:
    told = {"prometheus": ("/p", "--web.local-assets=/w"), "promtool": ("/t",)}
    program = next(program for program in STACK if program.name == "prometheus")
    prometheus = resolve(program, settings.read({"APC_RUN_DIR": "/r"}, ports(STACK)), told)
    assert prometheus.argv[:3] == ("/p", "--web.local-assets=/w", "--config.file=/r/prometheus/prometheus.yml")
    assert prometheus.check[0] == "/t"


def test_files_that_a_setting_names_are_watched_only_where_it_is_set() -> None:
    assert service(STACK[0]).reads == (settings.ROOT / "exporter",)
    assert service(STACK[0], {"APC_TARGETS": "/t.yml"}).reads[1:] == (Path("/t.yml"),)
