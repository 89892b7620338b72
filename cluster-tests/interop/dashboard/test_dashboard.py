"""Whether each panel of the chart's Grafana dashboard has data, and each of RabbitMQ's dashboards "Overview" and
"Quorum-Queues-Raft", asked of a Prometheus that scrapes three nodes.

    test_dashboard.py --prometheus FILE --http HOST:PORT[,HOST:PORT...] HOST:PORT [HOST:PORT ...]

Prometheus is that of Debian. Messages die for every reason meanwhile. With --keep FILE the answers over the whole time are
written there as JSON, to be drawn.
"""

import argparse
import contextlib
import itertools
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
WAIT_SECONDS = 300  # what has not come by then never comes
# Panels about what does not happen in every cluster within these seconds: their series are there, without a number.
MAY_BE_IDLE = {"Duration of elections (p99)", "Checkpoints (p99)"}
# The jobs of Prometheus, by the endpoint that each scrapes. RabbitMQ's dashboards let one choose between the two.
JOBS = {"per-object": "/metrics/per-object", "aggregated": "/metrics"}
# What RabbitMQ's "Overview" shows of each node, as a number and as a rate.
GAUGES = """
    erlang_uptime_seconds process_resident_memory_bytes resident_memory_limit_bytes disk_space_available_bytes
    disk_space_available_limit_bytes process_open_fds process_max_fds connections channels queues queue_messages_ready
    queue_messages_unacked global_publishers global_consumers alarms_memory_used_watermark
    alarms_free_disk_space_watermark alarms_file_descriptor_limit
""".split()
COUNTERS = """
    connections_opened connections_closed channels_opened channels_closed queues_declared queues_created queues_deleted
    global_messages_received global_messages_received_confirm global_messages_confirmed global_messages_routed
    global_messages_unroutable_dropped global_messages_unroutable_returned global_messages_delivered
    global_messages_delivered_consume_auto_ack global_messages_delivered_consume_manual_ack
    global_messages_delivered_get_auto_ack global_messages_delivered_get_manual_ack global_messages_get_empty
    global_messages_redelivered global_messages_acknowledged
""".split()
# Upper bounds of the sizes of messages that it shows, written as Prometheus writes them.
SIZES = ["100.0", "1000.0", "10000.0", "100000.0", "1e+06", "1e+07", "5e+07", "1e+08", "+Inf"]
# What "Quorum-Queues-Raft" shows of each queue, and of each node.
RAFT_OF_QUEUES = ["term", "commit_index", "last_written_index", "snapshot_index", "commit_latency_seconds"]
RAFT_OF_NODES = """
    max_num_segments max_commit_latency_seconds wal_files bytes_written mem_tables entries segments
""".split()


