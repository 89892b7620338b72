"""aio-pika (PyPI, over aiormq and pamqp) against a broker: many things at once on one connection, and reconnecting.

    test_aio_pika.py [--peer] HOST:PORT [HOST:PORT ...]

One check is one function; its docstring says what it proves and names the rules of the spec.
With several addresses the checks that say `node=` use different nodes. `--peer` says that the broker is
RabbitMQ 4.0: checks whose outcome decisions.md changes are then skipped or tolerant, and say by which rule.
"""

import argparse
import asyncio
import contextlib
import datetime
import decimal
import inspect
import logging
import sys
import uuid

import aio_pika
from aio_pika import ExchangeType, Message
from aiormq import exceptions, spec

WAIT_SECONDS = 300  # what has not come by then never comes
CHECK_SECONDS = 60
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

    def address(self, node=0):
        return self.addresses[node % len(self.addresses)]

    def url(self, node=0, password="guest", address=None):
        return f"amqp://guest:{password}@{address or self.address(node)}/%2F"

    async def connection(self, node=0, **more):
        connection = await aio_pika.connect(self.url(node), timeout=WAIT_SECONDS, **more)
        self.opened.append(connection)
        return connection

    async def channel(self, node=0, **more):
        """A channel on a connection of its own, so that no error reaches another channel."""
        connection = await self.connection(node)
        return await connection.channel(**more)

    async def raw(self, node=0):
        """The aiormq channel below, for methods that aio-pika hides."""
        return await (await self.channel(node)).get_underlay_channel()

    def name(self, kind="q"):
        name = f"interop-aio-pika-{RUN}-{len(self.queues) + len(self.exchanges)}-{kind}"
        (self.exchanges if kind == "x" else self.queues).append(name)
        return name

    async def queue(self, channel, arguments=QUORUM, **more):
        more = {"durable": True, **more}
        return await channel.declare_queue(self.name(), arguments=arguments, **more)

    async def exchange(self, channel, kind, **more):
        return await channel.declare_exchange(self.name("x"), kind, **more)

    def not_on_the_peer(self, reason):
        if self.peer:
            raise Skipped(reason)

    async def end(self):
        for connection in self.opened:
            with contextlib.suppress(Exception):  # many of them the broker has closed already
                await asyncio.wait_for(connection.close(), 10)
        self.opened = []
        if self.queues or self.exchanges:
            channel = await self.raw()
            for queue in self.queues:
                await channel.queue_delete(queue)
            for exchange in self.exchanges:
                await channel.exchange_delete(exchange)
            await self.opened[0].close()


class Inbox:
    """A consumer that keeps what it is given."""

    def __init__(self):
        self.messages, self.arrived, self.tag = [], asyncio.Condition(), None

    @classmethod
    async def on(cls, queue, **more):
        inbox = cls()
        inbox.tag = await queue.consume(inbox._take, **more)
        return inbox

    async def _take(self, message):
        async with self.arrived:
            self.messages.append(message)
            self.arrived.notify_all()

    def __len__(self):
        return len(self.messages)

    def bodies(self):
        return [message.body for message in self.messages]

    async def wait(self, count):
        async with self.arrived:
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(self.arrived.wait_for(lambda: len(self) >= count), WAIT_SECONDS)
        equal(len(self), count, "messages delivered")
        return self.messages


class Proxy:
    """Forwards to the addresses in turn, one for each connection made, and can cut what it forwards."""

    def __init__(self, addresses):
        self.addresses, self.made, self.writers = addresses, 0, []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.address = "127.0.0.1:%d" % self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.cut()
        self.server.close()

    async def _forward(self, reader, writer):
        host, port = self.addresses[self.made % len(self.addresses)].rsplit(":", 1)
        self.made += 1
        broker_reader, broker_writer = await asyncio.open_connection(host, int(port))
        self.writers += [writer, broker_writer]
        await asyncio.gather(self._pump(reader, broker_writer), self._pump(broker_reader, writer))

    async def _pump(self, reader, writer):
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65536):
                writer.write(chunk)
                await writer.drain()
        writer.close()

    def cut(self):
        for writer in self.writers:
            writer.transport.abort()
        self.writers = []


def equal(got, expected, what):
    assert got == expected, f"{what}: got {got!r}, expected {expected!r}"


async def eventually(what, condition):
    """Asks until the condition holds, at most WAIT_SECONDS; its value."""
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
    while True:
        value = await condition()
        if value:
            return value
        assert asyncio.get_running_loop().time() < deadline, f"not within {WAIT_SECONDS} s: {what}"
        await asyncio.sleep(0.02)


SOFT = {
    403: exceptions.ChannelAccessRefused,
    404: exceptions.ChannelNotFoundEntity,
    405: exceptions.ChannelLockedResource,
    406: exceptions.ChannelPreconditionFailed,
}
HARD = {540: exceptions.ConnectionNotImplemented}


async def refused(code, text, action):
    """What is awaited closes its channel or connection with exactly this code and text."""
    kind = SOFT.get(code) or HARD[code]
    try:
        await asyncio.wait_for(action, WAIT_SECONDS)
    except kind as error:
        equal(error.args[-1], text, "refusal")
    else:
        raise AssertionError(f"not refused, expected {code} {text}")


