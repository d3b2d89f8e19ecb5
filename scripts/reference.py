"""The reference pages that follow from the code: `docs/reference/configuration.md` from the models of cdc.yaml,
`docs/reference/commands.md` from the command line's own help, `docs/reference/tables.md` from the lake's tables.

`python -m scripts.reference` writes them; `make docs` does so before it builds the site, and a test holds the
committed pages equal to what would be written.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
_WRITTEN = "<!-- Written by `python -m scripts.reference`. Edit the descriptions in the code. -->"


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in written().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def written() -> dict[str, str]:
    """File name → what it should hold."""
    return {"configuration.md": configuration_page(), "commands.md": commands_page(), "tables.md": tables_page()}


# -- cdc.yaml -----------------------------------------------------------------------------------------------------


def configuration_page() -> str:
    """Every section of cdc.yaml, then the options of every format."""
    from cdc_platform.config import Config
    from cdc_platform.formats import FORMATS

    lines = [
        "# Configuration keys",
        _WRITTEN,
        "Every key of `cdc.yaml`. How they work together: [configuration](../configuration.md). "
        "A wrong one is an error that names the key and the valid ones.",
    ]
    for title, about, keys in sections(Config.model_json_schema()):
        lines += [f"## {title}", about, _keys_table(keys)]
    for format_ in FORMATS.values():
        schema = format_.options.model_json_schema()
        keys = list(_keys(schema, schema.get("$defs", {})))
        lines += [f"## Options of {format_.name}", format_.summary, _keys_table(keys) if keys else "None."]
    return "\n\n".join(lines) + "\n"


def sections(schema: dict[str, Any]) -> Iterator[tuple[str, str, list[dict[str, str]]]]:
    """(title, description, keys) of the document and of each nested section, outermost first."""
    definitions = schema.get("$defs", {})
    waiting = [("Top level", schema, "")]
    while waiting:
        title, model, path = waiting.pop(0)
        yield title, _sentence(model.get("description", "")), list(_keys(model, definitions))
        for name, field in model.get("properties", {}).items():
            nested, many = _nested(field, definitions)
            if nested:
                inner = f"{path}{name}{'[]' if many else ''}"
                waiting.append((f"`{inner}`", nested, f"{inner}."))


def _nested(field: dict[str, Any], definitions: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """The model that a key holds, and whether it is a list of such."""
    many = field.get("type") == "array" and "$ref" in field.get("items", {})
    for part in [field["items"]] if many else [field, *field.get("anyOf", []), *field.get("allOf", [])]:
        if "$ref" in part:
            found = definitions[part["$ref"].rpartition("/")[2]]
            if found.get("type") == "object":
                return found, many
    return None, False


def _keys(model: dict[str, Any], definitions: dict[str, Any]) -> Iterator[dict[str, str]]:
    required = model.get("required", [])
    for name, field in model.get("properties", {}).items():
        nested, many = _nested(field, definitions)
        section = f"a {'list of sections' if many else 'section'}, see below"
        yield {
            "key": name,
            "type": section if nested else _type(field, definitions),
            "default": "required" if name in required else _default(field, bool(nested)),
            "meaning": field.get("description") or (nested or {}).get("description", ""),
        }


def _type(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in field:
        return _type(definitions[field["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in field:
        return " or ".join(_type(f, definitions) for f in field["anyOf"] if f.get("type") != "null")
    if "enum" in field or "const" in field:
        return ", ".join(f"`{v}`" for v in field.get("enum", [field.get("const")]))
    kind = field.get("type", "any")
    if kind == "array":
        return f"list of {_plural(_type(field.get('items', {}), definitions))}"
    if kind == "object":
        inner = field.get("additionalProperties")
        return f"map to {_type(inner, definitions)}" if isinstance(inner, dict) else "map"
    bounds = [
        f"{sign} {field[bound]}"
        for bound, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"))
        if bound in field
    ]
    return " ".join([{"string": "text", "boolean": "true or false"}.get(kind, kind), *bounds])


def _plural(type_: str) -> str:
    return {"text": "texts", "integer": "integers"}.get(type_, type_)


def _default(field: dict[str, Any], nested: bool) -> str:
    if nested or "default" not in field or field["default"] is None:
        return "–"
    value = field["default"]
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value != "" else "empty"


def _keys_table(keys: list[dict[str, str]]) -> str:
    rows = [f"| `{k['key']}` | {k['type']} | {k['default']} | {_cell(k['meaning'])} |" for k in keys]
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows])


def _cell(text: str) -> str:
    """Plain text or code as a cell of a table: nothing outside of code is markup."""
    parts = re.sub(r"\s+", " ", text).replace("|", "\\|").strip().split("`")
    return "`".join(re.sub(r"([*<])|\\(?!\|)", r"\\\g<0>", p) if i % 2 == 0 else p for i, p in enumerate(parts))


def _sentence(text: str) -> str:
    return text.split("\n\n", maxsplit=1)[0].replace("\n", " ")


# -- the command line ---------------------------------------------------------------------------------------------


def commands() -> dict[tuple[str, ...], Any]:
    """Words of each command (`("quarantine", "list")`) → the click command; groups too, without a callback."""
    from typer.main import get_command

    from cdc_platform.cli.app import app

    return dict(_commands((), get_command(app)))


def _commands(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    if hasattr(command, "list_commands"):
        context = command.make_context("cdc-platform", [], resilient_parsing=True)
        for name in command.list_commands(context):
            if inner := command.get_command(context, name):
                yield from _commands((*words, name), inner)


def options(command: Any) -> set[str]:
    """All spellings of a command's options."""
    return {o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("-")} | {"--help"}


