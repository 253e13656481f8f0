"""The `ratchet` command: a group that imports a command only when it is used.

Decides which commands exist and how errors leave the process: 0 done, 1 the work failed, 2 bad usage or bad input.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click
from click.shell_completion import CompletionItem

from api.cli.output import print_error
from optimizer.errors import BadInput, RatchetError
from storage.errors import StorageError

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("api.cli.demo:demo", "A whole study against a real server on this machine"),
    "run": ("api.cli.run:run", "One study in the foreground"),
    "serve": ("api.cli.serve:serve", "The API, the pages, the dashboard and a worker"),
    "worker": ("api.cli.worker:worker", "A worker alone"),
    "study": ("api.cli.study:study", "Studies of a running service"),
    "host": ("api.cli.host:host", "Hosts: add, list, check, restore, remove"),
    "window": ("api.cli.window:window", "Overnight windows"),
    "key": ("api.cli.key:key", "API keys"),
    "db": ("api.cli.db:db", "Database migrations and upkeep"),
    "space": ("api.cli.space:space", "What an engine's flags mean: show, check"),
    "explain": ("api.cli.explain:explain", "Explain a failure from a server's log"),
    "telemetry": ("api.cli.telemetry:telemetry", "Read throughput records out of a server's log"),
    "bench": ("api.cli.bench:bench", "Measure a running server"),
    "replay": ("api.cli.replay:replay", "Replay a search on a recorded table"),
    "verdict": ("api.cli.verdict:verdict", "Judge recorded restarts: is it a win?"),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on first use, so that `ratchet verdict` does not import Optuna."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of commands without importing them."""
        found = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ratchet-tune")
def cli() -> None:
    """Tune a remote LLM server overnight; keep only what is proven faster.

    Begin with `ratchet demo`. `ratchet COMMAND --help` says more about each command; exit codes are 0 done, 1 the work
    failed, 2 bad usage or bad input.
    """


def main(args: list[str] | None = None) -> Any:
    """Run the command line; every known error becomes one clear message and an exit code."""
    try:
        return cli.main(args=args, prog_name="ratchet", standalone_mode=True)
    except BadInput as error:
        print_error(error)
        sys.exit(2)
    except (RatchetError, StorageError) as error:
        print_error(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
