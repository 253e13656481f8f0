"""`ratchet window`: overnight windows of a running service."""

from __future__ import annotations

import click

from api.answers import OpeningOut, WindowOut, WindowRunOut
from api.cli.output import print_json, say, tell_removed
from api.cli.remote import api_options, connect, json_format_option, json_option
from api.cli.tables import print_table


@click.group()
def window() -> None:
    """Overnight windows: when studies may run."""


@window.command()
@click.argument("name")
@click.option("--start", "start_cron", required=True, help="Cron on the zone's clock: '0 22 * * 1-5'.")
@click.option("--timezone", default="UTC", show_default=True, help="IANA zone, like Europe/Berlin.")
@click.option("--until", help="Wall time of the end: 06:30.")
@click.option("--duration-min", type=int, help="Or: minutes after the start.")
@api_options
@json_option
def add(
    name: str,
    start_cron: str,
    timezone: str,
    until: str | None,
    duration_min: int | None,
    api: str,
    key: str | None,
    as_json: bool,
) -> None:
    """Create a window; shows its next five openings."""
    document = {
        "name": name,
        "start_cron": start_cron,
        "timezone": timezone,
        "until": until,
        "duration_min": duration_min,
    }
    with connect(api, key) as ratchet:
        made = ratchet.add_window(document)
    if as_json:
        print_json(made)
        return
    click.echo(f"{made['name']} ({made['id']}) opens next:")
    for opening in made["next_openings"]:
        click.echo(f"  {_opening(opening)}")
    say(f"attach a study with `window: {made['name']}` in its specification")


@window.command("list")
@api_options
@json_option
def list_windows(api: str, key: str | None, as_json: bool) -> None:
    """List windows with their next opening and the last night."""
    with connect(api, key) as ratchet:
        found = list(ratchet.windows())
    if as_json:
        print_json({"items": found})
        return
    rows = [
        [w["name"], f"{w['start_cron']} {w['timezone']}", _next(w), ", ".join(w["studies"]) or "-", _last(w["runs"])]
        for w in found
    ]
    print_table(
        ["name", "opens", "next", "studies", "last night"],
        rows,
        empty="no windows; add one with: ratchet window add nights --start '0 22 * * *' --until 06:30",
    )


@window.command()
@click.argument("name")
@click.argument("local_date", metavar="DATE")
@click.option(
    "--format",
    "form",
    type=click.Choice(["md", "html", "json"]),
    default="md",
    show_default=True,
    help="Form of the report.",
)
@api_options
@json_format_option
def report(name: str, local_date: str, form: str, api: str, key: str | None, as_json: bool) -> None:
    """Print the morning report of the night that began on DATE (2026-11-29)."""
    with connect(api, key) as ratchet:
        click.echo(ratchet.night(name, local_date, "json" if as_json else form).rstrip("\n"))


@window.command()
@click.argument("name")
@api_options
@json_option
def remove(name: str, api: str, key: str | None, as_json: bool) -> None:
    """Remove a window that no unfinished study uses."""
    with connect(api, key) as ratchet:
        ratchet.remove_window(name)
    tell_removed(name, as_json)


def _next(window: WindowOut) -> str:
    if not window["enabled"]:
        return "off"
    if window["open_now"]:
        return "open now"
    return _opening(window["next_openings"][0]) if window["next_openings"] else "never"


def _opening(opening: OpeningOut) -> str:
    return f"{opening['opens_local']} to {opening['closes_local']}"


def _last(runs: list[WindowRunOut]) -> str:
    if not runs:
        return "-"
    reason = f": {runs[0]['reason']}" if runs[0]["reason"] else ""
    return f"{runs[0]['local_date']} {runs[0]['status']}{reason}"
