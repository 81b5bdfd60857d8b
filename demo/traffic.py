"""Chat traffic like a support desk's: `python -m demo.traffic --base-url http://127.0.0.1:9000 [--poison timestamp]`.

All sessions share one long system prompt; each grows a conversation of its own and starts afresh when it gets long.
`--poison timestamp` puts the time at the head of that prompt, which is how prefix reuse is lost in practice.
"""

import argparse
import math
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import requests

SYSTEM_PROMPT = """You answer for the support desk of a telephone company. Be brief. Use these articles only.

1. Invoices are sent on the first working day of the month and fall due after fourteen days. A reminder costs nothing.
2. A router that blinks orange has lost its line. Pull the plug, wait ten seconds, give it three minutes to come back.
3. Contracts run for twelve months, then from month to month. Notice is given in writing, one month ahead.
4. A move to another address takes two weeks' notice. The number stays where the area code stays.
5. Passwords are reset in the customer area only. Nobody of this company ever asks for one.
6. A technician comes before noon or before five. Whoever is not at home finds a card with a number to call.
7. Speed is measured by cable with every other device off. Below nine tenths on two days the contract can be ended.
8. Returned devices go into the box that they came in. The label is in the customer area, the refund takes ten days.
9. Roaming within the Union costs what it costs at home. Elsewhere data is off until it is booked.
10. A fault of a whole district is on the status page within a quarter of an hour. Its tickets are joined to one.
11. Complaints go to the second line with the ticket's number, the customer's own words and what has been tried.
12. Discounts of new customers end after six months. Do not promise an extension: the retention desk decides on it.
13. A number is carried over from another company within one working day, once that company has let it go.
14. Customers over seventy and customers in hospital are called back, never asked to wait. Note it in the ticket.
15. A second contract at the same address shares the line of the first and gets a router of its own all the same.
16. Devices bought on instalments belong to the company until the last one is paid, whatever the contract says.
17. What is not in these articles goes to the second line. Say so, say when the answer comes, and do not guess.
"""
QUESTIONS = (
    "My router blinks orange. What now?",
    "When is my invoice due?",
    "How do I end my contract?",
    "I am moving house next month.",
    "Somebody asked for my password on the telephone.",
    "The technician did not come.",
    "My line is slower than you promised.",
    "Where do I send the old router?",
)
TURNS = 6  # of a conversation before the next begins
SUMMARY_SECONDS = 10.0
TIMEOUT_SECONDS = 60.0
PATIENCE_SECONDS = 2.0  # with answers that are awaited at the end
BACKOFF_SECONDS = (0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class Plan:
    """What to send; `rate` counts the requests of all sessions in a second, 0 as fast as answers come."""

    url: str
    model: str
    sessions: int = 4
    rate: float = 2.0
    poison: str = "none"
    max_tokens: int = 32
    seed: int = 0
    api_key: str | None = None


def questions(seed: int, session: int) -> Iterator[str]:
    """Yield what a session asks, the same for the same seed."""
    order = random.Random(f"{seed} {session}")  # noqa: S311 - to be repeatable
    while True:
        yield f"{order.choice(QUESTIONS)} (session {session})"


class Traffic:
    """The sessions of one plan, until `stop` is set."""

    def __init__(self, plan: Plan, stop: threading.Event) -> None:
        self.plan = plan
        self.counts: Counter[str] = Counter()
        self._stop = stop
        self._lock = threading.Lock()
        self._quiet = False  # the failure that goes on has been told

    def run(self, seconds: float) -> None:
        """Send for that long, or until stopped, with a line of summary now and then."""
        threads = [
            threading.Thread(target=self._converse, args=(number,), daemon=True) for number in range(self.plan.sessions)
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        while not self._stop.wait(max(0.0, min(SUMMARY_SECONDS, end - time.monotonic()))) and time.monotonic() < end:
            print(self.summary(), flush=True)
        self._stop.set()
        patience = time.monotonic() + PATIENCE_SECONDS
        for thread in threads:
            thread.join(max(0.0, patience - time.monotonic()))
        print(self.summary(), flush=True)

    def summary(self) -> str:
        """Return one line: requests, failures and, where the engine tells them, cached of prompt tokens."""
        with self._lock:
            asked, cached, prompt = (self.counts[name] for name in ("answered", "cached", "prompt"))
            return f"demo.traffic: {asked} answered, {self.counts['failed']} failed, {cached} of {prompt} tokens cached"

    def _converse(self, number: int) -> None:
        interval = self.plan.sessions / self.plan.rate if self.plan.rate else 0.0
        due = time.monotonic() + interval * number / self.plan.sessions
        asked = questions(self.plan.seed, number)
        history: list[dict[str, str]] = []
        failures = 0
        with requests.Session() as http:
            http.trust_env = False  # no proxy, no .netrc
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                due = max(due + interval, time.monotonic())
                if len(history) >= 2 * TURNS:
                    history = []
                question = {"role": "user", "content": next(asked)}
                try:
                    answer = self._ask(http, [*history, question])
                except (requests.RequestException, LookupError, TypeError, ValueError) as error:
                    self._failed(error)
                    due = time.monotonic() + BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)]
                    failures += 1
                else:
                    failures = 0
                    history += [question, {"role": "assistant", "content": answer}]

    def _ask(self, http: requests.Session, messages: list[dict[str, str]]) -> str:
        head = f"Current time: {time.time():.6f}\n" if self.plan.poison == "timestamp" else ""
        body = {
            "model": self.plan.model,
            "messages": [{"role": "system", "content": head + SYSTEM_PROMPT}, *messages],
            "max_tokens": self.plan.max_tokens,
        }
        headers = {"Authorization": f"Bearer {self.plan.api_key}"} if self.plan.api_key else {}
        url = f"{self.plan.url}/v1/chat/completions"
        response = http.post(url, json=body, headers=headers, timeout=TIMEOUT_SECONDS)
        response.raise_for_status()
        answer = response.json()
        usage = answer.get("usage") or {}
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        with self._lock:
            self.counts.update(answered=1, prompt=usage.get("prompt_tokens", 0), cached=cached)
            self._quiet = False
        return str(answer["choices"][0]["message"]["content"])

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self.counts["failed"] += 1
            if not self._quiet:
                print(f"demo.traffic: {type(error).__name__}: {str(error)[:160]}; trying again", flush=True)
            self._quiet = True


def main(argv: Sequence[str]) -> int:
    """Send until the time is over, SIGTERM or SIGINT; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m demo.traffic", description="Chat traffic for an engine.")
    parser.add_argument("--base-url", default="http://127.0.0.1:9000", help="with or without /v1")
    parser.add_argument("--model", default="qwen2.5-7b-instruct")
    parser.add_argument("--rate", type=float, default=2.0, help="requests/s of all sessions, 0 for no limit")
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--poison", choices=("none", "timestamp"), default="none")
    parser.add_argument("--seconds", type=float, default=math.inf, help="for ever if not given")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    url = options.base_url.rstrip("/").removesuffix("/v1")
    plan = Plan(
        url=url,
        model=options.model,
        sessions=options.sessions,
        rate=options.rate,
        poison=options.poison,
        max_tokens=options.max_tokens,
        seed=options.seed,
        api_key=os.environ.get("VLLM_API_KEY"),
    )
    Traffic(plan, stop).run(options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