class Prometheus:
    def __init__(self, program, nodes, folder):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        # The namespace is the endpoint, so that no query adds the two up.
        scrapes = [
            {"job_name": endpoint, "metrics_path": path, "static_configs": [
                {"targets": [node], "labels": {"namespace": endpoint, "pod": f"quorate-{number}"}}
                for number, node in enumerate(nodes)
            ]}
            for endpoint, path in JOBS.items()
        ]
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": scrapes}
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
                if len(self.ask("query", query="up == 1")) == count * len(JOBS):
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
        # Each node leads some of them.
        for channel, (queue, arguments) in zip(itertools.cycle(channels), queues.items()):
            channel.queue_declare(name(queue), durable=True, arguments=arguments)
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
    """Title and queries of each panel, as Grafana asks."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        queries = [target["expr"].replace("$namespace", "per-object").replace("$__rate_interval", "15s") for target in panel.get("targets", [])]
        assert all("$" not in query for query in queries), (panel["title"], queries)
        if panel["type"] != "row":
            assert queries, panel["title"]
            yield panel["title"], queries


def joined(expression, endpoint):
    """A series with the names of its node and cluster, as RabbitMQ's dashboards ask for it: the one that tells a node's
    identity must be there exactly once."""
    identity = f'rabbitmq_identity_info{{rabbitmq_cluster!="", namespace="{endpoint}", rabbitmq_endpoint="{endpoint}"}}'
    return f"{expression} * on(instance, job) group_left(rabbitmq_cluster, rabbitmq_node) {identity}"


def panels_of_rabbitmq():
    """Title, query and the number of series in its answer for what RabbitMQ's dashboards show of a cluster of three. None:
    any number above zero."""
    of_nodes = lambda expression, endpoint: f"sum by (rabbitmq_node) ({joined(expression, endpoint)})"
    for endpoint in JOBS:
        for gauge in GAUGES:
            yield f"{endpoint} {gauge}", of_nodes(f"rabbitmq_{gauge}", endpoint), 3
        for counter in COUNTERS:
            yield f"{endpoint} {counter}", of_nodes(f"rate(rabbitmq_{counter}_total[15s])", endpoint), 3
        increase = lambda of: f"sum({joined(f'increase(rabbitmq_message_size_bytes_{of}[15s])', endpoint)})"
        yield f"{endpoint} average size", f"{increase('sum')} / {increase('count')}", 1
        for size in SIZES:
            share = increase(f'bucket{{le="{size}"}}') + " / " + increase('bucket{le="+Inf"}')
            yield f"{endpoint} sizes up to {size}", share, 1
        build = "rabbitmq_erlang_uptime_seconds * on(instance, job) group_left(rabbitmq_version, erlang_version) rabbitmq_build_info"
        yield f"{endpoint} build", joined(build, endpoint), 3
        links = f"count by (rabbitmq_node) ({joined('erlang_vm_dist_node_state', endpoint)} == 3)"
        yield f"{endpoint} links to other nodes", links, 3
    for of_queue in RAFT_OF_QUEUES:
        yield f"raft {of_queue}", joined(f"rabbitmq_raft_{of_queue}", "per-object"), None
    for of_node in RAFT_OF_NODES:
        yield f"raft {of_node}", of_nodes(f"rabbitmq_raft_{of_node}", "aggregated"), 3


def lack(series, may_be_idle=False, wanted=None):
    """What the answer to a query lacks, or nothing."""
    if not series:
        return "no series"
    if wanted and len(series) != wanted:
        return f"{len(series)} series, not {wanted}"
    if not may_be_idle and not any(math.isfinite(float(one["value"][1])) for one in series):
        return "no number"
    return None


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--prometheus", required=True)
    parser.add_argument("--http", required=True)
    parser.add_argument("--keep")
    parser.add_argument("addresses", nargs="+")
    arguments = parser.parse_args()
    nodes, begun, lacking = arguments.http.split(","), time.time(), []

    def told(title, query, lacks):
        print(f"FAILED  {title}: {lacks}: {query}" if lacks else f"ok      {title}")
        lacking.append(lacks)

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stopped:
        prometheus = Prometheus(arguments.prometheus, nodes, folder)
        stopped.callback(prometheus.stop)
        prometheus.await_nodes(len(nodes))
        with load(arguments.addresses):
            kept = {}
            for title, queries in panels():
                for query in queries:
                    series = prometheus.ask("query", query=query)
                    told(title, query, lack(series, may_be_idle=title in MAY_BE_IDLE))
                    if arguments.keep:
                        span = {"start": begun, "end": time.time(), "step": 1}
                        kept.setdefault(title, []).append(prometheus.ask("query_range", query=query, **span))
            for title, query, wanted in panels_of_rabbitmq():
                told(title, query, lack(prometheus.ask("query", query=query), wanted=wanted))
            if arguments.keep:
                pathlib.Path(arguments.keep).write_text(json.dumps(kept))
    print(f"{lacking.count(None)} of {len(lacking)} queries have data")
    sys.exit(1 if any(lacking) else 0)


if __name__ == "__main__":
    main()
