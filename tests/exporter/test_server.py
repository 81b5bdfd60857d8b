"""The exporter over HTTP: formats for each Prometheus, limits, and isolation of apps in one process."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

from exporter.__main__ import main
from exporter.collector import Collector
from exporter.config import Settings, Target
from exporter.server import address, application, serve
from tests.inputs import CASES, NEWEST
from tests.sockets import free_port, reply, serving

ACCEPTS = json.loads((CASES / "31-prometheus3-content-type/accept.json").read_text(encoding="utf-8"))
PROMETHEUS_2 = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@contextmanager
def exporter(url: str, timeout: float = 2.0) -> Iterator[str]:
    """Run the exporter on a free port."""
    collector = Collector(Settings((Target("t", url, f"{url}/metrics"),), "127.0.0.1", 0, timeout, 2**20))
    server = serve("127.0.0.1", 0, application(collector.collect))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        collector.close()


def get(url: str, **headers: str) -> tuple[int, str, str]:
    """Return status, content type and body."""
    request = urllib.request.Request(url, headers={name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


@pytest.mark.parametrize("accept", ACCEPTS, ids=lambda case: str(case["accept"]))
@pytest.mark.parametrize("up", [True, False])
def test_content_type_per_accept(accept: dict[str, str], *, up: bool) -> None:
    answer = reply(NEWEST.read_bytes()) if up else reply(status="500 No")
    headers = {"Accept": accept["accept"]} if accept["accept"] else {}
    with serving(answer) as engine, exporter(engine.url) as url:
        status, content_type, body = get(f"{url}/metrics", **headers)
    assert status == 200
    assert content_type.startswith(tuple(accept["must_start_with"]))
    assert "charset=utf-8" in content_type
    assert f'apc_engine_up{{target="t"}} {float(up)}' in body


@pytest.mark.parametrize(
    ("accept", "parser"), [(PROMETHEUS_2, openmetrics), (PROMETHEUS_3, openmetrics), ("", classic)]
)
def test_each_format_says_the_same(accept: str, parser: Any) -> None:
    with serving(reply(NEWEST.read_bytes())) as engine, exporter(engine.url) as url:
        _, _, body = get(f"{url}/metrics", Accept=accept)
    samples = {s.name: s.value for family in parser(body) for s in family.samples if s.labels.get("tier") == "device"}
    assert samples == {"apc_queried_tokens_total": 6800, "apc_hit_tokens_total": 2880}


def test_prometheus_own_limit_bounds_the_scrape() -> None:
    def never(_: object, __: str) -> None:
        engine.closing.wait(10)

    with serving(never) as engine, exporter(engine.url, timeout=60) as url:
        _, _, body = get(f"{url}/metrics", X_Prometheus_Scrape_Timeout_Seconds="0.4")
    assert 'apc_engine_scrape_error{reason="timeout",target="t"} 1.0' in body


@pytest.mark.parametrize("stated", ["nan", "-1", "0", "x", ""])
def test_a_strange_limit_is_none(stated: str) -> None:
    with serving(reply(NEWEST.read_bytes())) as engine, exporter(engine.url) as url:
        _, _, body = get(f"{url}/metrics", X_Prometheus_Scrape_Timeout_Seconds=stated)
    assert 'apc_engine_up{target="t"} 1.0' in body


def test_other_pages() -> None:
    with exporter(f"http://127.0.0.1:{free_port()}") as url:
        assert get(f"{url}/-/healthy")[::2] == (200, "ok\n")
        assert get(f"{url}/")[0] == 200
        assert get(f"{url}/metrics/")[0] == 200
        assert get(f"{url}/favicon.ico")[0] == 404
        posted = urllib.request.Request(f"{url}/metrics", method="POST", data=b"x")
        with pytest.raises(urllib.error.HTTPError, match="405"):
            urllib.request.urlopen(posted, timeout=10)


def test_a_fault_of_our_own_is_a_500_in_plain_text() -> None:
    def fails(timeout: float | None) -> list[object]:
        raise RuntimeError(timeout)

    server = serve("127.0.0.1", 0, application(fails))  # type: ignore[arg-type]
    Thread(target=server.serve_forever, daemon=True).start()
    status, content_type, body = get(f"http://127.0.0.1:{server.server_port}/metrics")
    server.shutdown()
    server.server_close()
    assert (status, content_type) == (500, "text/plain; charset=utf-8")
    assert "Traceback" not in body


def test_the_metrics_are_there_over_ipv6() -> None:
    try:
        server = serve("::1", 0, application(lambda _: ()))
    except OSError:
        pytest.skip("this machine has no IPv6")
    Thread(target=server.serve_forever, daemon=True).start()
    assert get(f"http://{address('::1', server.server_port)}/-/healthy")[::2] == (200, "ok\n")
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("engine.invalid", "APC_EXPORTER_HOST: cannot listen on engine.invalid:{}: "),
        ("192.0.2.1", "APC_EXPORTER_HOST: cannot listen on 192.0.2.1:{}: "),
        ("::ffff", "APC_EXPORTER_HOST: cannot listen on [::ffff]:{}: "),
        ("127.0.0.1", "APC_EXPORTER_PORT: cannot listen on 127.0.0.1:{}: "),
    ],
)
def test_what_cannot_be_listened_on_names_the_setting_to_change(
    host: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(reply()) as taken:
        port = taken.url.rpartition(":")[2]
        monkeypatch.setenv("APC_EXPORTER_HOST", host)
        monkeypatch.setenv("APC_EXPORTER_PORT", port)
        assert main([]) == 3
    assert capsys.readouterr().err.startswith(told.format(port))


def test_two_apps_in_one_process_share_nothing() -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    with serving(reply(NEWEST.read_bytes())) as engine, exporter(engine.url) as one, exporter(dead) as other:
        up = [line for url in (one, other) for line in get(f"{url}/metrics")[2].splitlines() if "engine_up{" in line]
    assert up == ['apc_engine_up{target="t"} 1.0', 'apc_engine_up{target="t"} 0.0']
