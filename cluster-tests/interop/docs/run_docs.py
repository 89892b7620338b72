"""Runs the commands and programs of README.md and of the pages below docs, as a reader would.

    run_docs.py BINARY [PAGE ...]

A page with blocks that are run gets a fresh cluster, `quorate dev` on its own ports, in a network
namespace that has nothing but a loopback interface, and a home of its own. docs/contribute.md says
what the words after a fence mean. Needs root, or user namespaces; and pika, for this very Python.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "cluster-tests" / "interop" / "suites"))
from fixed_ports import enter_own_network  # noqa: E402

# Where `make run` leaves the program, from the reader's home.
PROGRAMS = Path(".cache/quorate/target/quick")
# Names under which the program may be called.
NAMES = ("quorate", "rabbitmqctl", "rabbitmq-diagnostics", "rabbitmq-plugins", "rabbitmq-queues", "rabbitmq-upgrade")
SHOWN = ("text", "json", "toml", "yaml")
COMMAND_OUTSIDE = re.compile(r" {4,}(quorate|rabbitmqctl|make|curl|cargo|helm|kubectl) ")
SECONDS_TO_START = 120
SECONDS_OF = {"sh": 120, "python": 60}
LOG_LINES = 30
# Exit codes of a command line of `quorate ctl` that is right; 64 is one that is wrong.
RIGHT = (0, 65, 67, 68, 69, 75)


class Failure(Exception):
    pass


class Block:
    def __init__(self, page, line, language, treatment, lines):
        self.where = f"{page}:{line}"
        self.language, self.treatment, self.text = language, treatment, "\n".join(lines)

    def is_run(self):
        return self.language in SECONDS_OF and not self.treatment


def blocks_of(page):
    """The fenced blocks of a page, in their order; a fence may be indented, as in a list."""
    blocks, opened = [], None
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        fence = re.fullmatch(r"( *)```(.*)", line)
        if opened is None and fence:
            words = fence[2].split()
            language, treatment = (words + ["", ""])[:2]
            known = language in SHOWN or language == "sh" and treatment in ("", "check") or language == "python"
            if not known or len(words) > 2 or treatment and language != "sh":
                raise Failure(f"{page}:{number}: unknown words after a fence: '{fence[2]}'")
            opened = (number, len(fence[1]), language, treatment, [])
        elif opened is None:
            if COMMAND_OUTSIDE.match(line):
                raise Failure(f"{page}:{number}: a command outside of a fenced block")
        elif fence and not fence[2]:
            number, _, language, treatment, lines = opened
            blocks.append(Block(page, number, language, treatment, lines))
            opened = None
        else:
            opened[4].append(line[opened[1] :] if not line[: opened[1]].strip() else line)
    if opened is not None:
        raise Failure(f"{page}:{opened[0]}: a fenced block without an end")
    return blocks


def command_lines(text):
    """The words of each command of a block that calls the program, from its name on."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command = []
        for word in [*lexer, ";"]:
            if set(word) <= set("();<>|&"):
                yield from called(command)
                command = []
            else:
                command.append(word)


def called(command):
    for at, word in enumerate(command):
        # The command itself, or what another one is to call: kubectl exec POD -- quorate ...
        if word in NAMES and all("=" in before for before in command[:at]) or word in NAMES and command[at - 1] == "--":
            yield command[at:]
            return