async def on(channel, use):
    """`use` of a channel that is still to be opened, as one thing to await."""
    return await use(await channel)


async def counts(channel, queue):
    """(ready messages, consumers)"""
    ok = (await channel.declare_queue(str(queue), passive=True)).declaration_result
    return ok.message_count, ok.consumer_count


async def ready(queue, count):
    return await counts(queue.channel, queue) == (count, 0)


async def publish(channel, queue, *bodies, exchange=None, **more):
    for body in bodies:
        message = Message(body if isinstance(body, bytes) else body.encode(), **more)
        await (exchange or channel.default_exchange).publish(message, str(queue), mandatory=False)


async def get(queue, **more):
    """The next message, waited for: what was returned may become ready an instant later (DUR-11)."""
    return await eventually(f"a message in {queue}", lambda: queue.get(fail=False, **more))


async def drained(queue):
    """The bodies of all ready messages."""
    bodies = []
    while message := await queue.get(fail=False, no_ack=True):
        bodies.append(message.body)
    return bodies


async def delete(queue):
    """aio-pika would say if-unused and if-empty, which RabbitMQ refuses on quorum queues (DEL-03)."""
    return await queue.delete(if_unused=False, if_empty=False)


async def seen_on(scene, node, queue):
    """The queue on that node, which may learn of it an instant later (BND-11)."""

    async def known():
        try:
            return await (await scene.channel(node)).get_queue(str(queue))
        except exceptions.ChannelNotFoundEntity:
            return None

    return await eventually(f"{queue} known on node {node}", known)


def numbers(count):
    return [b"%d" % n for n in range(count)]


# --- A. connection ---------------------------------------------------------------------------------------------


@check
async def connect_server_properties(scene):
    """Product and capabilities as RabbitMQ's (CONN-07, CONN-08, Q-01)."""
    properties = (await scene.connection()).transport.connection.server_properties
    equal(properties["product"], "RabbitMQ", "product")
    assert int(properties["version"].split(".")[0]) >= 4, properties["version"]
    names = (
        "publisher_confirms exchange_exchange_bindings basic.nack consumer_cancel_notify connection.blocked "
        "consumer_priorities authentication_failure_close per_consumer_qos direct_reply_to"
    )
    capabilities = properties["capabilities"]
    missing = [name for name in names.split() if capabilities.get(name) is not True]
    equal(missing, [], "capabilities missing")


@check
async def connect_tune(scene):
    """The broker proposes channel-max 2047 and frame-max 131072 (CONN-16)."""
    tune = (await scene.connection()).transport.connection.connection_tune
    equal((tune.channel_max, tune.frame_max), (2047, FRAME_MAX), "tune")


@check
async def connect_bad_password_refused(scene):
    """A wrong password is 403 with RabbitMQ's text (CONN-14)."""
    text = (
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
    )
    try:
        await aio_pika.connect(scene.url(password="wrong"), timeout=WAIT_SECONDS)
    except exceptions.ProbableAuthenticationError as error:
        equal(error.args[-1], text, "refusal")
    else:
        raise AssertionError("was let in")


@check
async def heartbeats_keep_an_idle_connection(scene):
    """With heartbeat 1 both sides stay content for longer than three of them (HB-01, HB-02)."""
    connection = await scene.connection(heartbeat=1)
    channel = await connection.channel()
    await asyncio.sleep(4.5)  # idle time is the subject here
    equal(connection.is_closed, False, "closed")
    await channel.declare_queue(exclusive=True)


@check
async def update_secret(scene):
    """A new secret is accepted and changes nothing with the internal user database (CONN-30, CONN-31)."""
    connection = await scene.connection()
    await connection.update_secret("another", reason="interop", timeout=WAIT_SECONDS)
    await (await connection.channel()).declare_queue(exclusive=True)


@check
async def channels_at_once(scene):
    """Twenty channels of one connection declare, publish, get and delete at the same time (CHN-01, CHN-10)."""
    connection = await scene.connection()

    async def work(n):
        channel = await connection.channel()
        queue = await scene.queue(channel, QUORUM if n % 4 == 0 else CLASSIC)
        await publish(channel, queue, *numbers(20))
        equal(await drained(queue), numbers(20), f"messages of channel {n}")
        await delete(queue)
        await channel.close()

    await asyncio.gather(*(work(n) for n in range(20)))


# --- C. exchanges and routing ----------------------------------------------------------------------------------


@check
async def exchange_direct_fanout_and_unbind(scene):
    """direct compares the key, fanout does not; unbound is unbound (RTE-02, RTE-03, BND-04)."""
    channel = await scene.channel()
    for kind, expected in ((ExchangeType.DIRECT, [b"1"]), (ExchangeType.FANOUT, [b"1", b"2"])):
        exchange, queue = await scene.exchange(channel, kind), await scene.queue(channel)
        await queue.bind(exchange, "a")
        await publish(channel, "a", b"1", exchange=exchange)
        await publish(channel, "b", b"2", exchange=exchange)
        await queue.unbind(exchange, "a")
        await publish(channel, "a", b"3", exchange=exchange)
        equal(await drained(queue), expected, f"messages by {kind.value}")


