"""pika (PyPI) against a broker: what its blocking and its asynchronous connection see.

    test_pika.py [--peer] HOST:PORT [HOST:PORT ...]

One check is one function; its docstring says what it proves and names the rules of the spec.
With several addresses the checks that say `node=` use different nodes. `--peer` says that the broker is
RabbitMQ 4.0: checks whose outcome decisions.md changes are then skipped or tolerant, and say by which rule.
"""

import argparse
import contextlib
import datetime
import decimal
import sys
import time
import uuid

import pika
from pika import exceptions

WAIT_SECONDS = 300  # what has not come by then never comes
RUN = uuid.uuid4().hex[:8]
FRAME_MAX = 131072
QUORUM = {"x-queue-type": "quorum"}
CLASSIC = {"x-queue-type": "classic"}
CHECKS = []


# --- what every check uses -------------------------------------------------------------------------------------


class Skipped(Exception):
    """The check does not apply to this broker."""


def check(function):
    CHECKS.append(function)
    return function


class Scene:
    """Connections, channels and names of one check; everything is closed and deleted when the check ends."""

    def __init__(self, addresses, peer):
        self.addresses, self.peer = addresses, peer
        self.opened, self.queues, self.exchanges = [], [], []

    def parameters(self, node=0, user="guest", password="guest", **more):
        host, port = self.addresses[node % len(self.addresses)].rsplit(":", 1)
        credentials = pika.PlainCredentials(user, password)
        return pika.ConnectionParameters(host, int(port), credentials=credentials, **more)

    def connection(self, node=0, **more):
        connection = pika.BlockingConnection(self.parameters(node, **more))
        self.opened.append(connection)
        return connection

    def channel(self, node=0, confirms=True):
        """A channel on a connection of its own, so that no error reaches another channel."""
        channel = self.connection(node).channel()
        if confirms:
            channel.confirm_delivery()
        return channel

    def name(self, kind="q"):
        name = f"interop-pika-{RUN}-{len(self.queues) + len(self.exchanges)}-{kind}"
        (self.exchanges if kind == "x" else self.queues).append(name)
        return name

    def queue(self, channel, arguments=QUORUM, **more):
        name = self.name()
        channel.queue_declare(name, durable=True, arguments=arguments, **more)
        return name

    def exchange(self, channel, kind, **more):
        name = self.name("x")
        channel.exchange_declare(name, kind, **more)
        return name

    def not_on_the_peer(self, reason):
        if self.peer:
            raise Skipped(reason)

    def end(self):
        for connection in self.opened:
            with contextlib.suppress(exceptions.AMQPError):
                connection.close()
        self.opened = []
        if self.queues or self.exchanges:
            channel = self.channel()
            for queue in self.queues:
                channel.queue_delete(queue)
            for exchange in self.exchanges:
                channel.exchange_delete(exchange)
            self.opened[0].close()


class Inbox:
    """A consumer that keeps what it is given."""

    def __init__(self, channel, queue, prefetch=0, **more):
        self.channel, self.messages = channel, []
        if prefetch:
            channel.basic_qos(prefetch_count=prefetch)
        self.tag = channel.basic_consume(queue, self._take, **more)

    def _take(self, _channel, method, properties, body):
        self.messages.append((method, properties, body))

    def __len__(self):
        return len(self.messages)

    def bodies(self):
        return [body for _, _, body in self.messages]

    def wait(self, count):
        deadline = time.monotonic() + WAIT_SECONDS
        while len(self) < count:
            assert time.monotonic() < deadline, f"{len(self)} of {count} messages came: {self.bodies()}"
            self.channel.connection.process_data_events(0.05)
        equal(len(self), count, "messages delivered")
        return self.messages


def equal(got, expected, what):
    assert got == expected, f"{what}: got {got!r}, expected {expected!r}"


def eventually(what, condition):
    """Asks until the condition holds, at most WAIT_SECONDS; its value."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS} s: {what}"
        time.sleep(0.02)


def refused(code, text, action):
    """The action closes its channel (soft error) with exactly this code and text."""
    _closed_by(exceptions.ChannelClosedByBroker, code, text, action)


def refused_hard(code, text, action):
    """The action closes its connection (hard error) with exactly this code and text."""
    _closed_by(exceptions.ConnectionClosedByBroker, code, text, action)


def _closed_by(kind, code, text, action):
    try:
        action()
    except kind as error:
        equal((error.reply_code, error.reply_text), (code, text), "refusal")
    else:
        raise AssertionError(f"not refused, expected {code} {text}")


def counts(channel, queue):
    """(ready messages, consumers)"""
    ok = channel.queue_declare(queue, passive=True).method
    return ok.message_count, ok.consumer_count


def publish(channel, queue, *bodies, exchange="", **more):
    for body in bodies:
        channel.basic_publish(exchange, queue, body, pika.BasicProperties(**more))


def get(channel, queue, **more):
    """The next message, waited for: what was returned may become ready an instant later (DUR-11)."""

    def got():
        method, properties, body = channel.basic_get(queue, **more)
        return method and (method, properties, body)

    return eventually(f"a message in {queue}", got)


def drained(channel, queue):
    """The bodies of all ready messages."""
    bodies = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(body)


def seen_on(scene, node, queue):
    """Another node may learn of a declare an instant later (BND-11)."""

    def known():
        try:
            counts(scene.channel(node), queue)
        except exceptions.ChannelClosedByBroker as error:
            return error.reply_code != 404
        return True

    eventually(f"{queue} known on node {node}", known)


def round_trip(scene, body=b"body", arguments=QUORUM, **properties):
    """(properties, body) as they come back from a queue."""
    channel = scene.channel()
    queue = scene.queue(channel, arguments)
    publish(channel, queue, body, **properties)
    _, got, body = get(channel, queue, auto_ack=True)
    return got, body


# --- A. connection ---------------------------------------------------------------------------------------------


@check
def connect_server_properties(scene):
    """Product and capabilities as RabbitMQ's (CONN-07, CONN-08, Q-01)."""
    properties = scene.connection()._impl.server_properties
    equal(properties["product"], "RabbitMQ", "product")
    for key in ("version", "platform", "copyright", "information", "cluster_name"):
        assert isinstance(properties[key], str) and properties[key], f"{key}: {properties.get(key)!r}"
    capabilities = properties["capabilities"]
    for name in (
        "publisher_confirms exchange_exchange_bindings basic.nack consumer_cancel_notify connection.blocked "
        "consumer_priorities authentication_failure_close per_consumer_qos direct_reply_to"
    ).split():
        equal(capabilities.get(name), True, name)


