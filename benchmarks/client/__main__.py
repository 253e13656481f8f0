"""Tokens per CPU second of the load client and the load at which its times stay true, beside public clients."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.client.others import CLIENTS, Other, Seen
from benchmarks.client.runs import OurRun, cost_of, distribution_errors, errors_of, ours, scripted_server, truth_of

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
    parser.add_argument("--beside-streams", type=int, nargs="+", default=[64, 256])
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
        with scripted_server(SCRIPT.format(itl=1 / asked.rate, n=asked.tokens)) as url:
            run = ours(url, streams, streams, asked.tokens)
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
    print(
        f"CPU for streamed tokens at {asked.rate:g} tok/s a stream. The cost of a start is taken out by two runs, the"
    )
    print("second with three times as many answers; reading the answers afterwards is in it. Times are those that each")
    print("client reports of its longer run, against the server's own (both sorted by size).\n")
    print(
        f"{'streams':>7s} {'client':>10s} {'tokens / CPU s':>15s} {'ratio':>6s} {'start CPU s':>12s}"
        f" {'speed p50':>10s} {'speed p99':>10s} {'first p50':>10s} {'true':>5s}"
    )
    for streams in asked.beside_streams:
        mine = _ours_beside(asked, streams)
        for given in asked.beside:
            name, _, place = given.partition("=")
            _beside(CLIENTS[name], Path(place), asked, streams, mine)


def _ours_beside(asked: argparse.Namespace, streams: int) -> float:
    """Print our own line and return our tokens per CPU second."""
    runs: list[tuple[OurRun, list[dict[str, Any]]]] = []
    with scripted_server(SCRIPT.format(itl=1 / asked.rate, n=asked.tokens)) as url:
        for count in (streams, 3 * streams):
            runs.append((ours(url, streams, count, asked.tokens), truth_of(url)))
    rate: float = 2 * streams * asked.tokens / max(runs[1][0].stats.cpu_s - runs[0][0].stats.cpu_s, 1e-9)
    longer, truth = runs[1]
    seen = [Seen(s.decode_tok_s, (s.first_token_s or 0.0) - s.start_s) for s in longer.samples]
    _line(streams, "ratchet", rate, 1.0, 0.0, distribution_errors(seen, truth))
    return rate


def _beside(client: Other, place: Path, asked: argparse.Namespace, streams: int, mine: float) -> None:
    costs = []
    for count in (streams, 3 * streams):
        with (
            scripted_server(SCRIPT.format(itl=1 / asked.rate, n=asked.tokens)) as url,
            tempfile.TemporaryDirectory() as folder,
        ):
            room = Path(folder)
            command = client.command(place, url, streams, count, asked.tokens, room)
            cost = cost_of(command, cwd=room, env=client.env)
            truth = truth_of(url)
            served = sum(len(t["sent"]) for t in truth)
            if not cost.ok or not served:
                print(f"{streams:7d} {client.name:>10s} did not run: {' '.join(cost.said.split())[-400:]}", flush=True)
                return
            costs.append((served, cost.cpu_s))
            seen = client.read(room)
    (few, cheap), (many, dear) = costs
    if many <= few or dear <= cheap:
        print(f"{streams:7d} {client.name:>10s} two runs could not be told apart ({costs})", flush=True)
        return
    rate = (many - few) / (dear - cheap)
    _line(streams, client.name, rate, mine / rate, cheap - few / rate, distribution_errors(seen, truth[-len(seen) :]))


def _line(
    streams: int, name: str, rate: float, ratio: float, start_s: float, errors: tuple[float, float, float]
) -> None:
    p50, p99, first = errors
    good = "yes" if p99 <= TRUE_WITHIN else "no"
    print(
        f"{streams:7d} {name:>10s} {rate:15,.0f} {ratio:6.1f} {start_s:12.1f} {p50:10.3%} {p99:10.3%} {first:7.2f} ms"
        f" {good:>5s}",
        flush=True,
    )


if __name__ == "__main__":
    main()