@check
async def exchange_topic(scene):
    """`*` is one word, `#` any number, and words may be empty (RTE-04)."""
    channel = await scene.channel()
    exchange = await scene.exchange(channel, ExchangeType.TOPIC)
    keys = ["stock", "stock.usd", "stock.usd.nyse", "", "stock..nyse", "usd", "stock.usd."]
    expected = {
        "#": keys,
        "#.#": keys,
        "stock.*": ["stock.usd"],
        "stock.#": ["stock", "stock.usd", "stock.usd.nyse", "stock..nyse", "stock.usd."],
        "*.*.nyse": ["stock.usd.nyse", "stock..nyse"],
        "*.usd.#": ["stock.usd", "stock.usd.nyse", "stock.usd."],
        "stock.usd.*": ["stock.usd.nyse", "stock.usd."],
        "*": ["stock", "usd"],
    }
    queues = {}
    for pattern in expected:
        queues[pattern] = await scene.queue(channel, CLASSIC)
        await queues[pattern].bind(exchange, pattern)
    for key in keys:
        await publish(channel, key, key, exchange=exchange)
    for pattern, queue in queues.items():
        got = [body.decode() for body in await drained(queue)]
        equal(got, expected[pattern], f"keys matched by {pattern!r}")


@check
async def exchange_headers(scene):
    """all, any, and their forms that compare `x-` keys too; 1 is not "1" (RTE-05, RTE-06)."""
    channel = await scene.channel()
    exchange = await scene.exchange(channel, ExchangeType.HEADERS)
    bindings = {
        "all": {"x-match": "all", "type": "report", "pages": 3, "x-draft": True},
        "any": {"x-match": "any", "type": "report", "pages": 3, "x-draft": True},
        "all-with-x": {"x-match": "all-with-x", "type": "report", "x-draft": True},
        "any-with-x": {"x-match": "any-with-x", "pages": 3, "x-draft": True},
    }
    queues = {}
    for match, arguments in bindings.items():
        queues[match] = await scene.queue(channel, CLASSIC)
        await queues[match].bind(exchange, "", arguments=arguments)
    await publish(channel, "", b"report", exchange=exchange, headers={"type": "report", "pages": 3})
    await publish(channel, "", b"text", exchange=exchange, headers={"type": "letter", "pages": "3"})
    await publish(channel, "", b"draft", exchange=exchange, headers={"type": "report", "x-draft": True})
    await publish(channel, "", b"none", exchange=exchange)
    got = {match: await drained(queue) for match, queue in queues.items()}
    expected = {
        "all": [b"report"],
        "any": [b"report", b"draft"],
        "all-with-x": [b"draft"],
        "any-with-x": [b"report", b"draft"],
    }
    equal(got, expected, "messages")


@check
async def exchange_headers_bad_match_refused(scene):
    """x-match has four values (RTE-08)."""
    channel = await scene.channel()
    exchange, queue = await scene.exchange(channel, ExchangeType.HEADERS), await scene.queue(channel)
    text = (
        'PRECONDITION_FAILED - Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x'
    )
    await refused(406, text, queue.bind(exchange, "", arguments={"x-match": "some"}))


@check
async def exchange_to_exchange_in_a_circle(scene):
    """Exchanges bound in a circle route each message once (BND-07, BND-08)."""
    channel = await scene.channel()
    first, second = [await scene.exchange(channel, ExchangeType.FANOUT) for _ in range(2)]
    queue = await scene.queue(channel)
    await first.bind(second)
    await second.bind(first)
    for exchange in (first, second):
        await queue.bind(exchange)
    await publish(channel, "", b"1", exchange=first)
    await publish(channel, "", b"2", exchange=second)
    equal(await drained(queue), [b"1", b"2"], "messages")


@check
async def exchange_alternate(scene):
    """What an exchange routes nowhere goes to its alternate, and is then not returned (AE-01, AE-04)."""
    channel = await scene.channel(on_return_raises=True)
    alternate = await scene.exchange(channel, ExchangeType.FANOUT)
    main = await scene.exchange(channel, ExchangeType.DIRECT, arguments={"alternate-exchange": alternate.name})
    bound, rest = [await scene.queue(channel) for _ in range(2)]
    await bound.bind(main, "known")
    await rest.bind(alternate)
    for key in ("known", "unknown"):
        await main.publish(Message(key.encode()), key, mandatory=True)
    equal((await drained(bound), await drained(rest)), ([b"known"], [b"unknown"]), "messages")


@check
async def exchange_internal_refuses_publishes(scene):
    """An internal exchange is only reached through others (EXC-10)."""
    channel = await scene.channel()
    inner = await scene.exchange(channel, ExchangeType.FANOUT, internal=True)
    outer, queue = await scene.exchange(channel, ExchangeType.FANOUT), await scene.queue(channel)
    await inner.bind(outer)
    await queue.bind(inner)
    await publish(channel, "", b"m", exchange=outer)
    equal(await drained(queue), [b"m"], "messages")
    text = f"ACCESS_REFUSED - cannot publish to internal exchange '{inner.name}' in vhost '/'"
    await refused(403, text, (await scene.raw()).basic_publish(b"m", exchange=inner.name))


