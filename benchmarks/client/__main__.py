"""Tokens per CPU second of the load client and the load at which its times stay true, beside public clients."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from benchmarks.client.others import CLIENTS, Other
from benchmarks.client.runs import cost_of, errors_of, ours, scripted_server, truth_of

TRUE_WITHIN = 0.005
SCRIPT = "ttft=0.1,itl={itl},n={n}"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks client", description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 64, 128, 256])
    parser.add_argument("--rate", type=float, default=50.0, help="tokens per second of each stream")
    parser.add_argument("--tokens", type=int, default=150, help="tokens of each answer")
    parser.add_argument(
        "--beside",
        nargs="*",
        default=[],
        metavar="NAME=BIN_DIR",
        help=f"public clients and the bin directory they are installed in; known: {', '.join(CLIENTS)}",
    )
    parser.add_argument("--beside-streams", type=int, default=64)
    asked = parser.parse_args()
    print(f"machine: {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} at the start\n")
    _truth(asked)
    _cost(asked)


def _truth(asked: argparse.Namespace) -> None:
    print(f"Times against the server's own, {asked.rate:g} tok/s for each stream, {asked.tokens} tokens an answer")
    print("(speed: |measured / true - 1| of a stream; first: error of the time to the first token; token: noted after")
    print("it was written)\n")
    heads = (
        "streams",
        "tok/s",
        "speed p50",
        "speed p99",
        "first p50",
        "first p99",
        "token p99",
        "lag p99",
        "busy",
        "true",
    )
    print(" ".join(f"{h:>9s}" for h in heads))
    best = 0
    for streams in asked.streams:
        with scripted_server() as url:
            script = SCRIPT.format(itl=1 / asked.rate, n=asked.tokens)
            run = ours(url, script, streams, streams, asked.tokens)
            truth = truth_of(url)
        failed = [x.error for x in run.samples if x.error]
        if failed:
            print(f"{streams:9d} {len(failed)} requests failed: {failed[0]}")
            continue
        found, stats = errors_of(run, truth), run.stats
        good = found.rate_p99 <= TRUE_WITHIN
        best = max(best, streams) if good else best
        cells = (
            f"{streams}",
            f"{streams * asked.rate:.0f}",
            f"{found.rate_p50:.3%}",
            f"{found.rate_p99:.3%}",
            f"{found.first_p50_ms:.2f} ms",
            f"{found.first_p99_ms:.2f} ms",
            f"{found.token_p99_ms:.2f} ms",
            f"{stats.lag_p99_ms:.2f} ms",
            f"{stats.busy_share:.1%}",
            "yes" if good else "no",
        )
        print(" ".join(f"{c:>9s}" for c in cells))
    print(f"\nhighest load with 99 % of the streams true within {TRUE_WITHIN:.1%}: {best} streams\n")


def _cost(asked: argparse.Namespace) -> None:
    """Two runs of different length for each client: the difference leaves out what starting costs."""
    streams, tokens = asked.beside_streams, asked.tokens
    short, long = streams, 3 * streams
    print(
        f"CPU for streamed tokens, {streams} streams. The cost of a start is taken out by two runs ({short} and {long}"
    )
    print("answers); reading the answers afterwards is in it.\n")
    print(f"{'client':>12s} {'tokens per CPU second':>22s} {'start, CPU s':>13s} {'ratio':>7s}")
    script = SCRIPT.format(itl=1 / asked.rate, n=tokens)
    with scripted_server() as url:
        costs = [ours(url, script, streams, count, tokens).stats.cpu_s for count in (short, long)]
        mine = (long - short) * tokens / max(costs[1] - costs[0], 1e-9)
        print(f"{'ratchet':>12s} {mine:22,.0f} {'':>13s} {1:7.1f}")
        for given in asked.beside:
            name, _, place = given.partition("=")
            _beside(CLIENTS[name], Path(place), url, script, streams, (short, long), tokens, mine)


def _beside(
    client: Other, place: Path, url: str, script: str, streams: int, counts: tuple[int, int], tokens: int, mine: float
) -> None:
    costs = []
    for count in counts:
        truth_of(url)
        with tempfile.TemporaryDirectory() as room:
            cost = cost_of(client.command(place, url, script, streams, count, tokens, Path(room)), cwd=Path(room))
        served = sum(len(t["sent"]) for t in truth_of(url))
        if not cost.ok or not served:
            print(f"{client.name:>12s} did not run: {' '.join(cost.said.split())[-200:]}")
            return
        costs.append((served, cost.cpu_s))
    (few, cheap), (many, dear) = costs
    if many <= few or dear <= cheap:
        print(f"{client.name:>12s} two runs could not be told apart ({costs})")
        return
    rate = (many - few) / (dear - cheap)
    print(f"{client.name:>12s} {rate:22,.0f} {cheap - few / rate:13.1f} {rate / mine:7.2f}")


if __name__ == "__main__":
    main()
