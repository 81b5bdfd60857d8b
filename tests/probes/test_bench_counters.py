"""Readings of the engine's counters -> the windows of a bench's stages."""

from exporter.read import read
from exporter.scrape import Scrape
from probes.bench.counters import Mean, windows
from probes.bench.run import Reading
from probes.bench.servers import Sample


def scrape(prompt: int, hits: int, requests: int, ttft: float) -> Scrape:
    """Return what an engine says that has served so much; `ttft` is the sum in seconds."""
    own = '{engine="0",model_name="m"}'
    counters = {
        "prefix_cache_queries_total": prompt,
        "prefix_cache_hits_total": hits,
        "prompt_tokens_total": prompt,
        "time_to_first_token_seconds_sum": ttft,
        "time_to_first_token_seconds_count": requests,
    }
    lines = [f"vllm:{name}{own} {value}" for name, value in counters.items()]
    lines.append(f'vllm:time_to_first_token_seconds_bucket{{engine="0",model_name="m",le="+Inf"}} {requests}')
    return Scrape("vllm", 0.0, read("\n".join([*lines, ""]).encode()))


def sent(prompt: int, cached: int) -> Sample:
    return Sample("article", "on", "warm", 1, 0, 0.1, 0.2, 0.0, prompt, 8, cached)


FIRST = Reading("article", "on", scrape(0, 0, 0, 0.0), scrape(100, 20, 1, 0.3), (sent(100, 20),), 0.25)
SECOND = Reading("article", "on", scrape(150, 20, 2, 1.0), scrape(450, 260, 5, 1.3), (sent(100, 80),) * 3, 0.5)
UNREAD = Reading("article", "on", scrape(450, 260, 5, 1.3), None, (sent(7, 0),))


def test_a_stage_in_pieces_is_summed_up() -> None:
    (found,) = windows([FIRST, SECOND])
    assert (found.requests, found.sent_requests, found.prompt, found.hits) == (4, 4, 400, 260)
    assert (found.usage_cached, found.hit_ratio, found.peak_kv_usage) == (260, 0.65, 0.5)
    assert found.ttft
    assert found.ttft.n == 4
    assert round(found.ttft.value, 6) == 0.15


def test_stages_and_servers_stay_apart() -> None:
    other = Reading("article", "off", FIRST.before, FIRST.after, FIRST.samples)
    assert [(one.arms, one.requests) for one in windows([FIRST, other, SECOND])] == [("on", 4), ("off", 1)]
    (alone,) = windows([FIRST])
    assert alone.ttft == Mean(0.3, 1)


def test_a_piece_that_was_not_read_is_left_out() -> None:
    (found,) = windows([FIRST, UNREAD])
    assert (found.sent_requests, found.prompt, found.state) == (1, 100, "hitting")
    (found,) = windows([UNREAD])
    assert (found.sent_requests, found.state) == (1, "not read")


def test_other_traffic_in_one_piece_is_told() -> None:
    (found,) = windows([FIRST, Reading("article", "on", FIRST.before, SECOND.after, FIRST.samples)])
    assert found.other_traffic == "the engine counted 5 requests, 1 of them the bench's"