@check
async def exchange_auto_delete_and_if_unused(scene):
    """auto-delete goes with its last binding as a source; if-unused protects one in use (EXC-08, EXC-09)."""
    channel = await scene.channel()
    exchange = await scene.exchange(channel, ExchangeType.DIRECT, auto_delete=True)
    queue = await scene.queue(channel)
    await queue.bind(exchange, "a")
    text = f"PRECONDITION_FAILED - exchange '{exchange.name}' in vhost '/' in use"
    await refused(406, text, (await scene.raw()).exchange_delete(exchange.name, if_unused=True))
    await channel.declare_exchange(exchange.name, passive=True)
    await delete(queue)

    async def gone():
        try:
            await (await scene.channel()).declare_exchange(exchange.name, passive=True)
        except exceptions.ChannelNotFoundEntity as error:
            return error.args[-1] == f"NOT_FOUND - no exchange '{exchange.name}' in vhost '/'"

    await eventually("the exchange gone", gone)


@check
async def exchange_redeclare_inequivalent_refused(scene):
    """Type and alternate exchange are compared (EXC-04)."""
    exchange = await scene.exchange(await scene.channel(), ExchangeType.TOPIC)
    start = f"PRECONDITION_FAILED - inequivalent arg '{{}}' for exchange '{exchange.name}' in vhost '/': "

    async def redeclare(kind, **more):
        await (await scene.channel()).declare_exchange(exchange.name, kind, **more)

    text = start.format("type") + "received 'direct' but current is 'topic'"
    await refused(406, text, redeclare(ExchangeType.DIRECT))
    text = start.format("alternate-exchange")
    text += "received the value 'other' of type 'longstr' but current is none"
    await refused(406, text, redeclare(ExchangeType.TOPIC, arguments={"alternate-exchange": "other"}))


@check
async def bind_to_missing_refused(scene):
    """404 names the exchange that is missing (BND-02)."""
    missing = scene.name("x")
    queue = await scene.queue(await scene.channel())
    await refused(404, f"NOT_FOUND - no exchange '{missing}' in vhost '/'", queue.bind(missing, "k"))


# --- D. queues -------------------------------------------------------------------------------------------------


@check
async def queue_declare_counts(scene):
    """declare-ok counts ready messages and consumers, on either type (QUE-01)."""
    channel = await scene.channel()
    for arguments in (QUORUM, CLASSIC):
        queue = await scene.queue(channel, arguments)
        ok = queue.declaration_result
        equal((ok.queue, ok.message_count, ok.consumer_count), (queue.name, 0, 0), "declare-ok")
        await publish(channel, queue, *numbers(4))
        equal(await counts(channel, queue), (4, 0), "counts")
        await (await Inbox.on(queue, no_ack=True)).wait(4)
        await Inbox.on(queue)
        equal(await counts(channel, queue), (0, 2), "counts")


@check
async def queue_server_named(scene):
    """A server-named queue works by its name, but cannot be redeclared by it (QUE-06, QUE-09)."""
    connection = await scene.connection()
    channel = await connection.channel()
    queue = await channel.declare_queue(exclusive=True)
    assert queue.name.startswith("amq.gen-") and len(queue.name) == 30, queue.name
    await channel.get_queue(queue.name)
    text = f"ACCESS_REFUSED - queue name '{queue.name}' contains reserved prefix 'amq.*'"
    await refused(403, text, on(connection.channel(), lambda c: c.declare_queue(queue.name, exclusive=True)))


@check
async def queue_passive_missing_refused(scene):
    """A passive declare of a missing queue is 404 (QUE-12)."""
    name = scene.name()
    text = f"NOT_FOUND - no queue '{name}' in vhost '/'"
    await refused(404, text, (await scene.channel()).get_queue(name))


@check
async def queue_redeclare_inequivalent_refused(scene):
    """Texts and type names of inequivalent declares; integers of any width are equal (EQV-01, 03, 04, 05)."""
    channel = await scene.channel()
    queue = await scene.queue(channel, {**QUORUM, "x-max-length": 60000})  # pamqp writes 60000 as `u`
    start = f"PRECONDITION_FAILED - inequivalent arg '{{}}' for queue '{queue.name}' in vhost '/': "

    async def redeclare(arguments, durable=True):
        await (await scene.channel()).declare_queue(queue.name, durable=durable, arguments=arguments)

    await redeclare({**QUORUM, "x-max-length": 60000})
    text = start.format("x-max-length") + "received none but current is the value '60000' of type 'unsignedshort'"
    await refused(406, text, redeclare(QUORUM))
    text = start.format("x-max-length") + "received '100' but current is '60000'"
    await refused(406, text, redeclare({**QUORUM, "x-max-length": 100}))
    text = start.format("x-max-length-bytes") + "received the value '100' of type 'byte' but current is none"
    await refused(406, text, redeclare({**QUORUM, "x-max-length": 60000, "x-max-length-bytes": 100}))
    text = start.format("durable") + "received 'false' but current is 'true'"
    await refused(406, text, redeclare({**QUORUM, "x-max-length": 60000}, durable=False))


@check
async def queue_exclusive_locked(scene):
    """405 for other connections, and for the owner who redeclares it as shared (EXQ-02, EXQ-03)."""
    connection = await scene.connection(node=0)
    queue = await scene.queue(await connection.channel(), None, durable=False, exclusive=True)
    text = (
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue.name}' in vhost '/'. It could be "
        "originally declared on another connection or the exclusive property value does not match that of the original "
        "declaration."
    )

    async def elsewhere():
        try:
            await (await scene.channel(node=1)).get_queue(queue.name)
        except exceptions.ChannelNotFoundEntity:
            return False  # the other node may learn of it an instant later (BND-11)

    await refused(405, text, eventually("the queue known on the other node", elsewhere))
    await refused(405, text, on(connection.channel(), lambda c: c.declare_queue(queue.name)))


