from native import demo
from tests.sockets import free_port, reply, serving

SERIES = '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1.5,"0.873"]}]}}'
NOTHING = '{"status":"success","data":{"resultType":"vector","result":[]}}'


def test_the_demo_is_about_its_own_engine_and_lives_in_its_own_folder() -> None:
    user = {"VLLM_URL": "http://gpu", "VLLM_API_KEY": "k", "APC_TARGETS": "t.yml", "APC_RUN_DIR": "/r", "HOME": "/h"}
    gateway = {"GATEWAY_BASE_URL": "http://gw", "TAOTOKEN_API_KEY": "t"}
    assert demo.environment(user | gateway) == {
        "VLLM_URL": "http://127.0.0.1:9395",
        "APC_CANARY_INTERVAL": "10",
        "APC_CANARY_TOKENS_PER_MINUTE": "60000",
        "APC_SCRAPE_INTERVAL": "2s",
        "APC_RUN_DIR": "/r/demo",
        "HOME": "/h",
    }


def test_the_users_port_and_interval_are_kept() -> None:
    told = demo.environment({"DEMO_PORT": "7000", "APC_SCRAPE_INTERVAL": "5s"})
    assert told["VLLM_URL"] == "http://127.0.0.1:7000"
    assert told["APC_SCRAPE_INTERVAL"] == "5s"


def test_no_series_is_no_value() -> None:
    assert demo.first_value(SERIES) == 0.873
    assert demo.first_value(NOTHING) is None


def test_no_answer_is_no_value_either() -> None:
    assert demo.answer(f"http://127.0.0.1:{free_port()}/") is None
    for body, status in ("Service Unavailable", "503 Service Unavailable"), ('{"status":"error"}', "422 Unprocessable"):
        with serving(reply(body, status)) as prometheus:
            assert demo.answer(prometheus.url) is None
    with serving(reply(SERIES)) as prometheus:
        assert demo.answer(prometheus.url) == 0.873