def commands_page() -> str:
    """Every command with its arguments and options."""
    lines = [
        "# Commands",
        _WRITTEN,
        "Results go to stdout, progress and errors to stderr. Exit codes: "
        "[operations](../operations.md#exit-codes). `--help` tells the same as this page.",
    ]
    for words, command in commands().items():
        if not words or hasattr(command, "list_commands"):
            continue
        lines += [f"## {' '.join(words)}", _help(command)]
        usage = " ".join(["cdc-platform", *words, *command.collect_usage_pieces(_context(command))])
        lines += [f"```text\n{usage}\n```", _options_table(command)]
    return "\n\n".join(line for line in lines if line) + "\n"


def _context(command: Any) -> Any:
    return command.context_class(command, resilient_parsing=True)


def _help(command: Any) -> str:
    return re.sub(r"[ \t]*\n[ \t]*(?!\n)", " ", (command.help or "").replace("\f", "")).replace("  ", "\n\n").strip()


def _options_table(command: Any) -> str:
    """What `--help` lists, arguments first."""
    records = [p.get_help_record(_context(command)) for p in command.params if "--help" not in p.opts]
    rows = [f"| {_cell(f'`{names}`')} | {_cell(text)} |" for names, text in filter(None, records)]
    return "\n".join(["| option | meaning |", "|---|---|", *rows]) if rows else ""


# -- the lake -----------------------------------------------------------------------------------------------------


def tables_page() -> str:
    """Every table of the lake that isn't a snapshot, with its columns."""
    from cdc_platform import tables

    lines = [
        "# Tables of the lake",
        _WRITTEN,
        "The platform's own Delta tables, by path under the lake. Their columns are stable: new ones may be added at "
        "the end. [Reading the tables](../reading.md) says how to use them; the column `room` holds the name of a "
        "[stage](../concepts.md#stages).",
    ]
    for table in tables.ALL:
        lines += [
            f"## `{table.path}`".replace("{", "<").replace("}", ">"),
            f"{table.comment}.",
            *([f"Partitioned by {', '.join(f'`{n}`' for n in table.partition_by)}."] if table.partition_by else []),
            _columns_table(table),
        ]
    return "\n\n".join(lines) + "\n"


def _columns_table(table: Any) -> str:
    from cdc_platform.tables.columns import shown

    rows = [f"| `{c.name}` | `{shown(c.type)}` | {_cell(c.meaning)} |" for c in table.columns]
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *rows])


if __name__ == "__main__":
    main()