@check
async def queue_auto_delete(scene):
    """An auto-delete queue goes when its last consumer's channel is closed (EXQ-05)."""
    channel = await scene.channel()
    queue = await scene.queue(channel, CLASSIC, auto_delete=True)
    await publish(channel, queue, b"m")
    await (await Inbox.on(queue)).wait(1)
    await channel.close()

    async def gone():
        try:
            await (await scene.channel()).get_queue(queue.name)
        except exceptions.ChannelNotFoundEntity:
            return True

    await eventually("the queue gone", gone)


@check
async def queue_purge_and_delete_count(scene):
    """purge-ok and delete-ok count ready messages (DEL-01, DEL-07)."""
    channel = await scene.channel()
    queue = await scene.queue(channel)
    await publish(channel, queue, *numbers(30))
    equal((await queue.purge()).message_count, 30, "messages purged")
    await publish(channel, queue, *numbers(7))
    equal((await delete(queue)).message_count, 7, "messages deleted")


# --- E. publishing ---------------------------------------------------------------------------------------------


@check
async def confirms_thousand_in_flight(scene):
    """A thousand publishes at once, on another node than the declare: each acked, all in order (CNF-02, PUB-10)."""
    queue = await scene.queue(await scene.channel(node=0))
    await seen_on(scene, 1, queue)
    channel = await scene.channel(node=1)
    acks = await asyncio.wait_for(
        asyncio.gather(
            *(channel.default_exchange.publish(Message(body), queue.name, mandatory=False) for body in numbers(1000))
        ),
        WAIT_SECONDS * 3,
    )
    equal({type(ack) for ack in acks}, {spec.Basic.Ack}, "confirms")
    equal(await drained(queue), numbers(1000), "order")


@check
async def publish_mandatory_returned(scene):
    """Unroutable and mandatory comes back as 312 with its properties, and is confirmed (PUB-04, CNF-03)."""
    channel = await scene.channel(on_return_raises=True)
    missing = scene.name()
    message = Message(b"lost", content_type="text/plain", correlation_id="c", headers={"CC": [missing], "BCC": ["b"]})
    try:
        await channel.default_exchange.publish(message, missing, mandatory=True, timeout=WAIT_SECONDS)
    except exceptions.PublishError as error:
        returned, properties = error.message.delivery, error.message.header.properties
        equal((returned.reply_code, returned.reply_text), (312, "NO_ROUTE"), "basic.return")
        equal((returned.exchange, returned.routing_key), ("", missing), "exchange and key")
        equal((error.message.body, properties.headers), (b"lost", {"CC": [missing]}), "body and headers")
        equal((properties.content_type, properties.correlation_id), ("text/plain", "c"), "properties")
    else:
        raise AssertionError("not returned")
    queue = await scene.queue(channel)
    await publish(channel, queue, b"next")  # its confirm has the next number
    equal(await drained(queue), [b"next"], "messages")


@check
async def publish_cc_and_bcc(scene):
    """CC and BCC are keys of a direct exchange too, one copy a queue (RTE-09, PRP-07, PRP-08)."""
    channel = await scene.channel()
    exchange = await scene.exchange(channel, ExchangeType.DIRECT)
    queues = [await scene.queue(channel) for _ in range(3)]
    for key, queue in zip("abc", queues):
        await queue.bind(exchange, key)
    await publish(channel, "a", b"m", exchange=exchange, headers={"CC": ["b", "a", "b"], "BCC": ["c"]})
    for queue in queues:
        message = await get(queue, no_ack=True)
        equal((message.routing_key, message.headers), ("a", {"CC": ["b", "a", "b"]}), "key and headers")
        equal(await drained(queue), [], "further copies")


@check
async def publish_too_large_refused(scene):
    """16 MiB are taken, one byte more is 406 after the whole body has been read (PUB-02, FRM-17, Q-05)."""
    channel = await scene.channel()
    queue = await scene.queue(channel, CLASSIC)
    limit = 16 << 20
    await publish(channel, queue, bytes(limit))
    equal(len((await get(queue, no_ack=True)).body), limit, "bytes")
    text = f"PRECONDITION_FAILED - message size {limit + 1} is larger than configured max size {limit}"
    await refused(406, text, publish(channel, queue, bytes(limit + 1)))


@check
async def publish_immediate_refused(scene):
    """immediate is 540 and closes the connection (PUB-01)."""
    text = "NOT_IMPLEMENTED - immediate=true"
    await refused(540, text, (await scene.raw()).basic_publish(b"m", routing_key=scene.name(), immediate=True))


@check
async def publish_to_missing_exchange_refused(scene):
    """404 closes the channel only (PUB-01, CHN-06)."""
    connection = await scene.connection()
    missing = scene.name("x")
    raw = await (await connection.channel()).get_underlay_channel()
    text = f"NOT_FOUND - no exchange '{missing}' in vhost '/'"
    await refused(404, text, raw.basic_publish(b"m", exchange=missing))
    await (await connection.channel()).declare_queue(exclusive=True)