@check
def connect_tune_defaults(scene):
    """The broker proposes channel-max 2047, frame-max 131072, heartbeat 60 (CONN-16)."""
    offered = []

    def heartbeat(_connection, proposed):
        offered.append(proposed)
        return proposed

    connection = scene.connection(heartbeat=heartbeat)
    equal(offered, [60], "heartbeat proposed")
    equal(connection._impl.params.channel_max, 2047, "channel-max")
    equal(connection._impl.params.frame_max, FRAME_MAX, "frame-max")


@check
def connect_tune_lower(scene):
    """A client may ask for less, and bodies are cut to its frame-max both ways (CONN-16, FRM-10)."""
    connection = scene.connection(frame_max=8192, channel_max=3, heartbeat=7)
    parameters = connection._impl.params
    equal((parameters.frame_max, parameters.channel_max, parameters.heartbeat), (8192, 3, 7), "negotiated")
    channel = connection.channel()
    queue, body = scene.queue(channel), bytes(range(256)) * 400
    publish(channel, queue, body)
    equal(get(channel, queue, auto_ack=True)[2], body, "body")


@check
def connect_bad_password_refused(scene):
    """A wrong password and an unknown user get the same 403 (CONN-13, CONN-14)."""
    text = (
        "ConnectionClosedByBroker: (403) 'ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
        "For details see the broker logfile.'"
    )
    for user, password in (("guest", "wrong"), ("nobody-" + RUN, "guest")):
        try:
            scene.connection(user=user, password=password)
        except exceptions.ProbableAuthenticationError as error:
            equal(str(error), text, "refusal")
        else:
            raise AssertionError(f"{user}:{password} was let in")


@check
def connect_unknown_vhost_refused(scene):
    """An unknown virtual host is refused with 530 (CONN-20)."""
    try:
        scene.connection(virtual_host="missing-" + RUN)
    except exceptions.ProbableAccessDeniedError as error:
        text = f"NOT_ALLOWED - vhost missing-{RUN} not found"
        assert "530" in str(error) and text in str(error), str(error)
    else:
        raise AssertionError("was let in")


@check
def heartbeats_keep_an_idle_connection(scene):
    """With heartbeat 1 both sides stay content for longer than three of them (HB-01, HB-02)."""
    connection = scene.connection(heartbeat=1)
    channel = connection.channel()
    deadline = time.monotonic() + 4.5
    while time.monotonic() < deadline:  # idle time is the subject here
        connection.process_data_events(0.25)
    channel.queue_declare("", exclusive=True)


@check
def channels_many_and_reused(scene):
    """Fifty channels work side by side, and a closed one's number can be opened again (CHN-01, CHN-05)."""
    connection = scene.connection()
    channels = [connection.channel() for _ in range(50)]
    queue = scene.queue(channels[0])
    channels[24].close()
    again = connection.channel(channels[24].channel_number)
    for channel in [*channels[:24], again, *channels[25:]]:
        equal(counts(channel, queue), (0, 0), "counts")


# --- C. exchanges and routing ----------------------------------------------------------------------------------


@check
def exchange_predeclared(scene):
    """The predeclared exchanges exist, and redeclaring one as it is is fine (EXC-01, EXC-04)."""
    channel = scene.channel()
    for name, kind in (
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
    ):
        channel.exchange_declare(name, passive=True)
        channel.exchange_declare(name, kind, durable=True)


@check
def exchange_direct_and_unbind(scene):
    """direct routes on the equal key only, and no more after the unbind (RTE-02)."""
    channel = scene.channel()
    exchange, queue = scene.exchange(channel, "direct"), scene.queue(channel)
    channel.queue_bind(queue, exchange, "a")
    publish(channel, "a", b"1", exchange=exchange)
    publish(channel, "b", b"2", exchange=exchange)
    channel.queue_unbind(queue, exchange, "a")
    publish(channel, "a", b"3", exchange=exchange)
    equal(drained(channel, queue), [b"1"], "messages")


@check
def exchange_fanout(scene):
    """fanout ignores the key; a second equal binding makes no second copy (RTE-03, RTE-10, BND-03)."""
    channel = scene.channel()
    exchange = scene.exchange(channel, "fanout")
    queues = [scene.queue(channel), scene.queue(channel, CLASSIC)]
    for queue in queues:
        for key in ("", "", "other"):
            channel.queue_bind(queue, exchange, key)
    publish(channel, "anything", b"m", exchange=exchange)
    equal([drained(channel, queue) for queue in queues], [[b"m"], [b"m"]], "messages")


@check
def exchange_topic(scene):
    """`*` is one word, `#` any number, words may be empty, and `a*` is no wildcard (RTE-04)."""
    channel = scene.channel()
    exchange = scene.exchange(channel, "topic")
    keys = ["", "a", "a.b", "a.b.c", "b", "a..b", "a*", ".a"]
    expected = {
        "#": keys,
        "": [""],
        "*": ["a", "b", "a*"],
        "a.#": ["a", "a.b", "a.b.c", "a..b"],
        "a.*.b": ["a..b"],
        "#.b": ["a.b", "b", "a..b"],
        "*.a": [".a"],
        "a*": ["a*"],
        "a.*": ["a.b"],
        "#.b.#": ["a.b", "a.b.c", "b", "a..b"],
    }
    queues = {pattern: scene.queue(channel, CLASSIC) for pattern in expected}
    for pattern, queue in queues.items():
        channel.queue_bind(queue, exchange, pattern)
    for key in keys:
        publish(channel, key, key, exchange=exchange)
    for pattern, queue in queues.items():
        got = [body.decode() for body in drained(channel, queue)]
        equal(got, expected[pattern], f"keys matched by {pattern!r}")


