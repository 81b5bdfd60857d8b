"""The server speaks as vLLM does, counts as vLLM does, and its times are those of what it computes."""

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import openai
import pytest
import requests

from demo.engine import Engine, main, serving
from demo.rank import Settings
from exporter.engine import Dialect, Version
from exporter.parse import parse
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

MESSAGES: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hé"}]
PROMPT_TOKENS = len("<system\nBe brief.>\n" + "<user\nhé>\n" + "<assistant\n") + 1  # é has two bytes


@pytest.fixture
def engine() -> Iterator[Engine]:
    with serving(FAST) as engine:
        yield engine


@pytest.fixture
def client(engine: Engine) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": MESSAGES, "max_tokens": 5} | fields


# --- The protocol


def test_a_chat_answer(client: openai.OpenAI, engine: Engine) -> None:
    answer = client.chat.completions.create(model=engine.settings.model, messages=MESSAGES, max_completion_tokens=5)
    assert answer.choices[0].message.role == "assistant"
    assert len(answer.choices[0].message.content or "") == 5
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (PROMPT_TOKENS, 5)


def test_a_chat_stream(client: openai.OpenAI, engine: Engine) -> None:
    stream = client.chat.completions.create(
        model=engine.settings.model,
        messages=MESSAGES,
        max_tokens=5,
        stream=True,
        stream_options={"include_usage": True},
    )
    first, *deltas, last = list(stream)
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert [len(chunk.choices[0].delta.content or "") for chunk in deltas] == [1] * 5
    assert [chunk.choices[0].finish_reason for chunk in deltas] == [None] * 4 + ["length"]
    assert last.choices == []
    assert last.usage
    assert last.usage.prompt_tokens_details
    assert last.usage.prompt_tokens_details.cached_tokens == 0
    assert not any(chunk.usage for chunk in (first, *deltas))


def test_a_completion_stream_with_usage_in_each_chunk(engine: Engine) -> None:
    body = {"prompt": "abc", "max_tokens": 3, "stream": True}
    options = {"include_usage": True, "continuous_usage_stats": True}
    status, headers, text = post(engine, COMPLETIONS, body | {"stream_options": options})
    assert (status, headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    assert [event["usage"]["completion_tokens"] for event in events(text)] == [1, 2, 3, 3]
    assert {event["usage"]["prompt_tokens"] for event in events(text)} == {3}
    _, _, without = post(engine, COMPLETIONS, body)
    assert not any("usage" in event for event in events(without))


def test_an_answer_ends_where_its_sentence_does(engine: Engine) -> None:
    def reason(**fields: Any) -> tuple[str, int]:
        answer = json.loads(post(engine, CHAT, chat(max_tokens=200, **fields))[2])
        return answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"]

    (stopped, produced), (longer, more) = reason(), reason(min_tokens=100)
    assert (stopped, longer) == ("stop", "stop")
    assert produced < 100 < more < 200
    assert reason(ignore_eos=True) == ("length", 200)


@pytest.mark.parametrize(
    ("prompt", "count"),
    [("hé", 3), ("<|im_start|>a<|im_end|>", 3), ([1, 2, 3], 3), (["ab", "c"], 3), ([[1], [2, 3]], 3)],
)
def test_a_prompt_is_bytes_and_markers_or_token_ids(engine: Engine, prompt: Any, count: int) -> None:
    assert complete(engine, prompt)["usage"]["prompt_tokens"] == count


def test_content_in_parts_is_joined_by_lines(engine: Engine) -> None:
    parts = [{"type": "text", "text": "hé"}, {"type": "text", "text": "ho"}]
    both = [
        json.loads(post(engine, CHAT, {"messages": [{"role": "user", "content": content}]})[2])
        for content in (parts, "hé\nho")
    ]
    assert both[0]["usage"]["prompt_tokens"] == both[1]["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        (CHAT, chat(model="gpt-9"), 404, {"message": "The model `gpt-9` does not exist.", "param": "model"}),
        (CHAT, chat(max_tokens=8193), 400, {"type": "BadRequestError", "param": "max_tokens"}),
        (CHAT, chat(max_tokens=0), 400, {"param": "max_tokens"}),
        (CHAT, chat(messages=[]), 400, {"code": 400}),
        (COMPLETIONS, {"prompt": [1] * 8192}, 400, {"param": "max_tokens"}),
        (COMPLETIONS, {"prompt": [1] * 8193}, 400, {"param": "input_tokens"}),
        (COMPLETIONS, {"prompt": []}, 400, {"code": 400}),
        (COMPLETIONS, {"max_tokens": 4}, 400, {"code": 400}),
        (COMPLETIONS, [], 400, {"code": 400}),
    ],
)
def test_an_error_has_vllms_shape(engine: Engine, path: str, body: Any, status: int, told: dict[str, Any]) -> None:
    found, _, text = post(engine, path, body)
    error = json.loads(text)["error"]
    assert found == error["code"] == status
    assert error.keys() == {"message", "type", "param", "code"}
    assert told.items() <= error.items()