@check
async def properties_and_headers_kept(scene):
    """Properties and every header type pamqp can write come back from both types of queue (PRP-01, FRM-14)."""
    channel = await scene.channel()
    moment = datetime.datetime(2026, 11, 21, 3, 4, 5, tzinfo=datetime.timezone.utc)
    headers = {
        "b": -128,
        "s": -32768,
        "u": 65535,
        "I": -(2**31),
        "i": 2**32 - 1,
        "l": -(2**63),
        "f": 0.5,
        "t": True,
        "D": decimal.Decimal("-12.345"),
        "S": "grüße ☃",
        "x": bytearray(b"\x00\xff"),
        "T": moment,
        "V": None,
        "A": [1, 65535, 2**40, "a", [], {}, None, [[["deep"]]]],
        "F": {"empty": {}, "nested": {"array": [{"k": "v"}]}},
    }
    properties = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "delivery_mode": 2,
        "priority": 9,
        "correlation_id": "c",
        "reply_to": "r",
        "message_id": "m",
        "timestamp": moment,
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
    }
    for arguments in (QUORUM, CLASSIC):
        queue = await scene.queue(channel, arguments)
        await publish(channel, queue, b"m", headers=headers, **properties)
        got = await get(queue, no_ack=True)
        equal(got.headers, headers, "headers")
        equal({key: getattr(got, key) for key in properties}, properties, "properties")


@check
async def bodies_of_every_size(scene):
    """0 and 1 bytes, the sizes around a frame, and 5 MiB, all in flight together (FRM-10)."""
    channel = await scene.channel()
    queue = await scene.queue(channel)
    payload = FRAME_MAX - 8
    sizes = (0, 1, payload - 1, payload, payload + 1, 5 << 20, 2 * payload)
    bodies = [bytes([n]) * size for n, size in enumerate(sizes)]
    await asyncio.gather(*(publish(channel, queue, body) for body in bodies))
    inbox = await Inbox.on(queue, no_ack=True)
    await inbox.wait(len(bodies))
    assert inbox.bodies() == bodies, f"sizes {[len(body) for body in inbox.bodies()]}, or changed"


# --- F. consuming, B. acknowledging ----------------------------------------------------------------------------


@check
async def prefetch_is_exact(scene):
    """With prefetch 4 exactly four are out; each ack brings exactly one more (QOS-02, QOS-09)."""
    for arguments in (QUORUM, CLASSIC):
        channel = await scene.channel()
        await channel.set_qos(prefetch_count=4)
        queue = await scene.queue(channel, arguments)
        await publish(channel, queue, *numbers(12))
        inbox = await Inbox.on(queue)
        for out in range(4, 13):
            await inbox.wait(out)
            equal((await counts(channel, queue), len(inbox)), ((12 - out, 1), out), "counts and delivered")
            await inbox.messages[out - 4].ack()
        equal(inbox.bodies(), numbers(12), "order")


@check
async def consumers_share(scene):
    """Two consumers with prefetch 1 share the messages, each goes to one of them (CON-08)."""
    channel, other = await scene.channel(node=0), await scene.channel(node=1)
    queue = await scene.queue(channel)
    seen = {channel: [], other: []}
    done = asyncio.Event()

    async def start(on_channel):
        await on_channel.set_qos(prefetch_count=1)

        async def take(message):
            seen[on_channel].append(int(message.body))
            await message.ack()
            if sum(map(len, seen.values())) >= 60:
                done.set()

        await (await on_channel.get_queue(queue.name)).consume(take)

    await seen_on(scene, 1, queue)
    await start(channel)
    await start(other)
    await publish(channel, queue, *numbers(60))
    await asyncio.wait_for(done.wait(), WAIT_SECONDS)
    assert seen[channel] and seen[other], f"one consumer got nothing: {seen}"
    equal(sorted(seen[channel] + seen[other]), list(range(60)), "messages")
    equal([sorted(tags) for tags in seen.values()], list(seen.values()), "order at each consumer")


@check
async def iterate_and_ack(scene):
    """aio-pika's iterator, the usual way to consume: in order, acked, and the queue is empty after it."""
    channel = await scene.channel()
    queue = await scene.queue(channel)
    await publish(channel, queue, *numbers(20))
    bodies = []
    async with queue.iterator(timeout=WAIT_SECONDS) as messages:
        async for message in messages:
            async with message.process():
                bodies.append(message.body)
            if len(bodies) == 20:
                break
    equal(bodies, numbers(20), "messages")
    await channel.close()
    again = await (await scene.channel()).get_queue(queue.name)
    equal(await drained(again), [], "left")


@check
async def nack_requeues_and_reject_drops(scene):
    """nack and reject, one and several, with and without requeue (ACK-02, ACK-06)."""
    channel = await scene.channel()
    for arguments in (QUORUM, CLASSIC):
        queue = await scene.queue(channel, arguments)
        await publish(channel, queue, *numbers(4))
        messages = [await get(queue) for _ in range(4)]
        equal([message.redelivered for message in messages], [False] * 4, "redelivered")
        await messages[1].nack(multiple=True, requeue=True)
        await messages[2].reject(requeue=False)
        await messages[3].nack(requeue=False)
        again = [await get(queue) for _ in range(2)]
        equal([(m.body, m.redelivered) for m in again], [(b"0", True), (b"1", True)], "returned")
        await again[1].ack(multiple=True)
        equal(await drained(queue), [], "left")


