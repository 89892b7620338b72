"""Whether each panel of the chart's Grafana dashboard has data, asked of a Prometheus that scrapes three nodes.

    test_dashboard.py --prometheus FILE --http HOST:PORT[,HOST:PORT...] HOST:PORT [HOST:PORT ...]

Prometheus is that of Debian. Messages die for every reason meanwhile. With --keep FILE the answers over the whole time are
written there as JSON, to be drawn.
"""

import argparse
import contextlib
import json
import math
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import uuid

import pika

DASHBOARD = pathlib.Path(__file__).parents[3] / "helm" / "quorate" / "dashboards" / "quorate.json"
RUN = uuid.uuid4().hex[:8]
LOAD_SECONDS = 20
WAIT_SECONDS = 30
# Panels about what does not happen in every cluster within these seconds: their series are there, without a number.
MAY_BE_IDLE = {"Duration of elections (p99)", "Checkpoints (p99)"}


class Prometheus:
    def __init__(self, program, nodes, folder):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        targets = [
            {"targets": [node], "labels": {"namespace": "quorate", "pod": f"quorate-{number}"}}
            for number, node in enumerate(nodes)
        ]
        scrape = {"job_name": "quorate", "metrics_path": "/metrics/per-object", "static_configs": targets}
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [scrape]}
        file = pathlib.Path(folder) / "prometheus.yml"
        # JSON is YAML.
        file.write_text(json.dumps(config))
        command = [program, f"--config.file={file}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={self.address}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(self, path, **parameters):
        """The series of an answer."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]["result"]

    def await_nodes(self, count):
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if len(self.ask("query", query="up == 1")) == count:
                    return
            time.sleep(0.2)
        raise AssertionError(f"Prometheus does not scrape {count} nodes after {WAIT_SECONDS} s")

    def stop(self):
        self.process.terminate()
        self.process.wait()


@contextlib.contextmanager
def load(addresses):
    """Messages have died for each reason, on all nodes; nothing takes some of the dead letters."""
    name = lambda of: f"dashboard-{of}-{RUN}"
    quorum = {"x-queue-type": "quorum"}
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name("dead")}
    certain = quorum | letters | {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    stranded = certain | {"x-dead-letter-routing-key": name("nowhere")}
    queues = {
        "dead": quorum,
        "rejected": certain,
        "limited": certain | {"x-delivery-limit": 1},
        "expired": quorum | letters | {"x-message-ttl": 1},
        "long": quorum | letters | {"x-max-length": 1},
        "stranded": stranded | {"x-message-ttl": 1},
    }
    with contextlib.ExitStack() as open_ones:
        channels = []
        for address in addresses:
            host, port = address.rsplit(":", 1)
            connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
            open_ones.callback(connection.close)
            channels.append(connection.channel())
            channels[-1].confirm_delivery()
        for queue, arguments in queues.items():
            channels[0].queue_declare(name(queue), durable=True, arguments=arguments)
        end = time.monotonic() + LOAD_SECONDS
        while time.monotonic() < end:
            for channel in channels:
                for queue in queues:
                    channel.basic_publish("", name(queue), b"x" * 100)
                for queue, requeue in (("rejected", False), ("limited", True), ("dead", None)):
                    got, _, _ = channel.basic_get(name(queue))
                    if got and requeue is None:
                        channel.basic_ack(got.delivery_tag)
                    elif got:
                        channel.basic_reject(got.delivery_tag, requeue)
        yield
        for queue in queues:
            channels[0].queue_delete(name(queue))


def panels():
    """Title and queries of each panel, as Grafana asks when all namespaces are chosen."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        queries = [target["expr"].replace("$namespace", ".*").replace("$__rate_interval", "15s") for target in panel.get("targets", [])]
        assert all("$" not in query for query in queries), (panel["title"], queries)
        if panel["type"] != "row":
            assert queries, panel["title"]
            yield panel["title"], queries


def lack(prometheus, title, query):
    """What the answer to a query lacks, or nothing."""
    series = prometheus.ask("query", query=query)
    if not series:
        return "no series"
    if title not in MAY_BE_IDLE and not any(math.isfinite(float(one["value"][1])) for one in series):
        return "no number"
    return None


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--prometheus", required=True)
    parser.add_argument("--http", required=True)
    parser.add_argument("--keep")
    parser.add_argument("addresses", nargs="+")
    arguments = parser.parse_args()
    nodes, begun, failed, count = arguments.http.split(","), time.time(), 0, 0
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stopped:
        prometheus = Prometheus(arguments.prometheus, nodes, folder)
        stopped.callback(prometheus.stop)
        prometheus.await_nodes(len(nodes))
        with load(arguments.addresses):
            kept = {}
            for title, queries in panels():
                for query in queries:
                    lacking, count = lack(prometheus, title, query), count + 1
                    failed += lacking is not None
                    print(f"FAILED  {title}: {lacking}: {query}" if lacking else f"ok      {title}")
                    if arguments.keep:
                        span = {"start": begun, "end": time.time(), "step": 1}
                        kept.setdefault(title, []).append(prometheus.ask("query_range", query=query, **span))
            if arguments.keep:
                pathlib.Path(arguments.keep).write_text(json.dumps(kept))
    print(f"{count - failed} of {count} queries have data")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
