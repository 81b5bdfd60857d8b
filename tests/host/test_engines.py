from pathlib import Path

import yaml

from host.engines import translate

TARGETS = """\
targets:
- {name: qwen, url: "http://localhost:8000", api_key_env: QWEN_KEY, metrics_url: "http://127.0.0.1:8001/metrics"}
- {name: llama, url: "https://gpu-2:8000", ca_file: CA, metrics_api_key_env: LLAMA_METRICS_KEY}
"""


def test_addresses_of_this_machine_become_those_of_a_container() -> None:
    found = translate(
        {
            "VLLM_URL": "http://localhost:8000",
            "VLLM_METRICS_URL": "http://gpu-1:9/metrics",
            "TAOTOKEN_BASE_URL": "http://127.0.0.1:7000/api",
        }
    )
    assert found.settings == {
        "VLLM_URL": "http://host.docker.internal:8000",
        "VLLM_METRICS_URL": "http://gpu-1:9/metrics",
        "TAOTOKEN_BASE_URL": "http://host.docker.internal:7000/api",
    }
    assert [said for said, _ in found.rewritten] == ["http://localhost:8000", "http://127.0.0.1:7000/api"]


def test_files_are_copied_and_named_as_a_container_sees_them(tmp_path: Path) -> None:
    authority, targets = tmp_path / "ca.pem", tmp_path / "targets.yml"
    authority.write_text("certificate")
    targets.write_text(TARGETS.replace("CA", str(authority), 1))
    found = translate({"VLLM_CA_FILE": str(authority), "APC_TARGETS": str(targets)})
    assert found.settings == {"VLLM_CA_FILE": "/etc/apc/ca.pem", "APC_TARGETS": "/etc/apc/targets.yml"}
    assert found.files.keys() == {"ca.pem", "ca-1.pem", "targets.yml"}
    assert found.files["ca-1.pem"] == b"certificate"
    qwen, llama = yaml.safe_load(found.files["targets.yml"])["targets"]
    assert qwen == {
        "name": "qwen",
        "url": "http://host.docker.internal:8000",
        "api_key_env": "QWEN_KEY",
        "metrics_url": "http://host.docker.internal:8001/metrics",
    }
    assert llama["ca_file"] == "/etc/apc/ca-1.pem"
    assert found.keys == ["QWEN_KEY", "LLAMA_METRICS_KEY"]