def run(command, place, seconds, environment):
    """Exit code and output. What it leaves behind in its process group is ended too."""
    child = subprocess.Popen(
        command, cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = child.communicate(timeout=seconds)
        return child.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
        return f"none after {seconds} s", output


class Reader:
    """Somebody with a home, who has built Quorate."""

    def __init__(self, home, binary):
        self.home = home
        programs = home / PROGRAMS
        programs.mkdir(parents=True)
        (programs / "quorate").symlink_to(binary)
        for name in NAMES[1:]:
            (programs / name).symlink_to("quorate")
        self.place = home / "place"
        self.place.mkdir()
        (home / "tmp").mkdir()
        path = f"{programs}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        self.environment = {"PATH": path, "HOME": str(home), "TMPDIR": str(home / "tmp"), "LANG": "C.UTF-8"}

    def run(self, block):
        command = {
            "sh": ["bash", "-euxo", "pipefail", "-c", block.text],
            "python": [sys.executable, "-B", "-u", "-c", block.text],
        }[block.language]
        code, output = run(command, self.place, SECONDS_OF[block.language], self.environment)
        if code != 0:
            raise Failure(f"{block.where}: exit code {code}\n--- block\n{block.text}\n--- output\n{output}")

    def check(self, block):
        """Whether the program knows the commands and options; returns how many commands there were."""
        count = 0
        for words in command_lines(block.text):
            administers = words[0] != "quorate" or words[1:2] == ["ctl"] or words[1:2] and words[1] in NAMES
            if administers:
                at = 1 if words[0] != "quorate" else 2
                tried = words[:at] + ["--dry-run"] + words[at:]
            else:
                tried = [*words, "--help"]
            code, output = run(tried, self.place, SECONDS_OF["sh"], self.environment)
            if code not in (RIGHT if administers else (0,)):
                raise Failure(f"{block.where}: exit code {code}\n--- command\n{shlex.join(words)}\n--- output\n{output}")
            count += 1
        return count


class Cluster:
    """What `make run` starts, for one reader."""

    def __init__(self, reader):
        self.home, self.environment = reader.home, reader.environment
        self.logs = reader.home / "logs"
        self.logs.mkdir()
        self.said = self.logs / "dev.log"
        command = ["quorate", "dev", "--log-dir", str(self.logs)]
        with open(self.said, "w") as out:
            self.child = subprocess.Popen(
                command, cwd=reader.home, env=reader.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def is_settled(self):
        """Whether it runs, and has raised its machine version as far as it will, as a reader finds it."""
        if "nodes are running" not in self.said.read_text():
            return False
        _, status = run(["quorate", "ctl", "cluster_status"], self.home, SECONDS_TO_START, self.environment)
        return re.search(r"^Machine version: \d+$", status, re.MULTILINE) is not None

    def __enter__(self):
        until = time.monotonic() + SECONDS_TO_START
        while not self.is_settled():
            if self.child.poll() is not None or time.monotonic() > until:
                failure = Failure(f"the cluster does not start\n{self.tails()}")
                self.stop()
                raise failure
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGINT)
            self.child.wait(timeout=60)

    def tails(self):
        tails = []
        for log in sorted(self.logs.iterdir()):
            lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            tails.append("\n".join([f"--- {log.name}", *lines]))
        return "\n".join(tails)


class Count:
    def __init__(self):
        self.run, self.checked = 0, 0


def read(page, binary, count):
    """Does what a page says, in its order."""
    blocks = blocks_of(page)
    if not any(block.language in SECONDS_OF for block in blocks):
        return
    with tempfile.TemporaryDirectory(prefix="quorate-docs-") as home:
        reader = Reader(Path(home), binary)
        for block in blocks:
            if block.treatment == "check":
                count.checked += reader.check(block)
        if not any(block.is_run() for block in blocks):
            return
        with Cluster(reader) as cluster:
            for block in filter(Block.is_run, blocks):
                try:
                    reader.run(block)
                except Failure as failure:
                    raise Failure(f"{failure}\n{cluster.tails()}") from None
                count.run += 1


def all_pages():
    pages = [Path("README.md"), *sorted(path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md"))]
    if len(pages) < 10:
        raise SystemExit(f"only {len(pages)} pages found")
    return pages


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    binary = Path(sys.argv[1]).resolve()
    # A page may be named from the root or from here.
    named = [path if (ROOT / path).exists() else path.resolve().relative_to(ROOT) for path in map(Path, sys.argv[2:])]
    pages = named or all_pages()
    # So that clusters are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("asked to stop"))
    enter_own_network()
    count, failed = Count(), []
    for page in pages:
        begun = time.monotonic()
        try:
            read(page, binary, count)
            print(f"{page}: {time.monotonic() - begun:.1f} s", flush=True)
        except Failure as failure:
            print(f"FAILED {failure}", flush=True)
            failed.append(str(page))
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")
    print(f"{len(pages)} pages, {count.run} blocks run, {count.checked} commands checked")


if __name__ == "__main__":
    main()
