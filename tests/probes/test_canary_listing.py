"""Cycles against a server whose list of models fails, alone or with the rest of it."""

from contextlib import closing

import pytest

from probes.canary import Canary, Cycle
from probes.client import Endpoint
from probes.config import CanaryTarget
from probes.evidence import of_cycles
from probes.judge import judge
from probes.outcome import ErrorClass, Names
from tests.probes.replay import DONE, KEY, MODELS, ROLE, SILENCE, Answer, chunk, counted, replaying, streamed, whole
from tests.sockets import free_port

USAGE = counted(8, prompt_tokens=2003, prompt_tokens_details={"cached_tokens": 1984})
CHAT = streamed(ROLE, chunk({"content": "ok"}, "length"), chunk(usage=USAGE), DONE, spacing_ms=1)
LISTS = {
    ErrorClass.BASE_URL: whole({"status": 404, "body": '{"detail": "Not Found"}'}),
    ErrorClass.AUTH: whole({"status": 403, "body": '{"error": {"message": "listing is not allowed"}}'}),
    ErrorClass.RATE_LIMITED: whole({"status": 429, "body": ""}),
    ErrorClass.HTML_LOGIN: whole({"status": 200, "body": "<title>Sign in</title>"}),
    ErrorClass.SERVER_ERROR: whole({"status": 500, "body": ""}),
    ErrorClass.ERROR_IN_200: whole({"status": 200, "body": '{"models": []}'}),
    ErrorClass.TIMEOUT_FIRST_TOKEN: SILENCE,
}


def cycle_of(url: str, model: str) -> Cycle:
    target = CanaryTarget("t", Endpoint(url, KEY, model), Names(), None, 60.0, 10**9, 5.0, 0.5)
    with closing(Canary(target)) as canary:
        return canary.run()


@pytest.mark.parametrize("error_class", LISTS)
def test_a_model_that_is_set_needs_no_list(error_class: ErrorClass) -> None:
    with replaying(CHAT, models=LISTS[error_class]) as server:
        cycle = cycle_of(server.url, "demo-7b")
    assert (cycle.result, cycle.failure) == ("ok", None)
    assert cycle.listing
    assert cycle.listing.error_class is error_class
    assert [verdict.code for verdict in judge(of_cycles([cycle]))] == ["healthy"]


@pytest.mark.parametrize("error_class", [ErrorClass.BASE_URL, ErrorClass.AUTH, ErrorClass.TIMEOUT_FIRST_TOKEN])
def test_without_a_model_the_list_is_needed(error_class: ErrorClass) -> None:
    with replaying(CHAT, models=LISTS[error_class]) as server:
        cycle = cycle_of(server.url, "")
        assert server.chats == []
    assert cycle.result == "failed"
    assert cycle.failure
    assert cycle.failure.error_class is error_class


def test_a_server_that_is_not_there_is_asked_no_more() -> None:
    cycle = cycle_of(f"http://127.0.0.1:{free_port()}", "demo-7b")
    assert (cycle.result, cycle.sent, cycle.listing) == ("failed", (), None)
    assert cycle.failure
    assert cycle.failure.error_class is ErrorClass.CONNECTION_REFUSED


def test_a_list_that_comes_leaves_nothing_to_tell() -> None:
    with replaying(CHAT, models=MODELS) as server:
        assert cycle_of(server.url, "demo-7b").listing is None


def test_what_fails_with_the_list_is_told_by_the_request() -> None:
    refused = Answer(status=401)
    with replaying(refused, models=refused) as server:
        cycle = cycle_of(server.url, "demo-7b")
        assert len(server.chats) == 1
    assert cycle.failure
    assert cycle.failure.error_class is ErrorClass.AUTH