@check
def exchange_headers(scene):
    """headers: all and any, presence by a void value, typed equality, `x-` keys not compared (RTE-05 to 07)."""
    channel = scene.channel()
    exchange = scene.exchange(channel, "headers")
    bindings = {
        "all": {"x-match": "all", "n": 1, "s": "1"},
        "any": {"x-match": "any", "n": 1, "s": "1"},
        "default is all": {"n": 1, "s": "1"},
        "presence": {"n": None},
        "x- ignored": {"x-match": "all", "x-other": "z", "n": 1},
        "all of nothing": {"x-match": "all"},
        "any of nothing": {"x-match": "any"},
    }
    queues = {label: scene.queue(channel, CLASSIC) for label in bindings}
    for label, queue in queues.items():
        channel.queue_bind(queue, exchange, "", bindings[label])
    publish(channel, "", b"both", exchange=exchange, headers={"n": 1, "s": "1"})
    publish(channel, "", b"wide", exchange=exchange, headers={"n": 2**40, "s": "1"})
    publish(channel, "", b"text", exchange=exchange, headers={"n": "1"})
    publish(channel, "", b"none", exchange=exchange)
    expected = {
        "all": [b"both"],
        "any": [b"both", b"wide"],
        "default is all": [b"both"],
        "presence": [b"both", b"wide", b"text"],
        "x- ignored": [b"both"],
        "all of nothing": [b"both", b"wide", b"text", b"none"],
        "any of nothing": [],
    }
    equal({label: drained(channel, queue) for label, queue in queues.items()}, expected, "messages")


@check
def exchange_to_exchange(scene):
    """A binding between exchanges leads on, circles end, and a queue gets one copy (BND-07, BND-08, RTE-10)."""
    channel = scene.channel()
    first, second, queue = scene.exchange(channel, "topic"), scene.exchange(channel, "fanout"), scene.queue(channel)
    channel.exchange_bind(second, first, "a.#")
    channel.exchange_bind(first, second, "")
    channel.queue_bind(queue, first, "a.b")
    channel.queue_bind(queue, second)
    for key in ("a.b", "a.c", "b"):
        publish(channel, key, key.encode(), exchange=first)
    channel.exchange_unbind(second, first, "a.#")
    publish(channel, "a.c", b"unbound", exchange=first)
    equal(drained(channel, queue), [b"a.b", b"a.c"], "messages")


@check
def exchange_alternate(scene):
    """What an exchange has no destination for goes to its alternate, and that one's in turn (AE-01, AE-02)."""
    channel = scene.channel()
    last = scene.exchange(channel, "fanout")
    middle = scene.exchange(channel, "direct", arguments={"alternate-exchange": last})
    first = scene.exchange(channel, "direct", arguments={"alternate-exchange": middle})
    queues = [scene.queue(channel) for _ in range(3)]
    channel.queue_bind(queues[0], first, "first")
    channel.queue_bind(queues[1], middle, "middle")
    channel.queue_bind(queues[2], last)
    for key in ("first", "middle", "last"):
        publish(channel, key, key.encode(), exchange=first)
    equal([drained(channel, queue) for queue in queues], [[b"first"], [b"middle"], [b"last"]], "messages")


@check
def exchange_default(scene):
    """The default exchange routes to the queue of that name, and takes no bindings (RTE-01, BND-01)."""
    channel = scene.channel()
    queue = scene.queue(channel)
    publish(channel, queue, b"m")
    equal(drained(channel, queue), [b"m"], "messages")
    text = "ACCESS_REFUSED - operation not permitted on the default exchange"
    refused(403, text, lambda: channel.queue_bind(queue, "", "key"))


@check
def exchange_to_exchange(scene):
    """exchange.bind routes on, exchange.unbind ends it, and two paths make one copy (BND-07, BND-08)."""
    channel = scene.channel()
    source, middle = scene.exchange(channel, "topic"), scene.exchange(channel, "fanout")
    queue = scene.queue(channel)
    channel.exchange_bind(middle, source, "a.#")
    channel.queue_bind(queue, middle)
    channel.queue_bind(queue, source, "a.b")
    publish(channel, "a.b", b"1", exchange=source)
    publish(channel, "a.c", b"2", exchange=source)
    channel.exchange_unbind(middle, source, "a.#")
    publish(channel, "a.c", b"3", exchange=source)
    equal(drained(channel, queue), [b"1", b"2"], "messages")


@check
def exchange_redeclare_inequivalent_refused(scene):
    """Another type or durability is 406 and names the first difference (EXC-04)."""
    name = scene.exchange(scene.channel(), "direct", durable=True)
    start = f"PRECONDITION_FAILED - inequivalent arg '{{}}' for exchange '{name}' in vhost '/': "
    text = start.format("type") + "received 'fanout' but current is 'direct'"
    refused(406, text, lambda: scene.channel().exchange_declare(name, "fanout", durable=True))
    text = start.format("durable") + "received 'false' but current is 'true'"
    refused(406, text, lambda: scene.channel().exchange_declare(name, "direct"))


@check
def exchange_refusals(scene):
    """Missing, reserved, unknown type, default and system exchanges (EXC-02, 03, 06, 07)."""
    missing = scene.name("x")
    refused(
        404,
        f"NOT_FOUND - no exchange '{missing}' in vhost '/'",
        lambda: scene.channel().exchange_declare(missing, passive=True),
    )
    refused(
        403,
        f"ACCESS_REFUSED - exchange name 'amq.{RUN}' contains reserved prefix 'amq.*'",
        lambda: scene.channel().exchange_declare("amq." + RUN, "direct"),
    )
    refused(
        406,
        "PRECONDITION_FAILED - unknown exchange type 'nonsense'",
        lambda: scene.channel().exchange_declare(missing, "nonsense"),
    )
    refused(
        403,
        "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed",
        lambda: scene.channel().exchange_delete("amq.direct"),
    )


@check
def bind_to_missing_refused(scene):
    """A missing exchange is reported before a missing queue; unbinding what is not there is fine (BND-02, BND-04)."""
    channel = scene.channel()
    exchange, queue, missing = scene.exchange(channel, "direct"), scene.queue(channel), scene.name()
    no_exchange = f"NOT_FOUND - no exchange '{missing}' in vhost '/'"
    no_queue = f"NOT_FOUND - no queue '{missing}' in vhost '/'"
    refused(404, no_exchange, lambda: scene.channel().queue_bind(queue, missing, "k"))
    refused(404, no_exchange, lambda: scene.channel().queue_bind(missing, missing, "k"))
    refused(404, no_queue, lambda: scene.channel().queue_bind(missing, exchange, "k"))
    channel.queue_unbind(queue, exchange, "never bound")


# --- D. queues -------------------------------------------------------------------------------------------------


