"""`ratchet host`: hosts of a running service."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from api.cli.output import print_json, say, tell_removed
from api.cli.remote import api_options, connect, json_option
from api.cli.tables import print_table
from optimizer.errors import HostError
from optimizer.remote import hostkeys
from optimizer.spec import HostEntry, load_yaml, parse_host, read_text

MARKS = {"ok": "ok", "warning": "warning", "error": "ERROR", "skipped": "-"}


@click.group()
def host() -> None:
    """Hosts: add, list, check, restore, remove."""


@host.command()
@click.argument("file", metavar="FILE.yaml", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Also over a host of the same name.")
@click.option("--pin", is_flag=True, help="Pin the host key that it shows now, without asking.")
@api_options
@json_option
def add(file: Path, replace: bool, pin: bool, api: str, key: str | None, as_json: bool) -> None:
    """Register a host from its file; a key that is not known yet is shown first, to be compared and pinned."""
    document = load_yaml(read_text(file, "the host file"), "the host file")
    entry = parse_host(document)
    if entry.ssh is not None and entry.ssh.host_key is None:
        fingerprint = pinned_fingerprint(entry, pin=pin)
        if fingerprint is not None:
            document["ssh"]["host_key"] = fingerprint
    with connect(api, key) as ratchet:
        made = ratchet.add_host(document, replace=replace)
    if as_json:
        print_json(made)
    else:
        click.echo(made["name"])
        say(f"examine it with: ratchet host check {made['name']}")


def pinned_fingerprint(entry: HostEntry, *, pin: bool) -> str | None:
    """Show the key that the host offers; return its fingerprint when a person said (or `pin` says) that it is right.

    None: the key is in known_hosts already, the host cannot be asked from here, or nobody confirmed it.
    """
    try:
        offered = hostkeys.fetch_fingerprint(entry)
    except HostError as error:
        say(f"the host key cannot be looked at from here: {error.message}")
        return None
    if offered.in_known_hosts:
        return None
    say(f"{entry.name} ({offered.address}) shows the {offered.kind} key {offered.fingerprint}")
    say("compare it on the host's console: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub (or the file of its type)")
    if pin or (sys.stdin.isatty() and click.confirm("Is it the same? It is pinned then", default=False, err=True)):
        return offered.fingerprint
    say("not pinned: connections are refused until the key is in known_hosts, in the host's file, or given with --pin")
    return None


@host.command("list")
@api_options
@json_option
def list_hosts(api: str, key: str | None, as_json: bool) -> None:
    """List hosts, and who uses them now."""
    with connect(api, key) as ratchet:
        found = list(ratchet.hosts())
    if as_json:
        print_json({"items": found})
        return
    rows = [
        [
            h["name"],
            h["entry"].get("connection", ""),
            f"study {h['lease']['study_id']}"
            if h["lease"] and h["lease"]["study_id"]
            else "in use"
            if h["lease"]
            else "free",
            h["needs_attention"] or "-",
        ]
        for h in found
    ]
    print_table(
        ["name", "connection", "now", "needs a human"], rows, empty="no hosts; add one with: ratchet host add FILE.yaml"
    )


@host.command()
@click.argument("name")
@api_options
@json_option
def check(name: str, api: str, key: str | None, as_json: bool) -> None:
    """Examine a host: every finding says what to do. Exit 1 when one is an error."""
    with connect(api, key) as ratchet:
        result = ratchet.check_host(name)
    if as_json:
        print_json(result)
    else:
        rows = [
            [MARKS.get(f["level"], f["level"]), f["check"], f["detail"] + (f"\n  {f['remedy']}" if f["remedy"] else "")]
            for f in result["findings"]
        ]
        print_table(["", "check", "finding"], rows, empty="nothing was found")
    if not result["ok"]:
        sys.exit(1)


@host.command()
@click.argument("name")
@api_options
@json_option
def restore(name: str, api: str, key: str | None, as_json: bool) -> None:
    """Stop what Ratchet left on a host and put the original server back."""
    say(f"restoring {name}; a large model takes minutes to load")
    with connect(api, key) as ratchet:
        result = ratchet.restore_host(name)
    if as_json:
        print_json(result)
    else:
        click.echo(result["detail"])


@host.command()
@click.argument("name")
@api_options
@json_option
def remove(name: str, api: str, key: str | None, as_json: bool) -> None:
    """Forget a host that no study uses."""
    with connect(api, key) as ratchet:
        ratchet.remove_host(name)
    tell_removed(name, as_json)
