"""What tools for operators ask of the HTTP API, against three nodes.

    test_management.py --rabbitmqadmin FILE --promtool FILE --http HOST:PORT[,HOST:PORT...] HOST:PORT [HOST:PORT ...]

rabbitmqadmin is version 1, and promtool Prometheus' own, both as Debian packages them. One check is one function; its docstring says what
tool it stands for. Requests go to the nodes in turn.
"""

import argparse
import asyncio
import base64
import contextlib
import http.client
import itertools
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.parse
import uuid

import pika
from flower.utils.broker import Broker

WAIT_SECONDS = 300  # what has not come by then never comes
RUN = uuid.uuid4().hex[:8]
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


class Api:
    """The HTTP API, asked through the nodes in turn."""

    def __init__(self, addresses):
        self.addresses = addresses
        self.turns = itertools.cycle(addresses)

    def ask(self, method, path, body=None, user="guest", node=None, headers=None):
        """Status, headers and body of an answer; `user` None: without authentication."""
        address = self.addresses[node] if node is not None else next(self.turns)
        connection = http.client.HTTPConnection(address, timeout=WAIT_SECONDS)
        sent = {"Content-Type": "application/json"} | (headers or {})
        if user is not None:
            sent["Authorization"] = "Basic " + base64.b64encode(f"{user}:guest".encode()).decode()
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, answer.headers, json.loads(text) if text else None

    def get(self, path):
        status, _, body = self.ask("GET", path)
        assert status == 200, (path, status, body)
        return body

    def put(self, path, body, *expected):
        status, _, answer = self.ask("PUT", path, body)
        assert status in (expected or (201, 204)), (path, status, answer)
        return status

    def delete(self, path):
        status, _, answer = self.ask("DELETE", path)
        assert status == 204, (path, status, answer)