@check
def queue_quorum_declare_counts(scene):
    """declare-ok gives the name, ready messages and consumers; an equal redeclare is fine (QUE-01)."""
    channel = scene.channel()
    name = scene.name()
    ok = channel.queue_declare(name, durable=True, arguments=QUORUM).method
    equal((ok.queue, ok.message_count, ok.consumer_count), (name, 0, 0), "declare-ok")
    publish(channel, name, b"1", b"2", b"3")
    inbox = Inbox(channel, name, prefetch=1)
    inbox.wait(1)
    ok = channel.queue_declare(name, durable=True, arguments=QUORUM).method
    equal((ok.message_count, ok.consumer_count), (2, 1), "declare-ok")


@check
def queue_server_named(scene):
    """The broker makes up `amq.gen-` and 22 characters, and an empty name means that queue (QUE-06, CHN-13)."""
    channel = scene.channel()
    name = channel.queue_declare("", exclusive=True).method.queue
    assert name.startswith("amq.gen-") and len(name) == 30, name
    channel.queue_bind("", "amq.fanout")
    publish(channel, name, b"m")
    equal(drained(channel, ""), [b"m"], "messages by the empty name")


@check
def queue_server_named_quorum_refused(scene):
    """A quorum queue must have a name (QUE-07)."""
    refused(
        406,
        "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue",
        lambda: scene.channel().queue_declare("", durable=True, arguments=QUORUM),
    )


@check
def queue_passive_missing_refused(scene):
    """A passive declare of a missing queue is 404 (QUE-12)."""
    name = scene.name()
    text = f"NOT_FOUND - no queue '{name}' in vhost '/'"
    refused(404, text, lambda: scene.channel().queue_declare(name, passive=True))


@check
def queue_reserved_name_refused(scene):
    """Names that begin `amq.` are the broker's (QUE-09)."""
    text = f"ACCESS_REFUSED - queue name 'amq.{RUN}' contains reserved prefix 'amq.*'"
    refused(403, text, lambda: scene.channel().queue_declare("amq." + RUN, durable=True))


@check
def queue_quorum_properties_refused(scene):
    """A quorum queue is durable, shared and stays (QUE-08)."""
    name = scene.name()
    for wrong, flags in (
        ("auto-delete", {"durable": True, "auto_delete": True}),
        ("exclusive-owner", {"durable": True, "exclusive": True}),
        ("non-durable", {"durable": False}),
    ):
        refused(
            406,
            f"PRECONDITION_FAILED - invalid property '{wrong}' for queue '{name}' in vhost '/'",
            lambda flags=flags: scene.channel().queue_declare(name, arguments=QUORUM, **flags),
        )


@check
def queue_redeclare_inequivalent_refused(scene):
    """406 names the property or argument, what was received and what is (EQV-01, 03, 04, 06)."""
    channel = scene.channel()
    classic = scene.queue(channel, CLASSIC)
    quorum = scene.queue(channel)
    limited = scene.queue(channel, {**QUORUM, "x-max-length": 1000})

    def inequivalent(queue, arg, text, arguments, **flags):
        flags = {"durable": True, **flags}
        refused(
            406,
            f"PRECONDITION_FAILED - inequivalent arg '{arg}' for queue '{queue}' in vhost '/': {text}",
            lambda: scene.channel().queue_declare(queue, arguments=arguments, **flags),
        )

    inequivalent(classic, "durable", "received 'false' but current is 'true'", CLASSIC, durable=False)
    inequivalent(classic, "auto_delete", "received 'true' but current is 'false'", CLASSIC, auto_delete=True)
    inequivalent(quorum, "x-queue-type", "received 'classic' but current is 'quorum'", {})
    length = {**QUORUM, "x-max-length": 2000}
    inequivalent(limited, "x-max-length", "received '2000' but current is '1000'", length)
    none_received = "received none but current is the value '1000' of type 'signedint'"
    inequivalent(limited, "x-max-length", none_received, QUORUM)
    none_current = "received the value '2000' of type 'signedint' but current is none"
    inequivalent(quorum, "x-max-length", none_current, length)
    equal(counts(channel, limited), (0, 0), "the queue afterwards")


@check
def queue_bad_arguments_refused(scene):
    """A bad value is 406 with its reason; arguments nobody knows are accepted (ARG-01, ARG-09, QUE-18)."""
    name = scene.name()
    for argument, value, reason in (
        ("x-max-length", -1, "{value_negative,-1}"),
        ("x-max-length", "ten", '"expected integer, got longstr"'),
        ("x-overflow", "burst", "invalid_overflow"),
    ):
        refused(
            406,
            f"PRECONDITION_FAILED - invalid arg '{argument}' for queue '{name}' in vhost '/': {reason}",
            lambda a={**QUORUM, argument: value}: scene.channel().queue_declare(name, durable=True, arguments=a),
        )
    scene.queue(scene.channel(), {**QUORUM, "x-interop-unknown": "kept and ignored"})


@check
def queue_exclusive_locked(scene):
    """Any use of another connection's exclusive queue is 405, on any node; publishing is not (EXQ-02, EXQ-04)."""
    owner = scene.channel(node=0)
    name = scene.name()
    owner.queue_declare(name, exclusive=True)
    text = (
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{name}' in vhost '/'. It could be "
        "originally declared on another connection or the exclusive property value does not match that of the original "
        "declaration."
    )
    seen_on(scene, 1, name)

    def locked(use):
        refused(405, text, lambda: use(scene.channel(node=1)))

    locked(lambda channel: channel.queue_declare(name, passive=True))
    locked(lambda channel: channel.queue_declare(name, exclusive=True))
    locked(lambda channel: channel.queue_bind(name, "amq.direct", "k"))
    locked(lambda channel: channel.basic_consume(name, lambda *_: None))
    locked(lambda channel: channel.basic_get(name))
    locked(lambda channel: channel.queue_purge(name))
    locked(lambda channel: channel.queue_delete(name))
    publish(scene.channel(node=1), name, b"from elsewhere")
    equal(get(owner, name, auto_ack=True)[2], b"from elsewhere", "body")


@check
def queue_exclusive_ends_with_its_connection(scene):
    """After close-ok the name is free at once for a new connection (EXQ-01, CONN-27)."""
    name = scene.name()
    for _ in range(3):
        channel = scene.channel()
        ok = channel.queue_declare(name, exclusive=True).method
        equal(ok.message_count, 0, "messages of a new queue")
        publish(channel, name, b"m")
        channel.connection.close()
    text = f"NOT_FOUND - no queue '{name}' in vhost '/'"
    refused(404, text, lambda: scene.channel().queue_declare(name, passive=True))