def test_an_answer_gets_the_room_that_the_prompt_leaves(engine: Engine) -> None:
    assert complete(engine, tokens(8190), max_tokens=100)["usage"]["completion_tokens"] == 2


def test_unknown_paths_and_methods(engine: Engine) -> None:
    assert fetch(engine, "/v1/v1/models")[::2] == (404, '{"detail":"Not Found"}')
    assert fetch(engine, CHAT)[::2] == (405, '{"detail":"Method Not Allowed"}')
    assert fetch(engine, COMPLETIONS, "{")[0] == 400


def test_a_key_guards_v1_and_nothing_else() -> None:
    with serving(replace(FAST, api_key="sk-demo")) as engine:
        assert fetch(engine, "/v1/models")[::2] == (401, '{"error":"Unauthorized"}')
        assert post(engine, CHAT, chat(), Authorization="Bearer sk-other")[0] == 401
        assert post(engine, CHAT, chat(), Authorization="Bearer sk-demo")[0] == 200
        assert [fetch(engine, path)[0] for path in ("/metrics", "/health", "/version")] == [200] * 3


def test_the_other_endpoints(engine: Engine) -> None:
    (model,) = json.loads(fetch(engine, "/v1/models")[2])["data"]
    assert (model["id"], model["max_model_len"]) == (engine.settings.model, 8192)
    assert json.loads(fetch(engine, "/version")[2]) == {"version": "0.32.0"}
    assert fetch(engine, "/health")[::2] == (200, "")
    status, headers, text = fetch(engine, "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=1.0.0; charset=utf-8")
    assert 'http_requests_total{handler="/v1/models",method="GET",status="2xx"} 1.0' in text


def test_a_connection_serves_one_request_after_the_other(engine: Engine) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", engine.port)
    for body in (chat(), chat(stream=True), chat(model="x"), chat()):
        connection.request("POST", CHAT, json.dumps(body))
        connection.getresponse().read()
        port = connection.sock and connection.sock.getsockname()[1]
        assert port == getattr(connection, "first_port", port)
        connection.first_port = port  # type: ignore[attr-defined]
    connection.close()


# --- The counters


def ten_shared(engine: Engine) -> None:
    for number in range(10):
        complete(engine, tokens(320) + [number] * 20)


@pytest.mark.parametrize(
    ("ask", "queries", "hits"),
    [
        (ten_shared, 3400, 2880),
        (lambda engine: complete(engine, tokens(340), n=4), 1360, 960),
        (lambda engine: complete(engine, [tokens(340)] * 3), 1020, 640),
        (lambda engine: [complete(engine, tokens(340), cache_salt=salt) for salt in "AAB"], 1020, 320),
        (lambda engine: complete(engine, tokens(340), prompt_logprobs=1), 0, 0),
        (lambda engine: complete(engine, tokens(340), echo=True, logprobs=1), 0, 0),
        (lambda engine: [complete(engine, tokens(321)) for _ in range(2)], 642, 320),
    ],
)
def test_lookups_are_counted_as_vllm_does(
    engine: Engine, ask: Callable[[Engine], object], queries: float, hits: float
) -> None:
    assert looked_up(engine, lambda: ask(engine)) == (queries, hits)
    counted = values(engine)
    assert counted["prompt"] == counted["local_compute"] + counted["local_cache_hit"]


