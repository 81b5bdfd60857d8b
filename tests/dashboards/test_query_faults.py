"""What the lint makes of queries: what is surely wrong is found, what is right is not accused."""

from typing import Any

import pytest

from dashboards.lint import lint, surroundings
from dashboards.query_faults import seconds

HITS, QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
HIT_RATE = f"sum(rate({HITS}[5m])) / sum(rate({QUERIES}[5m]))"
SUMMED = "sum() over *_perc, *_ratio, *_rate: {}; sum both parts, then divide"


def faults(expr: str, **panel: Any) -> list[str]:
    """Lint a dashboard of one panel and a variable `model`."""
    source = {"type": "prometheus", "uid": "apc-prometheus"}
    model = {"name": "model", "type": "query", "datasource": source, "includeAll": True, "allValue": ".*"} | {
        "query": "label_values(apc_engine_info, model_name)",
        "current": {"value": "$__all"},
        "refresh": 2,
    }
    made = {"id": 1, "type": "timeseries", "datasource": source, "targets": [{"expr": expr}]} | {
        "fieldConfig": {"defaults": {"unit": "short"}}
    }
    found = lint({"uid": "x", "templating": {"list": [model]}, "panels": [made | panel]}, surroundings())
    return [fault.removeprefix("panel 1: ") for fault in found]


@pytest.mark.parametrize("window", ["1m", " 1m ", "60", "60000ms", "119s", "0.5m", "1m:", "1m:10s"])
@pytest.mark.parametrize("series", ["a", "a{m=~'(x|y)[5m]'}", 'a{m="\\"("}', "a{m=`(`}", "a # (\n", '{"a.b"}'])
def test_short_windows(window: str, series: str) -> None:
    (fault,) = faults(f"sum by (x) (rate({series}[{window}] offset 1h @ end())) / 2")
    assert fault == f"{window.partition(':')[0].strip()} < 2 x 60s"


@pytest.mark.parametrize("name", ["$__interval", "${__interval}", "[[__interval]]", "$__interval_ms", " $__interval "])
def test_the_interval_in_a_rate(name: str) -> None:
    assert faults(f"increase(a[{name}])") == ["$__interval in rate; take $__rate_interval"]


@pytest.mark.parametrize(
    ("expr", "name"),
    [
        ("sum(apc_kv_usage_ratio)", "apc_kv_usage_ratio"),
        ("SUM(vllm:kv_cache_usage_perc)", "vllm:kv_cache_usage_perc"),
        ("Sum by (x) (vllm:kv_cache_usage_perc)", "vllm:kv_cache_usage_perc"),
        ("sum(100 * vllm:kv_cache_usage_perc{a='b'}) without (x)", "vllm:kv_cache_usage_perc"),
        ("topk(3, sum(max by (x) (avg_over_time(target:apc_hit:ratio_rate5m[1h]))))", "target:apc_hit:ratio_rate5m"),
        ("sum(1 - (a_percent > 0.5))", "a_percent"),
        ("sum(sglang:token_usage) / 2", "sglang:token_usage"),
        ('sum({__name__="vllm:gpu_cache_usage_perc"})', "vllm:gpu_cache_usage_perc"),
        (f"sum(rate({HITS}[5m]) / rate({QUERIES}[5m]))", "hits / queries"),
        (f"sum(sum by (x) (rate({HITS}[5m])) / (sum by (x) (rate({QUERIES}[5m])) > 0))", "hits / queries"),
        ("sum(engine:apc_hit_tokens:rate5m / engine:apc_lookup_tokens:rate5m)", "hits / queries"),
    ],
)
def test_summed_shares(expr: str, name: str) -> None:
    assert faults(expr) == [SUMMED.format(name)]