@check
def queue_auto_delete(scene):
    """An auto-delete queue goes with its last consumer, not before it had one (EXQ-05)."""
    channel = scene.channel()
    name = scene.queue(channel, CLASSIC, auto_delete=True)
    publish(channel, name, b"m")
    equal(get(channel, name, auto_ack=True)[2], b"m", "body")  # a get does not count as a consumer
    first, second = (channel.basic_consume(name, lambda *_: None) for _ in range(2))
    channel.basic_cancel(first)
    equal(counts(channel, name)[0], 0, "ready messages")
    channel.basic_cancel(second)

    def gone():
        try:
            return not counts(scene.channel(), name)
        except exceptions.ChannelClosedByBroker as error:
            return error.reply_code == 404

    eventually("the queue gone", gone)


@check
def queue_delete_conditions_on_classic(scene):
    """if-unused and if-empty refuse with 406; delete counts; deleting what is not there is fine (DEL-01, DEL-02)."""
    channel = scene.channel()
    name = scene.queue(channel, CLASSIC)
    publish(channel, name, b"1", b"2")
    text = f"PRECONDITION_FAILED - queue '{name}' in vhost '/' "
    refused(406, text + "not empty", lambda: scene.channel().queue_delete(name, if_empty=True))
    consumer = scene.channel()
    consumer.basic_qos(prefetch_count=1)
    consumer.basic_consume(name, lambda *_: None)
    refused(406, text + "in use", lambda: scene.channel().queue_delete(name, if_unused=True))
    consumer.connection.close()
    eventually("both messages ready, no consumer", lambda: counts(channel, name) == (2, 0))
    equal(channel.queue_delete(name, if_unused=True).method.message_count, 2, "messages deleted")
    equal(channel.queue_delete(name).method.message_count, 0, "messages deleted the second time")


@check
def queue_delete_conditions_on_quorum(scene):
    """if-unused and if-empty work on a quorum queue too (Q-12)."""
    scene.not_on_the_peer("Q-12: RabbitMQ answers 540 (DEL-03)")
    channel = scene.channel()
    name = scene.queue(channel)
    publish(channel, name, b"1")
    text = f"PRECONDITION_FAILED - queue '{name}' in vhost '/' not empty"
    refused(406, text, lambda: scene.channel().queue_delete(name, if_empty=True))
    equal(drained(channel, name), [b"1"], "messages")
    equal(channel.queue_delete(name, if_unused=True, if_empty=True).method.message_count, 0, "messages deleted")


@check
def queue_stream_refused(scene):
    """There are no streams: `x-queue-type: stream` is 406 and names it (Q-02)."""
    scene.not_on_the_peer("Q-02: RabbitMQ has streams")
    arguments = {"x-queue-type": "stream"}
    try:
        scene.channel().queue_declare(scene.name(), durable=True, arguments=arguments)
    except exceptions.ChannelClosedByBroker as error:
        equal(error.reply_code, 406, "code")
        assert "stream" in error.reply_text, error.reply_text
    else:
        raise AssertionError("not refused")


@check
def queue_purge_counts(scene):
    """purge-ok counts the ready messages; an unacked one stays (DEL-07)."""
    channel = scene.channel()
    for arguments in (QUORUM, CLASSIC):
        queue = scene.queue(channel, arguments)
        publish(channel, queue, *(b"%d" % n for n in range(5)))
        method, _, _ = get(channel, queue)
        equal(channel.queue_purge(queue).method.message_count, 4, "messages purged")
        channel.basic_nack(method.delivery_tag)
        equal(get(channel, queue, auto_ack=True)[2], b"0", "the one that was unacked")


# --- E. publishing ---------------------------------------------------------------------------------------------


@check
def publish_then_get(scene):
    """What is confirmed can be got at once, with the count of what is left; then get-empty (PUB-11, GET-01)."""
    channel = scene.channel()
    queue = scene.queue(channel)
    equal(channel.basic_get(queue), (None, None, None), "get-empty")
    publish(channel, queue, b"1", b"2", b"3")
    for left, body in ((2, b"1"), (1, b"2"), (0, b"3")):
        method, _, got = channel.basic_get(queue)
        equal((got, method.message_count, method.redelivered), (body, left, False), "get-ok")
        equal((method.exchange, method.routing_key), ("", queue), "exchange and key")
        channel.basic_ack(method.delivery_tag)
    equal(channel.basic_get(queue), (None, None, None), "get-empty")


@check
def publish_mandatory_returned_before_its_confirm(scene):
    """Unroutable and mandatory: basic.return 312 with the message, and only then the ack (PUB-04, PUB-05)."""
    channel = scene.channel()
    missing = scene.name()
    properties = pika.BasicProperties(content_type="text/plain", headers={"b": 2, "a": 1})
    try:
        channel.basic_publish("", missing, b"lost", properties, mandatory=True)
    except exceptions.UnroutableError as error:
        (returned,) = error.messages  # pika looks for returns when the confirm is there
        method = returned.method
        equal((method.reply_code, method.reply_text), (312, "NO_ROUTE"), "basic.return")
        equal((method.exchange, method.routing_key), ("", missing), "exchange and key")
        equal((returned.body, returned.properties.headers), (b"lost", {"a": 1, "b": 2}), "message")
        equal(returned.properties.content_type, "text/plain", "content type")
    else:
        raise AssertionError("not returned")
    channel.basic_publish("", missing, b"dropped")  # not mandatory: confirmed all the same (PUB-07)


@check
def publish_to_missing_exchange_refused(scene):
    """404 closes the channel; what was published before is in (PUB-01, PUB-03)."""
    channel = scene.channel()
    queue, missing = scene.queue(channel), scene.name("x")
    publish(channel, queue, b"before")
    text = f"NOT_FOUND - no exchange '{missing}' in vhost '/'"
    refused(404, text, lambda: channel.basic_publish(missing, "k", b"m"))
    equal(drained(scene.channel(), queue), [b"before"], "messages")


@check
def publish_user_id(scene):
    """user_id must be the authenticated user (PRP-06)."""
    got, _ = round_trip(scene, user_id="guest")
    equal(got.user_id, "guest", "user_id")
    text = "PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'guest'"
    refused(406, text, lambda: round_trip(scene, user_id="bob"))