def test_what_was_generated_is_found_again(engine: Engine) -> None:
    question = tokens(40)
    answer = complete(engine, question, max_tokens=100)["choices"][0]["text"]
    assert looked_up(engine, lambda: complete(engine, question + list(answer.encode()))) == (140, 128)


def test_a_chat_finds_its_own_history(engine: Engine) -> None:
    message = {"role": "user", "content": "q" * 100}
    first = json.loads(post(engine, CHAT, {"messages": [message], "max_tokens": 200})[2])
    history = [message, first["choices"][0]["message"], message]
    again = json.loads(post(engine, CHAT, {"messages": history, "max_tokens": 5})[2])
    known = first["usage"]["total_tokens"] - 1  # the last token is never computed
    assert cached(again) == known // 32 * 32


def test_a_reset_empties_the_cache_and_not_the_counters(engine: Engine) -> None:
    complete(engine, tokens(340))
    assert post(engine, "/reset_prefix_cache", None)[::2] == (200, '{"success":true}')
    assert looked_up(engine, lambda: complete(engine, tokens(340))) == (340, 0)
    assert values(engine)["queried"] == 680


def test_a_reset_fails_while_a_request_runs() -> None:
    body = {"prompt": "abc", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with (
        serving(replace(FAST, decode_ms=2)) as engine,
        requests.post(f"{engine.url}{COMPLETIONS}", json=body, stream=True, timeout=5) as response,
    ):
        lines = response.iter_lines()
        next(lines)
        assert post(engine, "/reset_prefix_cache", None)[2] == '{"success":false}'
        counted = values(engine)
        assert (counted["running"], counted["waiting"]) == (1, 0)
        assert 0 < counted["kv_usage"] < 0.1


def test_without_caching_nothing_is_looked_up() -> None:
    with serving(replace(FAST, prefix_caching=False)) as engine:
        answers = [complete(engine, tokens(340)) for _ in range(2)]
        counted = values(engine)
        assert [cached(answer) for answer in answers] == [0, 0]
        assert (counted["queried"], counted["hit"], counted["local_compute"]) == (0, 0, 680)


@pytest.mark.parametrize(
    ("dialect", "version", "flag", "details"),
    [
        (Dialect.VLLM_V1, (0, 32), True, [{"cached_tokens": 0}, {"cached_tokens": 320}]),
        (Dialect.VLLM_V1, (0, 20, 2), True, [None, {"cached_tokens": 320}]),
        (Dialect.VLLM_V1, (0, 32), False, [None, None]),
        (Dialect.VLLM_V0, (0, 8, 5), True, [None, None]),
    ],
)
def test_cached_tokens_are_told_as_the_version_and_the_flag_have_it(
    dialect: Dialect, version: Version, flag: bool, details: list[Any]
) -> None:
    settings = replace(FAST, dialect=dialect, version=version, prompt_tokens_details=flag)
    with serving(settings) as engine:
        assert [complete(engine, tokens(340))["usage"]["prompt_tokens_details"] for _ in range(2)] == details
        stream = {"prompt": tokens(20), "stream": True, "stream_options": {"include_usage": True}}
        usage = events(post(engine, COMPLETIONS, stream)[2])[-1]["usage"]
        assert ("prompt_tokens_details" in usage) == (details[0] is not None)


def test_evictions_and_residencies_are_seen() -> None:
    with serving(replace(FAST, blocks=13)) as engine:
        for start in (0, 80, 160):
            complete(engine, tokens(320, start))
        assert engine.ranks[0].cache.evictions == 9 + 10  # twelve blocks can be used; answers leave one unfilled
        counted = values(engine)
        assert counted["block_lifetime count"] == counted["block_idle count"] == 9 + 10 + 2


def test_preempted_requests_start_again_and_are_looked_up_once() -> None:
    with serving(replace(FAST, block_size=4, blocks=13, decode_ms=3)) as engine:
        answers: list[dict[str, Any]] = []
        threads = [
            threading.Thread(
                target=lambda start: answers.append(complete(engine, tokens(15, start), max_tokens=20)), args=(start,)
            )
            for start in (0, 99)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [answer["usage"]["completion_tokens"] for answer in answers] == [20, 20]
        counted = values(engine)
        assert counted["preemptions"] > 0
        assert counted["queried"] == 30
        assert (counted["kv_usage"], counted["running"]) == (0, 0)


def test_a_client_that_goes_away_frees_its_blocks_and_is_not_finished() -> None:
    body = {"prompt": "abc", "max_tokens": 8000, "ignore_eos": True, "stream": True}
    with serving(replace(FAST, decode_ms=1)) as engine:
        with requests.post(f"{engine.url}{COMPLETIONS}", json=body, stream=True, timeout=5) as response:
            next(response.iter_lines())
        assert eventually(lambda: values(engine)["running"] == 0)
        counted = values(engine)
        assert (counted["ttft count"], counted["queue count"], counted["kv_usage"]) == (1, 0, 0)


# --- Ranks and times


def test_ties_go_round_and_each_rank_has_a_cache_of_its_own() -> None:
    with serving(replace(FAST, ranks=2)) as engine:
        ten_shared(engine)
        hits = {s.labels.engine: s.value for s in parse(engine.metrics()) if s.route.field.name == "hit"}
        assert hits == {"0": 1280, "1": 1280}


def test_the_header_names_the_rank() -> None:
    with serving(replace(FAST, ranks=2)) as engine:
        assert [cached(complete(engine, tokens(340), rank=1)) for _ in range(4)] == [0, 320, 320, 320]
        assert cached(complete(engine, tokens(340), rank=0)) == 0
        assert post(engine, CHAT, chat(), X_data_parallel_rank="2")[0] == 400
        assert post(engine, CHAT, chat(), X_data_parallel_rank="none")[0] == 200


def test_the_first_token_takes_as_long_as_the_uncached_tokens() -> None:
    with serving(replace(FAST, base_ms=10, prefill_us_per_token=200)) as engine:
        complete(engine, tokens(340))
        cold = values(engine)["ttft sum"]
        complete(engine, tokens(340))
        warm = values(engine)["ttft sum"] - cold
        assert cold >= 0.078
        assert 0.014 <= warm < cold


def test_prefills_take_turns_and_the_others_queue() -> None:
    with serving(replace(FAST, base_ms=40)) as engine:
        threads = [threading.Thread(target=complete, args=(engine, tokens(20, start))) for start in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counted = values(engine)
        assert counted["queue count"] == 3
        assert counted["queue sum"] >= 0.1  # 0, 40 and 80 ms, less the threads' start
        assert 0.12 <= counted["prefill sum"] < counted["ttft sum"]


# --- The command line


def test_the_command_serves_until_it_is_told_to_end() -> None:
    command = [sys.executable, "-m", "demo.engine", "--port", "0", "--dialect", "v0", "--fault", "blocks=40"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        url = process.stdout.readline().split()[3].rstrip(",")
        assert requests.get(f"{url}/version", timeout=5).json() == {"version": "0.8.5"}
        assert requests.get(f"{url}/demo/faults", timeout=5).json()["active"] == {"blocks": 40}
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0


def test_a_port_that_is_taken_and_an_unknown_fault_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Settings()) as engine:
        assert main(["--port", str(engine.port)]) == 3
        assert "Address already in use" in capsys.readouterr().err
    assert main(["--port", "0", "--fault", "gremlins"]) == 3
    assert "no fault 'gremlins'" in capsys.readouterr().err
