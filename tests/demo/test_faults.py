"""Each fault can be seen over HTTP while it is on, and the engine is well again once it is off."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
import requests

from demo.engine import Engine, serving
from demo.faults import FAULTS
from tests.demo.client import (
    CHAT,
    COMPLETIONS,
    FAST,
    cached,
    complete,
    events,
    eventually,
    fetch,
    looked_up,
    post,
    tokens,
    values,
)

STREAM = {"prompt": "abc", "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
Check = Callable[[Engine], object]


@pytest.fixture
def engine() -> Iterator[Engine]:
    with serving(FAST) as engine:
        yield engine


def switch(engine: Engine, **faults: object) -> dict[str, Any]:
    status, _, text = post(engine, "/demo/faults", faults)
    assert status == 200, text
    answer: dict[str, Any] = json.loads(text)
    return answer


def status_of(path: str, status: int, contained: str = "") -> Check:
    """Return the check that a path answers so, with a body if it is a completion."""

    def check(engine: Engine) -> None:
        body = json.dumps({"prompt": "abc"}) if path == COMPLETIONS else None
        found, _, text = fetch(engine, path, body)
        assert (found, contained in text) == (status, True), text

    return check


def all_of(*checks: Check) -> Check:
    return lambda engine: [check(engine) for check in checks]


def lookups(queries: float, hits: float) -> Check:
    """Return the check that a prompt of 340 tokens, sent twice, is counted so."""

    def check(engine: Engine) -> None:
        start = int(values(engine)["prompt"])  # another prompt for each check
        twice = looked_up(engine, lambda: [complete(engine, tokens(340, start)) for _ in range(2)])
        assert twice == (queries, hits)

    return check


def forgets(engine: Engine) -> None:
    hits = [cached(complete(engine, tokens(340, start))) for start in (30, 60, 30)]
    assert hits == [0, 0, 0]


def lacks(*fields: str) -> Check:
    def check(engine: Engine) -> None:
        status, _, text = fetch(engine, "/metrics")
        assert status == 200
        assert not {name.split()[0] for name in values(engine)} & set(fields)
        assert "python_info" in text

    return check


def usage(expected: Callable[[dict[str, Any]], bool]) -> Check:
    def check(engine: Engine) -> None:
        assert expected(complete(engine, "abc"))
        assert expected(events(post(engine, COMPLETIONS, STREAM)[2])[-1])

    return check


def takes(path: str, seconds: float) -> Check:
    def check(engine: Engine) -> None:
        start = time.monotonic()
        fetch(engine, path, json.dumps({"prompt": "abc"}) if path == COMPLETIONS else None)
        assert time.monotonic() - start >= seconds

    return check


def metrics_are(status: int, content_type: str, text: str) -> Check:
    def check(engine: Engine) -> None:
        found, headers, body = fetch(engine, "/metrics")
        assert (found, headers["Content-Type"].split(";")[0]) == (status, content_type)
        assert body.startswith(text) if text else body == ""

    return check


def redirects(engine: Engine) -> None:
    answer = requests.post(f"{engine.url}{CHAT}", json={}, timeout=5)
    assert [answer.status_code, *(earlier.status_code for earlier in answer.history)] == [200, 302]
    assert answer.headers["Content-Type"] == "text/html"


def breaks_off(engine: Engine) -> None:
    with openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0) as client:
        stream = client.completions.create(model=engine.settings.model, prompt="abc", max_tokens=9, stream=True)
        assert next(stream).choices[0].text
        with pytest.raises(openai.APIConnectionError):
            next(stream)


def comes_in_one_piece(engine: Engine) -> None:
    body = STREAM | {"max_tokens": 20, "ignore_eos": True}
    with requests.post(f"{engine.url}{COMPLETIONS}", json=body, stream=True, timeout=5) as answer:
        first = next(answer.iter_content(None))
    assert first.count(b"data: ") == 21


def waits(engine: Engine) -> None:
    outcome: list[str] = []

    def ask() -> None:
        try:
            outcome.append(post(engine, COMPLETIONS, {"prompt": "abc"})[2])
        except http.client.RemoteDisconnected:
            outcome.append("dropped")

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(0.1)
    assert outcome == []
    all_of(status_of("/health", 200), status_of("/metrics", 200))(engine)
    switch(engine, wedge=None)
    thread.join(5)
    assert outcome == ["dropped"]


CHECKS: dict[str, tuple[object, Check]] = {
    "wedge": (True, waits),
    "dead": (True, all_of(status_of("/health", 503), status_of(COMPLETIONS, 500, "EngineCore encountered an issue"))),
    "apc_off": (True, lookups(0, 0)),
    "blocks": (12, forgets),
    "block_size": (512, lookups(680, 0)),
    "spec_decode": (True, lookups(680, 288)),
    "lookup_skipped": (True, lookups(0, 0)),
    "null_details": (True, usage(lambda answer: answer["usage"]["prompt_tokens_details"] is None)),
    "no_usage": (True, usage(lambda answer: "usage" not in answer)),
    "buffered": (True, comes_in_one_piece),
    "truncated_stream": (True, breaks_off),
    "slow_first_token": (0.1, takes(COMPLETIONS, 0.1)),
    "error_in_200": (True, status_of(COMPLETIONS, 200, '"error":{')),
    "rate_limited": (True, status_of(COMPLETIONS, 429, '"code":429')),
    "server_error": (True, status_of(COMPLETIONS, 500, "InternalServerError")),
    "unauthorized": (True, all_of(status_of(COMPLETIONS, 401), status_of("/v1/models", 401, "Unauthorized"))),
    "not_found": (True, all_of(status_of(COMPLETIONS, 404), status_of("/v1/models", 404, "detail"))),
    "login_page": (True, redirects),
    "no_metrics": (True, lacks("queried", "hit", "prompt", "ttft", "cache_config")),
    "empty_metrics": (True, metrics_are(200, "text/plain", "")),
    "metrics_500": (True, metrics_are(500, "text/plain", "Internal Server Error")),
    "metrics_html": (True, metrics_are(200, "text/html", "<!doctype html>")),
    "slow_metrics": (0.1, takes("/metrics", 0.1)),
    "no_kv_metrics": (True, lacks("block_lifetime", "block_idle", "block_reuse_gap")),
    "rename": ("queried", lacks("queried")),
}


def holds(check: Check, engine: Engine) -> bool:
    try:
        check(engine)
    except (AssertionError, pytest.fail.Exception):
        return False
    return True


@pytest.mark.parametrize("name", CHECKS)
def test_a_fault_is_seen_while_it_is_on(engine: Engine, name: str) -> None:
    value, seen = CHECKS[name]
    assert not holds(seen, engine)
    assert switch(engine, **{name: value})["active"] == {name: value}
    seen(engine)
    assert switch(engine, **{name: None})["active"] == {}
    lookups(680, 320)(engine)
    assert cached(complete(engine, "abc")) == 0
    assert events(post(engine, COMPLETIONS, STREAM)[2])[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert [fetch(engine, path)[0] for path in ("/health", "/metrics", "/v1/models")] == [200] * 3


def test_every_fault_is_tested_and_explained(engine: Engine) -> None:
    assert FAULTS.keys() == CHECKS.keys() | {"restart"}
    assert switch(engine)["known"] == {name: meaning for name, (_, meaning) in FAULTS.items()}


def test_a_restart_refuses_connections_and_starts_from_nothing(engine: Engine) -> None:
    complete(engine, tokens(340))
    with requests.Session() as session:
        assert session.get(f"{engine.url}/health", timeout=5).status_code == 200
        started = values(engine)["start_time"]
        assert switch(engine, restart=0.2)["active"] == {}
        with pytest.raises(requests.ConnectionError):  # the connection that was kept is closed, too
            session.get(f"{engine.url}/health", timeout=5)
        refused = set()

        def back() -> bool:
            try:
                return fetch(engine, "/health")[0] == 200
            except OSError as error:
                refused.add(type(error))
                return False

        assert eventually(back)
    assert ConnectionRefusedError in refused
    counted = values(engine)
    assert counted["start_time"] > started
    assert counted["queried"] == 0
    assert cached(complete(engine, tokens(340))) == 0


def test_a_restart_cuts_streams_off(engine: Engine) -> None:
    switch(engine, slow_first_token=0.05)
    body = STREAM | {"max_tokens": 5}
    with requests.post(f"{engine.url}{COMPLETIONS}", json=body, stream=True, timeout=5) as answer:
        switch(engine, restart=0)
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            answer.content  # noqa: B018


def test_a_dead_engine_shows_its_last_figures(engine: Engine) -> None:
    complete(engine, tokens(340))
    before = fetch(engine, "/metrics")[2]
    switch(engine, dead=True)
    frozen = [fetch(engine, "/metrics")[2] for _ in range(2)]
    assert frozen[0] == frozen[1]
    assert frozen[0].split("# HELP vllm")[1:] == before.split("# HELP vllm")[1:]


def test_the_configuration_tells_what_a_fault_changed(engine: Engine) -> None:
    switch(engine, apc_off=True, block_size=64, blocks=50, spec_decode=True)
    text = fetch(engine, "/metrics")[2]
    assert 'block_size="64"' in text
    assert 'enable_prefix_caching="False"' in text
    assert 'num_gpu_blocks="50"' in text
    assert "spec_decode" in text


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"gremlins": True}, "no fault 'gremlins'; there are restart, wedge"),
        ({"blocks": True}, "blocks=True: the cache has VALUE blocks"),
        ({"blocks": 0}, "blocks=0"),
        ({"slow_metrics": -1}, "slow_metrics=-1"),
        ({"slow_metrics": "nan"}, "slow_metrics=nan"),
        ({"rename": "nothing"}, "rename=nothing"),
        ([1], ""),
    ],
)
def test_a_wrong_fault_is_refused_and_changes_nothing(engine: Engine, faults: Any, message: str) -> None:
    body = {"wedge": True} | faults if isinstance(faults, dict) else faults
    status, _, text = post(engine, "/demo/faults", body)
    assert status == 400
    assert message in json.loads(text)["error"]["message"]
    assert json.loads(fetch(engine, "/demo/faults")[2])["active"] == {}


def test_false_switches_off_and_several_are_set_at_once(engine: Engine) -> None:
    assert switch(engine, dead=True, no_usage=True, blocks=40)["active"] == {
        "dead": True,
        "no_usage": True,
        "blocks": 40,
    }
    assert switch(engine, dead=False, blocks=None)["active"] == {"no_usage": True}