@pytest.mark.parametrize(
    ("expr", "fault"),
    [
        (f"avg(rate({HITS}[5m]) / rate({QUERIES}[5m]))", "avg() over hits / queries; sum both parts, then divide"),
        (f"rate({QUERIES}[5m]) / rate({HITS}[5m])", "queries / hits is upside down; take hits / queries"),
        ("sum(vllm:prompt_tokens_total) / sum(vllm:prompt_tokens_cached_total)", "queries / hits is upside down"),
        (f"sum({HITS}) / sum({QUERIES})", "hits / queries since the start; take rate() of both"),
        (f"100 * {HITS} / ({QUERIES} > 0)", "hits / queries since the start; take rate() of both"),
        (f"{HIT_RATE} or vector(0)", "or vector(0) makes a hit rate of 0 out of no traffic"),
        (f"rate(sum({HITS})[5m:])", "rate() over sum(); take the rate, then sum"),
        (f"rate({HITS})", "rate() needs a window"),
        (
            "histogram_quantile(0.9, sum(rate(vllm:time_to_first_token_seconds_bucket[5m])))",
            "histogram_quantile() over sum() without le",
        ),
        ("histogram_quantile(0.9, sum by (x) (rate(a_bucket[5m])))", "histogram_quantile() over sum() without le"),
        ("histogram_quantile(0.9, sum without (le) (a_bucket))", "histogram_quantile() over sum() without le"),
        ("rate(vllm:prefix_cache_hits[5m])", f"vllm:prefix_cache_hits exists as {HITS} alone"),
        ('sum({__name__=~".*prefix_cache_hits_total"})', ".*prefix_cache_hits_total is one thing under two names"),
        ('rate({__name__=~"vllm:(gpu_)?prefix_cache_hits_total"}[5m])', "one thing under two names"),
        ("apc_kv_usage", "apc_kv_usage is neither declared nor recorded"),
        ('apc_kv_usage_ratio{model_name="$model"}', "model used with = instead of =~"),
        ("apc_kv_usage_ratio{model_name = '${model:raw}'}", "model used with = instead of =~"),
        ("apc_kv_usage_ratio{model_name=`[[model]]`}", "model used with = instead of =~"),
        ('apc_kv_usage_ratio{model_name="$model:8000"}', "model used with = instead of =~"),
        ('apc_kv_usage_ratio{model_name!="$model"}', "model used with != instead of !~"),
        ('apc_kv_usage_ratio{model_name=~"$modell"}', "$modell is no variable here"),
        ("rate(up[5m]", "is no PromQL: , is missing at the end"),
    ],
)
def test_other_faults(expr: str, fault: str) -> None:
    (found,) = faults(expr)
    assert fault in found


@pytest.mark.parametrize(
    "expr",
    [
        HIT_RATE,
        f"max by (pod) (rate({HITS}[5m]) / rate({QUERIES}[5m]))",
        f"(sum(rate({HITS}[5m])) or vector(0)) / sum(rate({QUERIES}[5m]))",
        f"sum(increase({HITS}[1h])) / sum(increase({QUERIES}[1h]))",
        f"({HITS} - {HITS} offset 5m) / ({QUERIES} - {QUERIES} offset 5m)",
        "avg(apc_kv_usage_ratio)",
        "sum(apc_kv_usage_ratio * apc_engine_kv_blocks) / sum(apc_engine_kv_blocks)",
        "sum(apc_kv_usage_ratio > bool 0.9)",
        "100 * sum(apc_kv_usage_ratio) / count(apc_kv_usage_ratio)",
        "sum(apc_kv_usage_ratio) / scalar(count(apc_kv_usage_ratio))",
        "sum by (cache_usage_perc) (up)",
        'sum(rate(a_total{path="/x_rate"}[5m]))',
        "sum by (le) (rate(some_ratio_bucket[5m]))",
        "max_over_time(apc_kv_usage_ratio[15s])",
        "rate(a[$__rate_interval:])",
        "deriv(sum(vllm:num_requests_waiting)[10m:1m])",
        'count(apc_engine_info{version="apc_nothing"})',
        "max(rate(apc_preemptions_total[5m])) * max(apc_kv_usage_ratio)",
        "histogram_quantile(0.9, rate(a_bucket[5m]))",
        "histogram_quantile(0.9, sum(rate(a_seconds[5m])))",
        "histogram_quantile(0.9, sum(rate(a_bucket[5m])) by (le, x))",
        "histogram_quantile(0.9, sum by (${model:csv}) (rate(a_bucket[5m])))",
        'max({__name__=~"vllm:(gpu|kv)_cache_usage_perc"})',
        'label_replace(up, "a", "$1", "b", "(.*)") and up{a=~"b$|c"}',
        'label_replace(up, "a", "$first", "b", "(?P<first>.).*")',
        "apc_hit_${model}_total",
        "$model of something",
    ],
)
def test_sound_queries(expr: str) -> None:
    assert faults(expr) == []


def test_shares_that_the_panel_adds_up() -> None:
    stacked = {"defaults": {"unit": "percentunit", "custom": {"stacking": {"mode": "normal"}}}}
    by_rank = "max by (engine) (apc_kv_usage_ratio)"
    assert faults(by_rank, fieldConfig=stacked) == ["shares stacked upon each other; they do not add up"]
    assert faults("max(apc_kv_usage_ratio)", fieldConfig=stacked) == []
    assert faults("sum by (x) (apc_requests_running)", fieldConfig=stacked) == []
    assert faults(by_rank, options={"reduceOptions": {"calcs": ["sum"]}}) == ["shares summed over time"]


def test_a_ratio_since_the_start_may_be_what_the_panel_is_for() -> None:
    assert faults(f"{HITS} / {QUERIES}", title="Hit rate, lifetime") == []


def test_a_pattern_that_takes_for_ever_is_not_tried() -> None:
    for pattern in ("(.*)*(.*)*x", ".*" * 30 + "x"):
        assert faults(f'sum({{__name__=~"{pattern}"}})') == []


def test_seconds() -> None:
    assert [seconds(text) for text in ("90s", "1h30m", "5", "$__range", "")] == [90, 5400, 5, None, None]