class Scene:
    def __init__(self, arguments):
        self.amqp, self.api = arguments.addresses, Api(arguments.http.split(","))
        self.rabbitmqadmin_file = arguments.rabbitmqadmin
        self.promtool_file = arguments.promtool

    @contextlib.contextmanager
    def channel(self, node=0):
        host, port = self.amqp[node % len(self.amqp)].rsplit(":", 1)
        connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
        try:
            channel = connection.channel()
            channel.confirm_delivery()
            yield channel
        finally:
            connection.close()

    @contextlib.contextmanager
    def queue(self, name, messages=0, arguments=None, node=0):
        """A queue with messages, through AMQP."""
        name = f"{name}-{RUN}"
        with self.channel(node) as channel:
            channel.queue_declare(name, durable=True, arguments=arguments or {"x-queue-type": "quorum"})
            for number in range(messages):
                channel.basic_publish("", name, str(number).encode())
            yield name, channel
            channel.queue_delete(name)

    def rabbitmqadmin(self, *arguments, fails=False):
        """What rabbitmqadmin prints; a list is printed as JSON."""
        host, port = next(self.api.turns).rsplit(":", 1)
        command = [sys.executable, self.rabbitmqadmin_file, "-H", host, "-P", port, "-f", "raw_json", *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (ran.returncode != 0) == fails, (arguments, ran)
        return ran.stderr if fails else ran.stdout

    def rows(self, *arguments):
        return json.loads(self.rabbitmqadmin(*arguments))


def quoted(text):
    return urllib.parse.quote(text, safe="")


def eventually(expected, observed):
    end = time.monotonic() + WAIT_SECONDS
    while (found := observed()) != expected and time.monotonic() < end:
        time.sleep(0.05)
    assert found == expected, (found, expected)


# --- autoscalers, dashboards, probes ---------------------------------------------------------------------------


@check
def keda_reads_the_length_of_a_queue(scene):
    """KEDA's scaler: one queue, its counts on every node; a missing field would be read as 0."""
    with scene.queue("keda", messages=5) as (name, channel):
        channel.basic_get(name)
        for node in range(len(scene.api.addresses)):
            for vhost in ("%2F", urllib.parse.quote_plus("/")):
                path = f"/api/queues/{vhost}/{name}"
                counts = lambda: [
                    scene.api.ask("GET", path, node=node)[2].get(field)
                    for field in ("name", "messages", "messages_ready", "messages_unacknowledged")
                ]
                eventually([name, 5, 4, 1], counts)
    status, _, _ = scene.api.ask("GET", f"/api/queues/%2F/none-{RUN}")
    assert status == 404, status


@check
def keda_adds_up_queues_that_match(scene):
    """KEDA's scaler with useRegex: a page object although `pagination=false`, of all virtual hosts of the name."""
    vhost = f"a b {RUN}"
    scene.api.put(f"/api/vhosts/{quoted(vhost)}", {}, 201)
    try:
        for number in range(3):
            queue = f"/api/queues/{urllib.parse.quote_plus(vhost)}/regex-{number}"
            # A virtual host with a blank comes as a plus sign, which a path does not decode.
            status, _, _ = scene.api.ask("GET", queue)
            assert status == 404, status
            scene.api.put(f"/api/queues/{quoted(vhost)}/regex-{number}", {"durable": True}, 201)
        query = "page=1&use_regex=true&pagination=false&name=%5Eregex-%5B01%5D%24&page_size=100"
        page = scene.api.get(f"/api/queues/{quoted(vhost)}?{query}")
        assert sorted(item["name"] for item in page["items"]) == ["regex-0", "regex-1"], page
        assert (page["page_count"], page["filtered_count"], page["total_count"]) == (1, 2, 3), page
        assert all(item["messages"] == 0 and item["messages_unacknowledged"] == 0 for item in page["items"]), page
    finally:
        scene.api.delete(f"/api/vhosts/{quoted(vhost)}")


@check
def flower_shows_queues(scene):
    """Flower's view of the broker, by its own code."""
    with scene.queue("flower", messages=2) as (name, _):
        broker = Broker(
            f"amqp://guest:guest@{scene.amqp[0]}//", http_api=f"http://guest:guest@{scene.api.addresses[-1]}/api/"
        )
        shown = asyncio.run(broker.queues([name]))
        assert [(one["name"], one["messages"], one["consumers"]) for one in shown] == [(name, 2, 0)], shown
        assert {"messages_ready", "messages_unacknowledged"} <= shown[0].keys(), shown


@check
def prometheus_reads_the_metrics(scene):
    """A scrape of each endpoint on every node, as Prometheus parses it; it has no advice either."""
    paths = ("/metrics", "/metrics/per-object", "/metrics/memory-breakdown", "/metrics/detailed?family=queue_coarse_metrics&family=queue_metrics")
    with scene.queue("scraped", messages=2):
        for address in scene.api.addresses:
            for path in paths:
                connection = http.client.HTTPConnection(address, timeout=WAIT_SECONDS)
                with contextlib.closing(connection):
                    connection.request("GET", path)
                    answer = connection.getresponse()
                    scraped = answer.read()
                assert answer.status == 200, (path, answer.status, scraped[:200])
                assert scraped.count(b"\nrabbitmq_identity_info{") + scraped.startswith(b"rabbitmq_identity_info{") == 1, path
                checked = subprocess.run([scene.promtool_file, "check", "metrics"], input=scraped, capture_output=True)
                said = (checked.stdout + checked.stderr).decode()
                assert checked.returncode == 0 and not said, (path, said[-2000:])


@check
def probes_need_no_password(scene):
    """Kubernetes' and load balancers' probes: four checks without authentication, on every node."""
    for node in range(len(scene.api.addresses)):
        for name in (
            "ready-to-serve-clients", "is-in-service", "below-node-connection-limit", "reached-target-cluster-size",
        ):
            for method in ("GET", "HEAD"):
                path = f"/api/health/checks/{name}"
                status, _, body = scene.api.ask(method, path, user=None, node=node)
                assert status == 200, (path, status, body)
                assert method == "HEAD" or body["status"] == "ok", body


@check
def monitors_check_health(scene):
    """The checks of monitoring systems; one that fails is answered 503 with a reason."""
    for name in (
        "alarms", "local-alarms", "virtual-hosts", "protocol-listener/amqp", "node-is-quorum-critical",
        "metadata-store/initialized", "quorum-queues-without-elected-leaders/all-vhosts",
    ):
        body = scene.api.get(f"/api/health/checks/{name}")
        assert body["status"] == "ok", (name, body)
    port = scene.amqp[0].rsplit(":", 1)[1]
    status, _, body = scene.api.ask("GET", f"/api/health/checks/port-listener/{port}", node=0)
    assert (status, body) == (200, {"status": "ok", "port": int(port)}), body
    for name in ("port-listener/1", "protocol-listener/mqtt"):
        status, _, body = scene.api.ask("GET", f"/api/health/checks/{name}")
        assert status == 503 and body["status"] == "failed" and body["reason"], (name, status, body)
    status, _, body = scene.api.ask("GET", "/api/aliveness-test/%2F")
    assert (status, body) == (200, {"status": "ok"}), body
    status, headers, _ = scene.api.ask("GET", "/api/health/checks/alarms", user=None)
    assert status == 401 and headers["WWW-Authenticate"].startswith("Basic"), (status, headers)


@check
def spring_finds_the_leader(scene):
    """Spring AMQP's locator: `node` is the leader, by the name that the node gives itself."""
    nodes = {node["name"] for node in scene.api.get("/api/nodes")}
    with scene.queue("spring") as (name, _):
        queue = scene.api.get(f"/api/queues/%2F/{name}")
        assert queue["node"] in nodes and queue["node"] == queue["leader"], queue
        assert queue["type"] == "quorum" and set(queue["members"]) <= nodes, queue


# --- infrastructure as code ------------------------------------------------------------------------------------


@check
def terraform_makes_reads_and_destroys(scene):
    """Terraform's provider: 201 with `Location`, arguments with their types, 404 for what is gone."""
    vhost, api = quoted(f"terraform/{RUN}"), scene.api
    api.put(f"/api/vhosts/{vhost}", {"description": "d", "tags": "a,b", "default_queue_type": "quorum"}, 201)
    shown = api.get(f"/api/vhosts/{vhost}/")
    assert (shown["description"], shown["tags"], shown["default_queue_type"]) == ("d", ["a", "b"], "quorum"), shown
    user = f"terraform-{RUN}"
    api.put(f"/api/users/{user}", {"password": "p", "tags": "policymaker"}, 201)
    assert user in [one["name"] for one in api.get("/api/users/")]
    permissions = {"configure": "^a", "write": ".*", "read": ""}
    api.put(f"/api/permissions/{vhost}/{user}", permissions, 201)
    shown = api.get(f"/api/permissions/{vhost}/{user}/")
    assert permissions.items() <= shown.items(), shown
    topics = [{"exchange": name, "write": "^w", "read": "^r"} for name in ("amq.topic", "t")]
    # RabbitMQ answers for the user's topic permissions in the virtual host, of any exchange.
    assert [api.put(f"/api/topic-permissions/{vhost}/{user}", topic) for topic in topics] == [201, 204]
    assert len(api.get(f"/api/topic-permissions/{vhost}/{user}")) == 2

    exchange = {"type": "topic", "durable": True, "arguments": {"alternate-exchange": "amq.fanout"}}
    api.put(f"/api/exchanges/{vhost}/x", exchange, 201)
    arguments = {"x-max-length": 5, "x-overflow": "reject-publish", "x-single-active-consumer": True}
    api.put(f"/api/queues/{vhost}/q", {"durable": True, "arguments": arguments}, 201)
    api.put(f"/api/queues/{vhost}/q", {"durable": True, "arguments": arguments}, 204)
    shown = api.get(f"/api/queues/{vhost}/q")["arguments"]
    assert arguments.items() <= shown.items(), shown
    binding = {"routing_key": "a b/c.#", "arguments": {"n": 1, "s": "1"}}
    status, headers, _ = api.ask("POST", f"/api/bindings/{vhost}/e/x/q/q", binding)
    assert status == 201, status
    key = headers["Location"].split("/")[1]
    shown = api.get(f"/api/bindings/{vhost}/e/x/q/q/{key}")
    assert binding.items() <= shown.items() and quoted(shown["properties_key"]) == key, (shown, key)
    assert shown in api.get(f"/api/bindings/{vhost}/")

    policy = {"pattern": "^q", "apply-to": "queues", "priority": 3, "definition": {"max-length": 4, "overflow": "drop-head"}}
    for kind in ("policies", "operator-policies"):
        definition = {"max-length": 4} if kind == "operator-policies" else policy["definition"]
        wanted = policy | {"definition": definition}
        api.put(f"/api/{kind}/{vhost}/p", wanted, 201)
        shown = api.get(f"/api/{kind}/{vhost}/p")
        assert wanted.items() <= shown.items(), shown
        api.delete(f"/api/{kind}/{vhost}/p")
    api.put(f"/api/vhost-limits/{vhost}/max-queues", {"value": 7})
    assert api.get(f"/api/vhost-limits/{vhost}") == [{"vhost": f"terraform/{RUN}", "value": {"max-queues": 7}}]
    parameter = f"/api/global-parameters/terraform-{RUN}"
    api.put(parameter, {"value": {"a": [1, "1"]}}, 201)
    assert api.get(parameter)["value"] == {"a": [1, "1"]}

    for path in (
        parameter, f"/api/bindings/{vhost}/e/x/q/q/{key}", f"/api/queues/{vhost}/q", f"/api/exchanges/{vhost}/x",
        f"/api/permissions/{vhost}/{user}", f"/api/users/{user}", f"/api/vhosts/{vhost}",
    ):
        api.delete(path)
        for method in ("GET", "DELETE"):
            status, _, body = api.ask(method, path)
            assert status == 404, (method, path, status, body)


@check
def a_protected_virtual_host_is_not_deleted(scene):
    """Deletion protection, as cluster operators set it."""
    vhost = f"/api/vhosts/protected-{RUN}"
    scene.api.put(vhost, {}, 201)
    assert scene.api.ask("POST", f"{vhost}/deletion/protection")[0] == 204
    assert scene.api.get(vhost)["protected_from_deletion"] is True
    status, _, body = scene.api.ask("DELETE", vhost)
    assert status == 412 and "protected" in body["reason"], (status, body)
    scene.api.delete(f"{vhost}/deletion/protection")
    scene.api.delete(vhost)


@check
def replicas_are_placed_by_the_cluster(scene):
    """A change of replicas is answered with success if it is so already, and else refused with the reason."""
    with scene.queue("replicas") as (name, _):
        queue = scene.api.get(f"/api/queues/%2F/{name}")
        there = {"node": queue["members"][0]}
        path = f"/api/queues/quorum/%2F/{name}"
        assert len(scene.api.get(f"{path}/status")) == len(queue["members"])
        assert scene.api.ask("POST", f"{path}/replicas/add", there)[0] == 204
        status, _, body = scene.api.ask("DELETE", f"{path}/replicas/delete", there)
        assert status == 405 and "places" in body["reason"], (status, body)
        on = f"/api/queues/quorum/replicas/on/{quoted(there['node'])}"
        every = {"vhost_pattern": ".*", "queue_pattern": "^replicas-", "strategy": "all"}
        assert scene.api.ask("POST", f"{on}/grow", every)[0] == 204
        assert scene.api.ask("DELETE", f"{on}/shrink")[0] == 405
        status, _, body = scene.api.ask("POST", f"{path}/replicas/add", {"node": "rabbit@none"})
        assert status == 400 and "rabbit@none" in body["reason"], (status, body)


@check
def paths_and_methods_are_taken_as_clients_write_them(scene):
    """Slashes too many, HEAD, OPTIONS, and 405 with the methods that are allowed."""
    for path in ("//api/overview", "/api//overview", "/api/overview/", "/api/queues//", "/api/queues/%2F/"):
        for method in ("GET", "HEAD"):
            assert scene.api.ask(method, path)[0] == 200, path
    status, headers, _ = scene.api.ask("DELETE", "/api/overview")
    assert status == 405 and "GET" in headers["Allow"], (status, headers)
    status, headers, _ = scene.api.ask("OPTIONS", "/api/queues/%2F/q", user=None)
    assert status == 200 and {"PUT", "DELETE"} <= set(headers["Allow"].split(", ")), headers
    for path in ("shovels", "federation-links", "stream/connections", "stream/publishers", "stream/consumers"):
        assert scene.api.get(f"/api/{path}") == [], path
    assert scene.api.get("/api/deprecated-features/used") == []


# --- rabbitmqadmin, version 1 ----------------------------------------------------------------------------------


@check
def rabbitmqadmin_declares_lists_and_deletes(scene):
    """Each object: declared, listed, deleted, and gone."""
    vhost, user = f"admin-{RUN}", f"admin-{RUN}"
    run, rows = scene.rabbitmqadmin, scene.rows
    run("declare", "vhost", f"name={vhost}")
    run("declare", "user", f"name={user}", "password=p", "tags=monitoring")
    run("declare", "permission", f"vhost={vhost}", f"user={user}", "configure=.*", "write=.*", "read=.*")
    within = ("-V", vhost)
    run("declare", "permission", f"vhost={vhost}", "user=guest", "configure=.*", "write=.*", "read=.*")
    run(*within, "declare", "exchange", "name=x", "type=topic")
    run(*within, "declare", "queue", "name=q", "durable=true", "queue_type=quorum", 'arguments={"x-max-length":9}')
    run(*within, "declare", "binding", "source=x", "destination=q", "routing_key=a.#")
    run(*within, "declare", "policy", "name=p", "pattern=^q", 'definition={"max-length":3}', "apply-to=queues")
    run(*within, "declare", "operator_policy", "name=o", "pattern=^q", 'definition={"max-length":4}', "apply-to=queues")
    run("declare", "vhost_limit", f"vhost={vhost}", "name=max-queues", "value=5")

    named = lambda kind, *columns: [tuple(row[column] for column in columns) for row in rows(*within, "list", kind, *columns)]
    assert ("q", "quorum", 0) in named("queues", "name", "type", "messages")
    assert ("x", "topic") in named("exchanges", "name", "type")
    assert ("x", "q", "a.#", "a.%23") in named("bindings", "source", "destination", "routing_key", "properties_key")
    assert (vhost,) in named("vhosts", "name") and (user, ["monitoring"]) in named("users", "name", "tags")
    assert (vhost, user) in named("permissions", "vhost", "user")
    assert (vhost, "p", {"max-length": 3}) in named("policies", "vhost", "name", "definition")
    assert (vhost, "o") in named("operator_policies", "vhost", "name")
    assert (vhost, {"max-queues": 5}) in named("vhost_limits", "vhost", "value")
    assert all(running for (running,) in named("nodes", "running"))
    assert rows("show", "overview", "rabbitmq_version")[0]["rabbitmq_version"].startswith("4.")
    with scene.channel(1):
        connection = rows("list", "connections", "name", "user")[0]
        assert connection["user"] == "guest" and rows("list", "channels", "name"), connection

    run("delete", "vhost_limit", f"vhost={vhost}", "name=max-queues")
    for kind in ("policy name=p", "operator_policy name=o", "exchange name=x", "queue name=q"):
        run(*within, "delete", *kind.split())
    assert "not found" in run(*within, "delete", "queue", "name=q", fails=True).lower()
    run("delete", "permission", f"vhost={vhost}", f"user={user}")
    run("delete", "user", f"name={user}")
    run("delete", "vhost", f"name={vhost}")


@check
def rabbitmqadmin_publishes_and_gets(scene):
    """publish, get in every way, purge."""
    with scene.queue("admin") as (name, _):
        run = scene.rabbitmqadmin
        for number in range(4):
            properties = json.dumps({"delivery_mode": 2, "message_id": str(number)})
            run("publish", f"routing_key={name}", f"payload=body {number}", f"properties={properties}")
        kept = scene.rows("get", f"queue={name}", "count=1", "ackmode=ack_requeue_true")
        assert (kept[0]["payload"], kept[0]["message_count"]) == ("body 0", 3), kept
        assert kept[0]["properties"]["message_id"] == "0", kept
        taken = scene.rows("get", f"queue={name}", "count=2", "ackmode=ack_requeue_false")
        assert [message["payload"] for message in taken] == ["body 0", "body 1"], taken
        run("purge", "queue", f"name={name}")
        assert scene.rows("get", f"queue={name}") == []


@check
def rabbitmqadmin_exports_and_imports(scene):
    """Definitions of the cluster: what was exported is there again after the import."""
    with tempfile.TemporaryDirectory() as folder, scene.queue("exported") as (name, channel):
        file = pathlib.Path(folder) / "definitions.json"
        scene.rabbitmqadmin("export", str(file))
        assert name in [queue["name"] for queue in json.loads(file.read_text())["queues"]]
        channel.queue_delete(name)
        assert scene.api.ask("GET", f"/api/queues/%2F/{name}")[0] == 404
        scene.rabbitmqadmin("import", str(file))
        assert scene.api.get(f"/api/queues/%2F/{name}")["type"] == "quorum"


@check
def rabbitmqadmin_closes_a_connection(scene):
    """Connections are closed by their names, with blanks and arrows."""
    name = lambda: [row["name"] for row in scene.rows("list", "connections", "name", "user_provided_name")
                    if row["user_provided_name"] == f"close-{RUN}"]
    host, port = scene.amqp[-1].rsplit(":", 1)
    parameters = pika.ConnectionParameters(host, int(port), client_properties={"connection_name": f"close-{RUN}"})
    connection = pika.BlockingConnection(parameters)
    [found] = name()
    scene.rabbitmqadmin("close", "connection", f"name={found}")
    try:
        connection.process_data_events(WAIT_SECONDS)
        raise AssertionError("the connection is still open")
    except pika.exceptions.ConnectionClosed as closed:
        assert closed.reply_code == 320, closed
    eventually([], name)


@check
def messages_are_got_however_large_they_are(scene):
    """More than a client of AMQP may have waiting to be written, and nothing is kept from others afterwards."""
    payload = "x" * 900_000
    with scene.queue("large") as (name, _):
        for _ in range(8):
            body = {"routing_key": name, "properties": {}, "payload": payload, "payload_encoding": "string"}
            status, _, answer = scene.api.ask("POST", "/api/exchanges/%2F/amq.default/publish", body)
            assert (status, answer) == (200, {"routed": True}), (status, answer)
        wanted = {"count": 8, "ackmode": "ack_requeue_true", "encoding": "auto"}
        status, _, got = scene.api.ask("POST", f"/api/queues/%2F/{name}/get", wanted)
        assert (status, len(got)) == (200, 8), (status, len(got))
        assert all(message["payload"] == payload for message in got)
        counts = lambda: [scene.api.get(f"/api/queues/%2F/{name}")[of] for of in ("messages_ready", "messages_unacknowledged")]
        eventually([8, 0], counts)


@check
def pages_of_other_sites_change_nothing(scene):
    """A browser that knows the password sends it with forms of other sites too."""
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://elsewhere.example"}):
        status, _, answer = scene.api.ask("PUT", f"/api/queues/%2F/forged-{RUN}", {}, headers=headers)
        assert status == 403, (headers, status, answer)
        status, _, answer = scene.api.ask("GET", "/api/whoami", headers=headers)
        assert status == 200, (headers, status, answer)
    status, _, _ = scene.api.ask("GET", f"/api/queues/%2F/forged-{RUN}")
    assert status == 404, status


@check
def probes_are_answered_beside_kept_connections(scene):
    """A client without a login keeps more connections than the port has places for."""
    host, port = scene.api.addresses[0].rsplit(":", 1)
    request = f"GET /health/live HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    with contextlib.ExitStack() as kept:
        for _ in range(300):
            client = kept.enter_context(socket.create_connection((host, int(port)), WAIT_SECONDS))
            client.sendall(request)
            assert client.recv(1_024).startswith(b"HTTP/1.1 200"), "a kept connection"
        probe = http.client.HTTPConnection(scene.api.addresses[0], timeout=8)  # kept ones are closed after ten
        with contextlib.closing(probe):
            probe.request("GET", "/health/live")
            assert probe.getresponse().status == 200


@check
def a_filter_that_cannot_be_decoded_is_refused(scene):
    """Left out, it would be no filter."""
    for path in ("/api/queues?page=1&name=%ff", "/api/queues?columns=%zz"):
        status, headers, answer = scene.api.ask("GET", path)
        assert (status, answer["error"], headers["X-Content-Type-Options"]) == (400, "bad_request", "nosniff"), answer
        assert "%" in answer["reason"], answer


@check
def dry_runs_keep_nobody_waiting(scene):
    """A slow one is answered at full speed, since it changes nothing."""
    with scene.queue("tried", messages=60) as (name, _):
        task = {"kind": "delete", "vhost": "/", "queue": name, "filter": {"min_age": "0s"}, "rate": 1, "dry_run": True}
        status, _, answer = scene.api.ask("POST", "/api/quorate/tasks", task)
        assert (status, answer["matched"], answer["complete"]) == (200, 60, True), (status, answer)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--rabbitmqadmin", required=True)
    parser.add_argument("--promtool", required=True)
    parser.add_argument("--http", required=True)
    parser.add_argument("addresses", nargs="+")
    scene, failed = Scene(parser.parse_args()), 0
    for function in CHECKS:
        try:
            function(scene)
            print(f"ok      {function.__name__}")
        except Exception as error:
            failed += 1
            at = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__]
            print(f"FAILED  {function.__name__}, lines {at}: {type(error).__name__}: {error}")
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} checks passed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
