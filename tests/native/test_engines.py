from native.engines import silent

EXPOSITION = """\
# TYPE apc_engine_up gauge
apc_engine_up{target="a"} 1.0
apc_engine_up{target="b"} 0.0
apc_engine_up{target="c"} 0.0
# TYPE apc_engine_scrape_error gauge
apc_engine_scrape_error{reason="refused",target="a"} 0.0
apc_engine_scrape_error{reason="refused",target="b"} 1.0
apc_engine_scrape_error{reason="timeout",target="b"} 0.0
"""


def test_engines_without_series_are_told_with_the_reason() -> None:
    assert silent(EXPOSITION) == {"b": "refused", "c": ""}
    assert silent("") == {}
