#!/usr/bin/env python3
"""Measures the source tree: sizes of files and functions, comments, import cycles, types of the broker.

Usage: cluster-tests/measures.py [DIRECTORY]   (default: src)

Prints one Markdown table with a row for each crate, then the largest types of each crate.
Product lines are all lines of a file up to its inline `#[cfg(test)] mod`; files whose path names
tests, testing, examples, transcripts or fuzz count as tests. A cycle is the largest strongly
connected set of modules over `use crate::` and `use super::` lines.
"""

import pathlib
import re
import statistics
import subprocess
import sys

TEST_PATH = re.compile(r"(^|/)(tests?|testing|examples|transcripts?|fuzz)(/|\.rs|_|$)|_tests?\.rs$")
INLINE_TESTS = re.compile(r"^#\[cfg\(test\)\]\n(?:#\[[^\n]*\]\n)*mod \w+ \{", re.M)
FUNCTION = re.compile(r"^( *)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe )*fn \w+")
PANICS = re.compile(r"\.unwrap\(\)|\.expect\(|\bpanic!|\bunreachable!|\btodo!")


def split(path, text):
    """Product text and test text of a file."""
    if TEST_PATH.search(str(path)):
        return "", text
    inline = INLINE_TESTS.search(text)
    return (text[: inline.start()], text[inline.start() :]) if inline else (text, "")


def functions(lines):
    """Lengths of the functions, in lines, from the line of `fn` to its closing brace."""
    for start, line in enumerate(lines):
        found = FUNCTION.match(line)
        if not found:
            continue
        for end in range(start, len(lines)):
            if lines[end].rstrip().endswith(";") and end == start:
                break
            if lines[end].startswith(found[1] + "}"):
                yield end - start + 1
                break


def percentile(values, percent):
    """The value that so many percent of the values do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else 0


def used_paths(text):
    """Paths below `crate` or `super` that the `use` declarations name: (root, [segments])."""
    for declaration in re.findall(r"^\s*(?:pub(?:\([^)]*\))? )?use ((?:crate|super)[^;]*);", text, re.M):
        yield from expand(re.sub(r"\s+", "", declaration))


def expand(path):
    """The plain paths of a `use` tree."""
    brace = path.find("{")
    if brace < 0:
        yield path.split("::")
        return
    depth, begin = 0, brace + 1
    for at in range(brace, len(path)):
        depth += {"{": 1, "}": -1}.get(path[at], 0)
        if (path[at] == "," and depth == 1) or depth == 0:
            if path[begin:at]:
                yield from expand(path[:brace] + path[begin:at])
            begin = at + 1
        if depth == 0:
            return


def module_of(root, path):
    """The path of a file's module below its crate."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    return tuple(parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts)


def edges(root, files):
    """Which modules import which, of one crate."""
    modules = {module_of(root, path): text for path, text in files}
    graph = {module: set() for module in modules}
    for module, text in modules.items():
        for path in used_paths(text):
            base = [] if path[0] == "crate" else list(module)
            for segment in path:
                if segment == "super":
                    base = base[:-1]
                elif segment not in ("crate", "self"):
                    base.append(segment)
            while base and tuple(base) not in modules:
                base.pop()
            if base and tuple(base) != module:
                graph[module].add(tuple(base))
    return graph


def largest_cycle(graph):
    """The largest strongly connected set of more than one module (Tarjan)."""
    index, low, stack, best = {}, {}, [], []

    def visit(node):
        nonlocal best
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            best = max(best, stack[at:], key=len)
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return best if len(best) > 1 else []


def types(texts):
    """Of each type: fields of its struct, and methods of all its inherent impl blocks."""
    fields, methods, blocks = {}, {}, {}
    for text in texts:
        for name, body in re.findall(r"^(?:pub(?:\([^)]*\))? )?struct (\w+)[^;{(]*\{\n(.*?)^\}", text, re.M | re.S):
            fields[name] = len(re.findall(r"^    (?:pub(?:\([^)]*\))? )?\w+: ", body, re.M))
        for name, body in re.findall(r"^impl(?:<[^>]*>)? (\w+)(?:<[^{]*>)? \{\n(.*?)^\}", text, re.M | re.S):
            count = len(re.findall(r"^    (?:pub(?:\([^)]*\))? )?(?:const |async |unsafe )*fn ", body, re.M))
            methods[name] = methods.get(name, 0) + count
            blocks[name] = blocks.get(name, 0) + 1
    return fields, methods, blocks


def row(name, files, cycle):
    """One row of the table."""
    product = [(path, *split(path, text)) for path, text in files]
    tests = sum(test.count("\n") for _, _, test in product)
    texts = [text for _, text, _ in product if text]
    sizes = [text.count("\n") for text in texts]
    lines = [line for text in texts for line in text.splitlines()]
    lengths = [length for text in texts for length in functions(text.splitlines())]
    docs = sum(1 for line in lines if line.lstrip().startswith(("///", "//!")))
    comments = sum(1 for line in lines if line.lstrip().startswith("//")) - docs
    code = [line for line in lines if not line.lstrip().startswith("//")]
    panics = sum(len(PANICS.findall(line)) for line in code)
    total = max(1, sum(sizes))
    return (
        f"| {name} | {len(texts)} · {sum(sizes):,} | {statistics.median(sizes or [0]):.0f} · "
        f"{percentile(sizes, 90)} · {max(sizes or [0])} | {sum(s > 300 for s in sizes)} · "
        f"{sum(s > 500 for s in sizes)} | {statistics.median(lengths or [0]):.0f} · "
        f"{percentile(lengths, 95)} · {percentile(lengths, 99)} · {max(lengths or [0])} | "
        f"{100 * docs / total:.1f} + {100 * comments / total:.1f} | {1000 * panics / total:.2f} | "
        f"{100 * tests / total:.0f} | {cycle} |"
    )


def main():
    """Prints the tables."""
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "src")
    listed = subprocess.run(
        ["git", "ls-files", f"{source}/*.rs"], check=True, capture_output=True, text=True
    ).stdout.split()
    files = [(pathlib.Path(path), pathlib.Path(path).read_text()) for path in listed]
    crates = sorted({path.relative_to(source).parts[0] for path, _ in files if len(path.parts) > 2})
    print(
        "| crate | files · lines | lines/file med · p90 · max | >300 · >500 | lines/fn med · p95 · p99 "
        "· max | doc % + comment % | panics per kloc | test lines, % of product | largest cycle |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    print(row("all", files, ""))
    largest = []
    for crate in crates:
        root = source / crate
        own = [(path, text) for path, text in files if path.is_relative_to(root)]
        product = [(path, split(path, text)[0]) for path, text in own]
        graph = edges(root, [(path, text) for path, text in product if text])
        cycle = largest_cycle(graph)
        print(row(crate, own, f"{len(cycle)} of {len(graph)}" if cycle else "none"))
        fields, methods, blocks = types([text for _, text in product])
        names = [n for n in set(fields) | set(methods) if fields.get(n, 0) > 12 or methods.get(n, 0) > 25]
        for name in sorted(names):
            sizes = (fields.get(name, 0), methods.get(name, 0), blocks.get(name, 0))
            largest.append((crate, name, *sizes))
    print("\n| crate | type of more than 12 fields or 25 methods | fields | methods | impl blocks |")
    print("|---|---|---|---|---|")
    for crate, name, *sizes in sorted(largest, key=lambda it: -it[3]):
        print(f"| {crate} | {name} | {' | '.join(map(str, sizes))} |")


if __name__ == "__main__":
    main()