@check
def publish_cc_and_bcc(scene):
    """CC and BCC are further keys, one copy a queue; CC is kept, BCC removed (RTE-09, PRP-07, PRP-08)."""
    channel = scene.channel()
    main, copied, blind = (scene.queue(channel) for _ in range(3))
    publish(channel, main, b"m", headers={"CC": [copied, main], "BCC": [blind]})
    for queue in (main, copied, blind):
        method, properties, _ = get(channel, queue, auto_ack=True)
        equal(properties.headers, {"CC": [copied, main]}, "headers")
        equal((method.routing_key, method.message_count), (main, 0), "key and messages left")
    text = 'PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"CC",longstr}'
    refused(406, text, lambda: publish(channel, main, b"m", headers={"CC": "no array"}))


@check
def confirms_thousand_in_flight(scene):
    """Each of 1,000 unconfirmed publishes is acked exactly once, singly or by multiple (CNF-02, CNF-05)."""
    queue = scene.queue(scene.channel())
    seen_on(scene, 1, queue)
    sender = Sender(scene.parameters(node=1), queue, 1000)
    sender.run()
    equal(sender.trouble, None, "connection")
    equal(sender.twice, [], "confirmed twice")
    equal((len(sender.acked), sorted(sender.nacked)), (1000, []), "confirms")
    channel = scene.channel()
    equal(counts(channel, queue), (1000, 0), "counts")
    equal(drained(channel, queue), [b"%d" % n for n in range(1000)], "order")


class Sender:
    """pika's asynchronous connection: publishes all at once and collects the confirms."""

    def __init__(self, parameters, queue, count):
        self.queue, self.count = queue, count
        self.acked, self.nacked, self.twice, self.trouble = set(), set(), [], None
        self.unsettled = list(range(1, count + 1))
        self.connection = pika.SelectConnection(
            parameters, on_open_callback=self.opened, on_open_error_callback=self.failed, on_close_callback=self.closed
        )

    def run(self):
        self.connection.ioloop.call_later(WAIT_SECONDS * 3, lambda: self.failed(None, "confirms are missing"))
        self.connection.ioloop.start()

    def opened(self, connection):
        connection.channel(on_open_callback=self.channel_open)

    def channel_open(self, channel):
        channel.confirm_delivery(self.confirmed, callback=lambda _ok: self.publish(channel))

    def publish(self, channel):
        for n in range(self.count):
            channel.basic_publish("", self.queue, b"%d" % n, pika.BasicProperties(delivery_mode=2))

    def confirmed(self, frame):
        method = frame.method
        tags = [t for t in self.unsettled if t <= method.delivery_tag] if method.multiple else [method.delivery_tag]
        for tag in tags:
            if tag not in self.unsettled:
                self.twice.append(tag)
                continue
            self.unsettled.remove(tag)
            (self.acked if isinstance(method, pika.spec.Basic.Ack) else self.nacked).add(tag)
        if not self.unsettled:
            self.connection.close()

    def failed(self, _connection, reason):
        self.trouble = reason
        self.connection.ioloop.stop()

    def closed(self, _connection, _reason):
        self.connection.ioloop.stop()


@check
def properties_all_kept(scene):
    """All fourteen properties come back as they were sent (PRP-01, PRP-03, PRP-05)."""
    sent = {
        "content_type": "application/json",
        "content_encoding": "gzip",
        "headers": {"k": "v"},
        "delivery_mode": 1,
        "priority": 7,
        "correlation_id": "c-1",
        "reply_to": "somewhere",
        "expiration": "600000",
        "message_id": "m-1",
        "timestamp": 1700000000,
        "type": "event",
        "user_id": "guest",
        "app_id": "interop",
        "cluster_id": "cluster",
    }
    for arguments in (QUORUM, CLASSIC):
        got, _ = round_trip(scene, arguments=arguments, **sent)
        equal({key: getattr(got, key) for key in sent}, sent, "properties")


@check
def properties_absent_stay_absent(scene):
    """Nothing is added to a message without properties; an empty headers table stays one (FRM-16, PRP-02)."""
    got, _ = round_trip(scene)
    added = {key: value for key, value in vars(got).items() if value is not None}
    equal(added, {}, "properties added")
    got, _ = round_trip(scene, headers={})
    equal(got.headers, {}, "empty headers")


@check
def headers_of_every_type_kept(scene):
    """Every field type pika can write comes back (FRM-14, FRM-15)."""
    sent = {
        "string": "grüße ☃",
        "empty": "",
        "bytes": b"\x00\xff\xfe",
        "true": True,
        "false": False,
        "int": -(2**31),
        "long": 2**62,
        "void": None,
        "decimal": decimal.Decimal("3.14"),
        "time": datetime.datetime(2026, 11, 21, 3, 4, 5, tzinfo=datetime.timezone.utc),
        "array": [1, "two", [True, None], {"three": 3}],
        "empty array": [],
        "table": {"inner": {"deep": [{"deeper": b"\x01"}]}},
        "empty table": {},
    }
    got, _ = round_trip(scene, headers=sent)
    equal(got.headers, sent, "headers")
    assert got.headers["true"] is True and got.headers["false"] is False, "a bool stays a bool"


