#!/usr/bin/env python3
"""Keeps what follows from other files up to date: the table of values in the chart's README (from the comments `# --`
of values.yaml), and the settings that values.schema.json accepts below `config` (from the table of settings).
Without --update it changes nothing, and fails if anything is out of date."""
import difflib
import json
import pathlib
import re
import sys

HELM = pathlib.Path(__file__).resolve().parent
CHART = HELM / "quorate"
SETTINGS = HELM.parent / "src/cli/settings/table.rs"

# Settings that the chart sets, or that differ from node to node.
OF_THE_CHART = {"node_id", "data_dir", "amqp_listen", "rpc_listen", "http_listen", "cluster", "rpc_advertise",
                "amqp_advertise", "node_name", "cluster_secret_file", "definitions_file", "zone", "queue_replicas",
                "replace_lost_disk", "amqp_tls_listen", "http_tls_listen", "tls_certificate_file", "tls_key_file", "tls_ca_file",
                "tls_client_certificates", "rpc_tls", "rpc_tls_certificate_file", "rpc_tls_key_file", "rpc_tls_ca_file"}
# A fraction such as 1.0 must be a string: as a number it would arrive as 1, which means one byte.
JSON_TYPES = {"u16": ["integer", "string"], "u32": ["integer", "string"], "u64": ["integer", "string"],
              "ByteCount": ["integer", "string"], "bool": ["boolean", "string"]}


def rows(text):
    """(name, default, description) of each value. The subset of YAML: maps in block style, lists in flow style."""
    found, parents, comment = [], [], None
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("# -- "):
            comment = stripped[5:]
        elif stripped.startswith("#"):
            comment = comment and comment + " " + stripped[1:].strip()
        elif not stripped:
            comment = None
        else:
            key, colon, value = stripped.partition(":")
            if not colon or stripped.startswith("-"):
                sys.exit(f"values.yaml, line {number}: write this list in flow style")
            depth = (len(line) - len(line.lstrip())) // 2
            parents = parents[:depth] + [key]
            if value.strip():
                if comment is None:
                    sys.exit(f"values.yaml, line {number}: {'.'.join(parents)} has no comment `# -- ...`")
                found.append((".".join(parents), value.strip(), comment))
            comment = None
    return found


def readme(old, values):
    lines = ["| Value | Default | Meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | `{default}` | {meaning.replace('|', chr(92) + '|')} |" for name, default, meaning in rows(values)]
    begin, end = "<!-- values: made by helm/docs.py -->", "<!-- end of values -->"
    before, _, rest = old.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"README.md lacks `{begin}` or `{end}`")
    return before + begin + "\n" + "\n".join(lines) + "\n" + end + after


def schema(old, table):
    settings = re.findall(r'^    (\w+): (?:Option<)?(\w+)>? = "[^"]*";$', table, re.M)
    if len(settings) < 40:
        sys.exit(f"{SETTINGS}: only {len(settings)} settings found")
    properties = [f'        "{name}": {json.dumps({"type": JSON_TYPES.get(kind, "string")})}'
                  for name, kind in settings if name not in OF_THE_CHART]
    begin = old.index('"properties": {', old.index('"config": {')) + len('"properties": {')
    end = old.index("\n    },", begin)
    return old[:begin] + "\n" + ",\n".join(properties) + "\n      }" + old[end:]


def main():
    update, stale = sys.argv[1:] == ["--update"], False
    made = {CHART / "README.md": lambda old: readme(old, (CHART / "values.yaml").read_text()),
            CHART / "values.schema.json": lambda old: schema(old, SETTINGS.read_text())}
    for path, make in made.items():
        old = path.read_text()
        new = make(old)
        if old != new and update:
            path.write_text(new)
        elif old != new:
            stale = True
            sys.stdout.writelines(list(difflib.unified_diff(old.splitlines(True), new.splitlines(True), str(path), "up to date"))[:40])
    if stale:
        sys.exit("out of date: run helm/check.sh --update")


main()