@check
async def delivery_count_headers(scene):
    """A quorum queue counts redeliveries in headers over a closed channel; a classic one does not (Q-31, Q-32)."""
    publisher = await scene.channel()
    for arguments in (QUORUM, CLASSIC):
        queue = await scene.queue(publisher, arguments)
        await publish(publisher, queue, b"m")
        for returned in range(4):
            channel = await scene.channel()
            message = await get(await channel.get_queue(queue.name))
            expected = {}
            if arguments is QUORUM and returned:
                expected = {"x-delivery-count": returned, "x-acquired-count": returned}
                if scene.peer:  # CON-21: up to 4.2 there is one header only
                    expected = {"x-delivery-count": returned}
            equal((message.redelivered, message.headers), (returned > 0, expected), f"after {returned} returns")
            await channel.close()


@check
async def recover_redelivers(scene):
    """basic.recover gives back what is unacked; requeue=false is 540 (ACK-09)."""
    channel = await scene.channel()
    queue = await scene.queue(channel)
    await publish(channel, queue, *numbers(3))
    inbox = await Inbox.on(queue)
    await inbox.wait(3)
    await inbox.messages[1].ack()
    raw = await channel.get_underlay_channel()
    await raw.basic_recover(requeue=True, timeout=WAIT_SECONDS)
    await inbox.wait(5)
    equal([(m.body, m.redelivered) for m in inbox.messages[3:]], [(b"0", True), (b"2", True)], "recovered")
    await refused(540, "NOT_IMPLEMENTED - requeue=false", raw.basic_recover(requeue=False))


@check
async def cancel_notification_when_the_queue_is_deleted(scene):
    """The broker cancels the consumer of a deleted queue, on any node; its channel goes on (CON-13)."""
    owner = await scene.channel(node=0)
    queue = await scene.queue(owner)
    elsewhere = await seen_on(scene, 2, queue)
    raw = await elsewhere.channel.get_underlay_channel()
    cancelled = asyncio.get_running_loop().create_future()
    raw.on_consumer_cancel_callbacks.add(lambda frame: cancelled.set_result(frame.consumer_tag))
    inbox = await Inbox.on(elsewhere)
    await publish(owner, queue, b"m")
    await inbox.wait(1)
    await delete(queue)
    equal(await asyncio.wait_for(cancelled, WAIT_SECONDS), inbox.tag, "consumer cancelled")
    await inbox.messages[0].ack()  # accepted silently (ACK-11)
    await elsewhere.channel.declare_queue(exclusive=True)


@check
async def unknown_delivery_tag_closes_the_channel_only(scene):
    """A tag settled twice is 406; what the channel held returns, others go on (ACK-04, CHN-06, CHN-07)."""
    connection = await scene.connection()
    broken, other = await connection.channel(), await connection.channel()
    queue = await scene.queue(other)
    await publish(other, queue, b"1", b"2")
    raw = await broken.get_underlay_channel()
    await raw.basic_get(queue.name)
    await raw.basic_get(queue.name)
    await raw.basic_ack(1)
    await raw.basic_ack(1)
    text = "PRECONDITION_FAILED - unknown delivery tag 1"
    await refused(406, text, asyncio.shield(raw.closing))
    message = await get(queue, no_ack=True)
    equal((message.body, message.redelivered), (b"2", True), "returned")
    equal(await drained(queue), [], "left")


@check
async def returned_message_goes_to_another_consumer(scene):
    """A message that one consumer returns can be taken by another, and a cancelled one gets none (CON-09, Q-36)."""
    channel, other = await scene.channel(), await scene.channel()
    queue = await scene.queue(channel)
    first = await Inbox.on(queue)
    await publish(channel, queue, b"m")
    (message,) = await first.wait(1)
    await queue.cancel(first.tag)
    second = await Inbox.on(await other.get_queue(queue.name))
    await message.nack(requeue=True)
    (again,) = await second.wait(1)
    equal((again.body, again.redelivered, len(first)), (b"m", True, 1), "returned")


@check
async def channel_flow(scene):
    """flow(true) is answered, flow(false) is 540 (CHN-08)."""
    channel = await scene.channel()
    equal((await channel.flow(active=True)).active, True, "flow-ok")
    await refused(540, "NOT_IMPLEMENTED - active=false", channel.flow(active=False))


# --- across nodes, and lost connections ------------------------------------------------------------------------


@check
async def nodes_declare_publish_consume(scene):
    """Declared on one node, published on the next, consumed on the third; acked is gone, unacked returns."""
    for arguments in (QUORUM, CLASSIC):
        queue = await scene.queue(await scene.channel(node=0), arguments)
        there = await seen_on(scene, 1, queue)
        consumer = await seen_on(scene, 2, queue)
        await consumer.channel.set_qos(prefetch_count=200)
        inbox = await Inbox.on(consumer)
        await asyncio.gather(publish(there.channel, queue, *numbers(200)), inbox.wait(200))
        equal(inbox.bodies(), numbers(200), "order")
        await inbox.messages[-1].ack(multiple=True)
        await publish(there.channel, queue, *numbers(200))
        await inbox.wait(400)  # so the ack has arrived: RabbitMQ may lose it when the channel closes at once after it
        await consumer.channel.close()
        await eventually("all returned", lambda: ready(queue, 200))
        equal(await drained(queue), numbers(200), "returned")