@check
def bodies_of_every_size(scene):
    """0 and 1 bytes, all sizes around one and two frames, and 5 MiB (FRM-10)."""
    channel = scene.channel()
    queue = scene.queue(channel)
    payload = FRAME_MAX - 8
    for size in (0, 1, payload - 1, payload, payload + 1, 2 * payload, 2 * payload + 1, 5 << 20):
        body = (b"0123456789abcdef" * (size // 16 + 1))[:size]
        publish(channel, queue, body)
        got = get(channel, queue, auto_ack=True)[2]
        assert got == body, f"{size} bytes came back as {len(got)}, or changed"


# --- F. consuming, B. acknowledging ----------------------------------------------------------------------------


@check
def consume_in_order(scene):
    """Five hundred messages come once each, in order, with tags 1 to 500 (ACK-01, CON-17, CON-19)."""
    channel = scene.channel()
    queue = scene.queue(channel)
    expected = [b"%d" % n for n in range(500)]
    publish(channel, queue, *expected)
    inbox = Inbox(channel, queue)
    inbox.wait(500)
    equal(inbox.bodies(), expected, "order")
    equal([m.delivery_tag for m, _, _ in inbox.messages], list(range(1, 501)), "delivery tags")
    fields = {(m.redelivered, m.consumer_tag, m.routing_key) for m, _, _ in inbox.messages}
    equal(fields, {(False, inbox.tag, queue)}, "redelivered, consumer tag, routing key")


@check
def prefetch_is_exact(scene):
    """With prefetch 3 exactly three are out; each ack brings exactly one more (QOS-02, QOS-09)."""
    for arguments in (QUORUM, CLASSIC):
        channel = scene.channel()
        queue = scene.queue(channel, arguments)
        publish(channel, queue, *(b"%d" % n for n in range(10)))
        inbox = Inbox(channel, queue, prefetch=3)
        inbox.wait(3)
        equal((counts(channel, queue)[0], len(inbox)), (7, 3), "ready and delivered")
        channel.basic_ack(1)
        inbox.wait(4)
        equal((counts(channel, queue)[0], len(inbox)), (6, 4), "ready and delivered")
        channel.basic_ack(4, multiple=True)
        inbox.wait(7)
        equal((counts(channel, queue)[0], len(inbox)), (3, 7), "ready and delivered")


@check
def prefetch_is_per_consumer(scene):
    """Each consumer has the limit that was set when it started (QOS-02, QOS-03)."""
    channel = scene.channel()
    queue = scene.queue(channel)
    first = Inbox(channel, queue, prefetch=2)
    second = Inbox(channel, queue, prefetch=5)
    publish(channel, queue, *(b"%d" % n for n in range(20)))
    eventually("thirteen left", lambda: counts(channel, queue) == (13, 2))
    first.wait(2)
    second.wait(5)


@check
def ack_multiple_and_nack_multiple(scene):
    """multiple settles every tag up to it; a requeued one comes again, redelivered (ACK-02, ACK-06, ACK-07)."""
    channel = scene.channel()
    queue = scene.queue(channel)
    publish(channel, queue, *(b"%d" % n for n in range(6)))
    tags = [get(channel, queue)[0].delivery_tag for _ in range(6)]
    channel.basic_ack(tags[1], multiple=True)
    channel.basic_nack(tags[4], multiple=True, requeue=True)
    again = [get(channel, queue) for _ in range(3)]
    equal([(m.redelivered, body) for m, _, body in again], [(True, b"2"), (True, b"3"), (True, b"4")], "requeued")
    channel.basic_ack(0, multiple=True)  # tag 0: all that is outstanding (ACK-03)
    channel.connection.close()
    equal(drained(scene.channel(), queue), [], "left")


@check
def reject_drops_or_requeues(scene):
    """reject with requeue brings the message back, without it the message is gone (ACK-06)."""
    channel = scene.channel()
    for arguments in (QUORUM, CLASSIC):
        queue = scene.queue(channel, arguments)
        publish(channel, queue, b"m")
        method, _, _ = get(channel, queue)
        equal(method.redelivered, False, "redelivered")
        channel.basic_reject(method.delivery_tag, requeue=True)
        method, _, _ = get(channel, queue)
        equal(method.redelivered, True, "redelivered")
        channel.basic_reject(method.delivery_tag, requeue=False)
        equal(drained(channel, queue), [], "left")


@check
def delivery_count_headers(scene):
    """Redeliveries of a quorum queue are counted in headers, those of a classic one are not (Q-32, CON-23)."""
    channel = scene.channel()
    quorum, classic = scene.queue(channel), scene.queue(channel, CLASSIC)
    for queue in (quorum, classic):
        publish(channel, queue, b"m")
        for returned in range(3):
            method, properties, _ = get(channel, queue)
            counted = queue == quorum and returned > 0
            expected = {"x-delivery-count": returned, "x-acquired-count": returned} if counted else None
            if scene.peer and counted:  # CON-21: up to 4.2 there is one header only
                expected = {"x-delivery-count": returned}
            equal(properties.headers, expected, f"headers after {returned} returns")
            channel.basic_reject(method.delivery_tag, requeue=True)


@check
def returned_to_its_place_on_classic(scene):
    """A returned message goes back to its original position (Q-30, RQU-04)."""
    _returned_to_its_place(scene, CLASSIC)


@check
def returned_to_its_place_on_quorum(scene):
    """The same on a quorum queue (Q-30)."""
    scene.not_on_the_peer("Q-30: RabbitMQ's quorum queues serve returned messages in the order of return (RQU-01)")
    _returned_to_its_place(scene, QUORUM)


def _returned_to_its_place(scene, arguments):
    channel = scene.channel()
    queue = scene.queue(channel, arguments)
    publish(channel, queue, *(b"%d" % n for n in range(5)))
    tags = [get(channel, queue)[0].delivery_tag for _ in range(4)]
    channel.basic_nack(tags[2])
    channel.basic_nack(tags[0])
    eventually("three ready", lambda: counts(channel, queue)[0] == 3)
    equal(drained(channel, queue), [b"0", b"2", b"4"], "order")


@check
def recover_redelivers(scene):
    """basic.recover gives back all that is unacked; requeue=false is 540 (ACK-09)."""
    channel = scene.channel()
    queue = scene.queue(channel)
    publish(channel, queue, b"1", b"2")
    inbox = Inbox(channel, queue)
    inbox.wait(2)
    channel.basic_recover(requeue=True)
    inbox.wait(4)
    equal(inbox.bodies(), [b"1", b"2"] * 2, "bodies")
    equal([m.redelivered for m, _, _ in inbox.messages], [False, False, True, True], "redelivered")
    text = "NOT_IMPLEMENTED - requeue=false"
    refused_hard(540, text, lambda: channel.basic_recover(requeue=False))


@check
def consume_without_acks(scene):
    """no-ack ignores prefetch, settles when sent, and its tags cannot be settled (CON-03, ACK-04)."""
    channel = scene.channel()
    queue = scene.queue(channel)
    publish(channel, queue, *(b"%d" % n for n in range(20)))
    Inbox(channel, queue, prefetch=1, auto_ack=True).wait(20)
    channel.connection.close()
    observer = scene.channel()
    eventually("no consumer", lambda: counts(observer, queue)[1] == 0)
    equal(drained(observer, queue), [], "left")


@check
def cancel_keeps_what_is_unacked(scene):
    """After cancel-ok nothing more comes, what came can still be acked, the tag is free (CON-09, CON-11, ACK-10)."""
    channel = scene.channel()
    queue = scene.queue(channel)
    publish(channel, queue, b"1", b"2", b"3")
    inbox = Inbox(channel, queue, prefetch=2, consumer_tag="mine")
    inbox.wait(2)
    channel.basic_cancel("mine")
    channel.basic_ack(1)
    equal((counts(channel, queue)[0], len(inbox)), (1, 2), "ready and delivered")
    again = Inbox(channel, queue, consumer_tag="mine")
    again.wait(1)
    channel.connection.close()
    eventually("two returned", lambda: counts(scene.channel(), queue) == (2, 0))


@check
def cancel_notification_when_the_queue_is_deleted(scene):
    """The broker cancels the consumer of a deleted queue; its channel goes on (CON-13, DEL-04, ACK-11)."""
    for arguments in (QUORUM, CLASSIC):
        channel = scene.channel(node=2)
        queue = scene.queue(scene.channel(node=0), arguments)
        seen_on(scene, 1, queue)
        seen_on(scene, 2, queue)
        cancelled = []
        channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
        inbox = Inbox(channel, queue)
        publish(scene.channel(), queue, b"m")
        inbox.wait(1)
        scene.channel(node=1).queue_delete(queue)

        def notified():
            channel.connection.process_data_events(0.05)
            return cancelled

        eventually("basic.cancel", notified)
        equal(cancelled, [inbox.tag], "consumers cancelled")
        channel.basic_ack(1)  # accepted silently
        channel.queue_declare("", exclusive=True)


@check
def unknown_delivery_tag_closes_the_channel_only(scene):
    """406; the unacked messages of that channel return, the connection goes on (ACK-04, CHN-06)."""
    connection = scene.connection()
    broken, other = connection.channel(), connection.channel()
    queue = scene.queue(other)
    publish(other, queue, b"m")
    get(broken, queue)
    broken.basic_ack(42)
    text = "PRECONDITION_FAILED - unknown delivery tag 42"
    refused(406, text, lambda: counts(broken, queue))
    method, _, body = get(other, queue, auto_ack=True)
    equal((method.redelivered, body), (True, b"m"), "returned")


@check
def consume_exclusively_on_classic(scene):
    """An exclusive consumer keeps others out (CON-04)."""
    channel = scene.channel()
    queue = scene.queue(channel, CLASSIC)
    tag = channel.basic_consume(queue, lambda *_: None, exclusive=True)
    text = f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
    refused(403, text, lambda: scene.channel().basic_consume(queue, lambda *_: None))
    channel.basic_cancel(tag)
    Inbox(scene.channel(), queue)


@check
def consume_from_missing_refused(scene):
    """Consuming or getting from a queue that is not there is 404 (CON-02, GET-02)."""
    name = scene.name()
    text = f"NOT_FOUND - no queue '{name}' in vhost '/'"
    refused(404, text, lambda: Inbox(scene.channel(), name))
    refused(404, text, lambda: scene.channel().basic_get(name))


@check
def channel_flow(scene):
    """flow(true) is answered, flow(false) is 540 (CHN-08)."""
    channel = scene.channel()
    equal(channel.flow(True), True, "flow-ok")
    refused_hard(540, "NOT_IMPLEMENTED - active=false", lambda: channel.flow(False))


@check
def prefetch_size_refused(scene):
    """prefetch-size is not implemented: 540 (QOS-01)."""
    text = "NOT_IMPLEMENTED - prefetch_size!=0 (1000)"
    refused_hard(540, text, lambda: scene.channel().basic_qos(prefetch_size=1000))


# --- across nodes ----------------------------------------------------------------------------------------------


@check
def nodes_declare_publish_consume(scene):
    """Declared on one node, published on the next, consumed on the third; acked is gone, unacked returns."""
    for arguments in (QUORUM, CLASSIC):
        queue = scene.queue(scene.channel(node=0), arguments)
        seen_on(scene, 1, queue)
        seen_on(scene, 2, queue)
        expected = [b"%d" % n for n in range(100)]
        publisher, consumer = scene.channel(node=1), scene.channel(node=2)
        publish(publisher, queue, *expected)
        inbox = Inbox(consumer, queue, prefetch=10)
        for tens in range(10, 101, 10):
            inbox.wait(tens)
            consumer.basic_ack(tens, multiple=True)
        equal(inbox.bodies(), expected, "order")
        publish(publisher, queue, *expected[:10])
        inbox.wait(110)  # so all acks have arrived: RabbitMQ may lose some when the channel closes at once after them
        consumer.connection.close()
        owner = scene.channel(node=0)
        eventually("ten returned", lambda: counts(owner, queue) == (10, 0))
        equal(drained(owner, queue), expected[:10], "returned")


@check
def nodes_rpc_into_an_exclusive_queue(scene):
    """A server on one node replies into the exclusive queue of a client on another (EXQ-04)."""
    client, server = scene.channel(node=0), scene.channel(node=1)
    requests = scene.queue(server)
    seen_on(scene, 0, requests)
    replies = client.queue_declare("", exclusive=True).method.queue
    inbox = Inbox(client, replies, auto_ack=True)
    for n in range(5):
        publish(client, requests, b"%d" % n, reply_to=replies, correlation_id=f"c{n}")
        method, properties, body = get(server, requests)

        def answered():
            try:
                server.basic_publish(
                    "",
                    properties.reply_to,
                    b"answer " + body,
                    pika.BasicProperties(correlation_id=properties.correlation_id),
                    mandatory=True,
                )
            except exceptions.UnroutableError:  # this node may not know the new queue yet (BND-11)
                return n > 0
            return True

        eventually("the reply routed", answered)
        server.basic_ack(method.delivery_tag)
        inbox.wait(n + 1)
    got = [(properties.correlation_id, body) for _, properties, body in inbox.messages]
    equal(got, [(f"c{n}", b"answer %d" % n) for n in range(5)], "replies")


# --- running ---------------------------------------------------------------------------------------------------


def run(function, addresses, peer):
    """Runs one check and prints its line; True when it passed, None when it was skipped."""
    scene, trouble = Scene(addresses, peer), None
    try:
        try:
            function(scene)
        finally:
            scene.end()
    except Skipped as reason:
        print(f"skip {function.__name__}: {reason}", flush=True)
        return None
    except Exception as error:  # whatever a check meets is its result
        trouble = f"{type(error).__name__}: {error}".replace("\n", " ")
    print(f"not ok {function.__name__}: {trouble}" if trouble else f"ok {function.__name__}", flush=True)
    return trouble is None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="store_true", help="the broker is RabbitMQ 4.0")
    parser.add_argument("addresses", nargs="+", metavar="HOST:PORT")
    options = parser.parse_args()
    results = [run(function, options.addresses, options.peer) for function in CHECKS]
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    sys.exit(1 if False in results else 0)


if __name__ == "__main__":
    main()
