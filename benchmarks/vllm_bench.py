"""`vllm bench serve` of the engine's own package, asked to measure a server."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from demo import vllm_cpu


class AbsentError(RuntimeError):
    """It is not installed, or did not run: why."""


def bench_serve(url: str, flags: tuple[str, ...] = (), **options: object) -> dict[str, Any]:
    """Let it measure, one request at a time, and return its result file: times of lists in seconds. Raises AbsentError.

    An option `num_prompts=5` is the flag `--num-prompts=5`.
    """
    home = vllm_cpu.default_home().absolute()
    python = home / "venv/bin/python"
    if not python.exists():
        raise AbsentError(f"not run: no vLLM in {home}")
    package, _, version = vllm_cpu.PACKAGE.partition("==")
    with tempfile.TemporaryDirectory() as folder:
        # The command asks for the version of `vllm`, and this package has another name.
        metadata = Path(folder) / f"vllm-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8")
        options = {
            "backend": "openai-chat",
            "base_url": url,
            "endpoint": "/v1/chat/completions",
            "model": "qwen2.5-7b-instruct",
            "tokenizer": home / "model",
            "max_concurrency": 1,
            "result_dir": folder,
            "result_filename": "result.json",
            **options,
        }
        argv = [str(python), "-P", "-m", "vllm.entrypoints.cli.main", "bench", "serve", *flags]
        argv += [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        argv += ["--ignore-eos", "--disable-tqdm", "--save-result"]
        environment = os.environ | vllm_cpu.SETTINGS | {"PYTHONPATH": folder}
        ran = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise AbsentError(f"{package} exited with {ran.returncode}: {ran.stderr.strip().splitlines()[-1:]}")
        result: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text(encoding="utf-8"))
    return result