@check
async def nodes_rpc_into_an_exclusive_queue(scene):
    """Twenty calls at once from one node, answered by a server on another into an exclusive queue (EXQ-04)."""
    server, client = await scene.channel(node=1), await scene.channel(node=2)
    requests = await scene.queue(server)
    await seen_on(scene, 2, requests)

    async def serve(message):
        reply = Message(b"answer " + message.body, correlation_id=message.correlation_id)

        async def answered():  # this node may not know the client's queue yet (BND-11)
            sent = await server.default_exchange.publish(reply, message.reply_to, mandatory=True)
            return isinstance(sent, spec.Basic.Ack)

        await eventually("the reply routed", answered)
        await message.ack()

    await requests.consume(serve)
    replies = await client.declare_queue(exclusive=True)
    inbox = await Inbox.on(replies, no_ack=True)
    await asyncio.gather(
        *(publish(client, requests, body, reply_to=replies.name, correlation_id=body.decode()) for body in numbers(20))
    )
    await inbox.wait(20)
    got = {message.correlation_id: message.body for message in inbox.messages}
    equal(got, {body.decode(): b"answer " + body for body in numbers(20)}, "replies")


@check
async def lost_connection_returns_and_unlocks(scene):
    """A connection that ends without a close: unacked messages return, its exclusive queue goes (CONN-32)."""
    channel = await scene.channel()
    queue = await scene.queue(channel)
    await publish(channel, queue, b"m")
    await seen_on(scene, 1, queue)
    async with Proxy([scene.address(1)]) as proxy:
        connection = await aio_pika.connect(scene.url(address=proxy.address), timeout=WAIT_SECONDS)
        scene.opened.append(connection)
        doomed = await connection.channel()
        mine = await scene.queue(doomed, None, durable=False, exclusive=True)
        inbox = await Inbox.on(await doomed.get_queue(queue.name))
        await inbox.wait(1)
        proxy.cut()
    message = await get(queue, no_ack=True)
    equal((message.body, message.redelivered), (b"m", True), "returned")

    async def free():
        try:
            return await (await scene.channel(node=1)).declare_queue(mine.name, exclusive=True)
        except exceptions.ChannelLockedResource:
            return None

    await eventually("the exclusive name free", free)


@check
async def robust_connection_moves_to_another_node(scene):
    """connect_robust, cut off, reconnects to the next node and its consumer goes on there (DUR-10: at least once)."""
    publisher = await scene.channel()
    queue = await scene.queue(publisher)
    for node in range(len(scene.addresses)):
        await seen_on(scene, node, queue)
    async with Proxy(scene.addresses) as proxy:
        url = scene.url(address=proxy.address)
        connection = await aio_pika.connect_robust(url, timeout=WAIT_SECONDS, reconnect_interval=0.1)
        scene.opened.append(connection)
        channel = await connection.channel()
        bodies, arrived = [], asyncio.Condition()

        async def take(message):
            async with arrived:
                if message.body not in bodies:
                    bodies.append(message.body)
                arrived.notify_all()
            with contextlib.suppress(exceptions.ChannelInvalidStateError):
                await message.ack()

        async def wait(count):
            async with arrived:
                await asyncio.wait_for(arrived.wait_for(lambda: len(bodies) == count), WAIT_SECONDS)

        await (await channel.get_queue(queue.name)).consume(take)
        for count in range(1, 4):
            await publish(publisher, queue, b"%d" % count)
            await wait(count)
            proxy.cut()
        await publish(publisher, queue, b"4")
        await wait(4)
        equal(bodies, [b"1", b"2", b"3", b"4"], "messages")
        assert proxy.made >= 4, f"{proxy.made} connections were made"
        await connection.close()


# --- running ---------------------------------------------------------------------------------------------------


async def run(function, addresses, peer):
    """Runs one check and prints its line; True when it passed, None when it was skipped."""
    scene, trouble = Scene(addresses, peer), None
    try:
        try:
            await asyncio.wait_for(function(scene), CHECK_SECONDS)
        finally:
            await asyncio.wait_for(scene.end(), CHECK_SECONDS)
    except Skipped as reason:
        print(f"skip {function.__name__}: {reason}", flush=True)
        return None
    except Exception as error:  # whatever a check meets is its result
        trouble = f"{type(error).__name__}: {error}".replace("\n", " ")
    print(f"not ok {function.__name__}: {trouble}" if trouble else f"ok {function.__name__}", flush=True)
    return trouble is None


async def run_all(options):
    return [await run(function, options.addresses, options.peer) for function in CHECKS]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="store_true", help="the broker is RabbitMQ 4.0")
    parser.add_argument("addresses", nargs="+", metavar="HOST:PORT")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # the client logs every refusal that a check provokes
    assert all(inspect.iscoroutinefunction(function) for function in CHECKS)
    results = asyncio.run(run_all(options))
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    sys.exit(1 if False in results else 0)


if __name__ == "__main__":
    main()
