"""The integration tests that a Rust crate brings along, against a broker at localhost:15672 and :5672.

    suite.py FAILURES CRATE_FOLDER [CARGO_ARGUMENT ...]

FAILURES names the tests that cannot pass, one a line: `name: reason`. Any other test that fails, also
when it is repeated as the crates' own settings allow, makes this fail.
"""

import base64
import json
import re
import subprocess
import sys
import urllib.request

RETRIES = 2
ENDPOINT = "http://localhost:15672/api/"
# What the crates' own scripts (bin/ci) do to a new broker before their tests.
VHOSTS = ["/", "rust/http/api/client", "rust/rabbitmqadmin"]
USERS = ["guest", "rust3"]


def put(path, body):
    credentials = base64.b64encode(b"guest:guest").decode()
    headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"}
    request = urllib.request.Request(ENDPOINT + path, json.dumps(body).encode(), headers, method="PUT")
    urllib.request.urlopen(request).close()


def prepare():
    put("users/rust3", {"password": "rust3", "tags": ""})
    put("cluster-name", {"name": "rabbitmq@localhost"})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    for vhost in VHOSTS:
        quoted = urllib.request.quote(vhost, safe="")
        put(f"vhosts/{quoted}", {})
        for user in USERS if vhost == "/" else USERS[:1]:
            put(f"permissions/{quoted}/{user}", everything)


def expected_failures(path):
    with open(path) as lines:
        pairs = [line.rstrip("\n").split(": ", 1) for line in lines if line.strip() and not line.startswith("#")]
    return dict(pairs)


class Suite:
    def __init__(self, folder, arguments):
        self.folder, self.arguments, self.output = folder, arguments, {}

    def run(self, *selected):
        """The outcomes of tests: `ok`, `FAILED` or `ignored`, by name."""
        command = ["cargo", "test", "--offline", "--locked", "--test", "integration", *self.arguments]
        ran = subprocess.run(
            [*command, "--", "--test-threads=1", *selected],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        outcomes = dict(re.findall(r"^test (\S+) (?:- should panic )?\.\.\. (ok|FAILED|ignored)", ran.stdout, re.M))
        for name, text in re.findall(r"^---- (\S+) stdout ----\n(.*?)(?=^---- |^failures:)", ran.stdout, re.M | re.S):
            self.output[name] = text
        if not outcomes:
            # Also if a listed test is gone.
            sys.exit(f"no test ran:\n{ran.stdout}")
        return outcomes


def main():
    failures, folder, *arguments = sys.argv[1:]
    expected = expected_failures(failures)
    prepare()
    suite = Suite(folder, arguments)
    # Those that fail leave behind what they have made, so they come last.
    outcomes = suite.run("--exact", *(part for name in expected for part in ("--skip", name)))
    if expected:
        outcomes |= suite.run("--exact", *expected)
    for _ in range(RETRIES):
        failed = [name for name, outcome in outcomes.items() if outcome == "FAILED" and name not in expected]
        if failed:
            outcomes |= suite.run("--exact", *failed)
    failed = {name for name, outcome in outcomes.items() if outcome == "FAILED"}
    for name in sorted(failed - expected.keys()):
        print(f"FAILED {name}\n{suite.output.get(name, '')}")
    for name in sorted(expected.keys() - failed):
        print(f"passes, though it is listed as one that cannot: {name}")
    passed = sum(outcome == "ok" for outcome in outcomes.values())
    run = sum(outcome != "ignored" for outcome in outcomes.values())
    print(f"{passed} of {run} tests passed; {len(failed & expected.keys())} cannot")
    sys.exit(1 if failed - expected.keys() else 0)


if __name__ == "__main__":
    main()
