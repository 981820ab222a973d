"""Commands as typer builds them, with plain argument names and with help for a bare command."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

VERB_ORDER = (
    *("embed", "score", "perplexity", "index", "neighbors", "senses"),
    *("train", "predict", "evaluate"),  # also below `task`
    *("pretrain", "finetune", "vocab", "task", "encoder", "reproduce"),
    *("serve", "report", "convert", "package", "export", "check", "info"),
)
USAGE = 2  # exit code, also of a bare command: click's convention

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Group(TyperGroup):
    """A command with subcommands. Without arguments it prints its help."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the subcommands, the most used verbs first."""
        order = {name: place for place, name in enumerate(VERB_ORDER)}
        return sorted(super().list_commands(ctx), key=lambda name: order.get(name, len(order)))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, or print the help if there are none."""
        _require_arguments(ctx, args)
        return super().parse_args(ctx, args)


class Verb(TyperCommand):
    """A command that does something. Its help names arguments as the usage line does: ``FILES...``."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line after the command's name."""
        names = (
            _argument_name(param) if param.required else f"[{_argument_name(param)}]" for param in _arguments(self, ctx)
        )
        return ["[OPTIONS]", *names]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections Arguments and Options."""
        arguments = [(_argument_name(param), param.help or "") for param in _arguments(self, ctx)]
        options = [param.get_help_record(ctx) for param in self.get_params(ctx) if param.param_type_name == "option"]
        for title, rows in (("Arguments", arguments), ("Options", [row for row in options if row is not None])):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class VerbWithArguments(Verb):
    """A verb that cannot run without arguments, and prints its help instead."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, or print the help if there are none."""
        _require_arguments(ctx, args)
        return super().parse_args(ctx, args)


def sub_app(help: str, *, name: str | None = None) -> typer.Typer:
    """Make a command with subcommands."""
    return typer.Typer(
        name=name,
        cls=Group,
        help=help,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def verb(
    parent: typer.Typer, *, epilog: str | None = None, runs_bare: bool = False
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Make a function a verb of ``parent``. Unless it ``runs_bare``, it prints its help without arguments."""
    return parent.command(cls=Verb if runs_bare else VerbWithArguments, epilog=epilog)


def _require_arguments(ctx: Any, args: list[str]) -> None:
    if not args:
        typer.echo(ctx.get_help(), err=True)
        raise typer.Exit(USAGE)


def _arguments(command: TyperCommand, ctx: Any) -> list[Any]:
    return [param for param in command.get_params(ctx) if param.param_type_name == "argument"]


def _argument_name(param: Any) -> str:
    name: str = param.display_name_raw
    return name if param.nargs == 1 else f"{name}..."
