'use strict';
// amqplib (npm) against a broker: exact order of what comes over the socket, and every field type.
//
//     test.js [--peer] HOST:PORT [HOST:PORT ...]
//
// One check is one function; its comment says what it proves and names the rules of the spec.
// With several addresses the checks that name nodes use different ones. `--peer` says that the broker is
// RabbitMQ 4.0: checks whose outcome decisions.md changes are then skipped or tolerant, and say by which rule.

const assert = require('node:assert');
const crypto = require('node:crypto');
const net = require('node:net');
const amqplib = require('amqplib');

const WAIT_MS = 300_000; // what has not come by then never comes
const CHECK_MS = 60_000;
const RUN = crypto.randomBytes(4).toString('hex');
const FRAME_MAX = 131072;
const QUORUM = { arguments: { 'x-queue-type': 'quorum' } };
const CLASSIC = { arguments: { 'x-queue-type': 'classic' } };
const CHECKS = [];

// --- what every check uses ------------------------------------------------------------------------------------

class Skipped extends Error {}

function check(name, run) {
  CHECKS.push({ name, run });
}

// Connections, channels and names of one check; everything is closed and deleted when the check ends.
class Scene {
  constructor(addresses, peer) {
    this.addresses = addresses;
    this.peer = peer;
    this.opened = [];
    this.queues = [];
    this.exchanges = [];
  }

  address(node = 0) {
    return this.addresses[node % this.addresses.length];
  }

  async connection(node = 0, { user = 'guest:guest', vhost = '%2F', query = '', address } = {}) {
    const url = `amqp://${user}@${address || this.address(node)}/${vhost}?${query}`;
    const connection = await amqplib.connect(url, { noDelay: true, timeout: WAIT_MS });
    this.opened.push(connection);
    return failing(connection);
  }

  // A channel on a connection of its own, so that no error reaches another channel.
  async channel(node = 0) {
    const connection = await this.connection(node);
    const channel = failing(await connection.createConfirmChannel());
    channel.connectionFailed = connection.failed;
    return channel;
  }

  name(kind = 'q') {
    const name = `interop-amqplib-${RUN}-${this.queues.length + this.exchanges.length}-${kind}`;
    (kind === 'x' ? this.exchanges : this.queues).push(name);
    return name;
  }

  async queue(channel, options = QUORUM) {
    return (await channel.assertQueue(this.name(), options)).queue;
  }

  async exchange(channel, type, options) {
    return (await channel.assertExchange(this.name('x'), type, options)).exchange;
  }

  notOnThePeer(reason) {
    if (this.peer) throw new Skipped(reason);
  }

  async end() {
    // Many of them the broker has closed already.
    for (const connection of this.opened) await within(connection.close(), 'close').catch(() => {});
    this.opened = [];
    if (this.queues.length + this.exchanges.length === 0) return;
    const channel = await this.channel();
    for (const queue of this.queues) await channel.deleteQueue(queue);
    for (const exchange of this.exchanges) await channel.deleteExchange(exchange);
    await this.opened[0].close();
  }
}

// Gives a channel or connection a promise `failed` of the error that ends it.
function failing(emitter) {
  emitter.failed = new Promise((resolve) => emitter.on('error', resolve));
  return emitter;
}

// A consumer that keeps what it is given.
class Inbox {
  static async on(channel, queue, options) {
    const inbox = new Inbox();
    inbox.messages = [];
    inbox.cancelled = 0;
    inbox.onArrival = () => {};
    const take = (message) => {
      if (message === null) inbox.cancelled += 1;
      else inbox.messages.push(message);
      inbox.onArrival();
    };
    inbox.tag = (await channel.consume(queue, take, options)).consumerTag;
    return inbox;
  }

  bodies() {
    return this.messages.map(body);
  }

  async until(what, condition) {
    const arrived = new Promise((resolve) => {
      this.onArrival = () => condition() && resolve();
      this.onArrival();
    });
    await within(arrived, `${what}; ${this.messages.length} messages came`);
  }

  async wait(count) {
    await this.until(`${count} messages`, () => this.messages.length >= count);
    assert.strictEqual(this.messages.length, count, 'messages delivered');
    return this.messages;
  }
}

// Forwards to the addresses in turn, one for each connection made, and can cut what it forwards.
class Proxy {
  static async start(addresses) {
    const proxy = new Proxy();
    proxy.made = 0;
    proxy.sockets = [];
    proxy.server = net.createServer((client) => {
      const [host, port] = addresses[proxy.made % addresses.length].split(':');
      proxy.made += 1;
      const broker = net.connect(Number(port), host);
      for (const [from, to] of [[client, broker], [broker, client]]) {
        from.pipe(to);
        from.on('error', () => to.destroy());
        proxy.sockets.push(from);
      }
    });
    await new Promise((resolve) => proxy.server.listen(0, '127.0.0.1', resolve));
    proxy.address = `127.0.0.1:${proxy.server.address().port}`;
    return proxy;
  }

  cut() {
    for (const socket of this.sockets.splice(0)) socket.resetAndDestroy();
  }

  stop() {
    this.server.close();
    this.cut();
  }
}

const equal = assert.deepStrictEqual;

function within(promise, what, ms = WAIT_MS) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${ms} ms: ${what}`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// Asks until the condition holds, at most WAIT_MS; its value.
async function eventually(what, condition) {
  const deadline = Date.now() + WAIT_MS;
  for (;;) {
    const value = await condition();
    if (value) return value;
    assert(Date.now() < deadline, `not within ${WAIT_MS} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

// The action is rejected by a close with exactly this code and text.
async function refused(code, text, action) {
  const error = await within(
    action.then(
      () => assert.fail(`not refused, expected ${code} ${text}`),
      (reason) => reason,
    ),
    text,
  );
  closedWith(code, text, error);
}

function closedWith(code, text, error) {
  const said = /with message "([^]*)"$/.exec(error.message);
  equal([error.code, said ? said[1] : error.message], [code, text]);
}

// [ready messages, consumers]
async function counts(channel, queue) {
  const ok = await channel.checkQueue(queue);
  return [ok.messageCount, ok.consumerCount];
}

// Publishes and waits for the confirm.
function publish(channel, exchange, key, content, options) {
  const buffer = Buffer.isBuffer(content) ? content : Buffer.from(content);
  const confirmed = new Promise((resolve, reject) => {
    channel.publish(exchange, key, buffer, options, (error) => (error ? reject(error) : resolve()));
  });
  return within(confirmed, 'confirm');
}

async function send(channel, queue, ...bodies) {
  await Promise.all(bodies.map((content) => publish(channel, '', queue, content)));
}

// The next message, waited for: what was returned may become ready an instant later (DUR-11).
function get(channel, queue, options) {
  return eventually(`a message in ${queue}`, () => channel.get(queue, options));
}

// The bodies of all ready messages.
async function drained(channel, queue) {
  const bodies = [];
  for (;;) {
    const message = await channel.get(queue, { noAck: true });
    if (!message) return bodies;
    bodies.push(body(message));
  }
}

const body = (message) => message.content.toString();

const numbers = (count) => Array.from({ length: count }, (_, n) => String(n));

// Another node may learn of a declare an instant later (BND-11).
async function seenOn(scene, node, queue) {
  await eventually(`${queue} known on node ${node}`, async () => {
    const channel = await scene.channel(node);
    return channel.checkQueue(queue).then(
      () => true,
      (error) => error.code !== 404,
    );
  });
}

async function gone(scene, queue) {
  await eventually(`${queue} gone`, async () => {
    const channel = await scene.channel();
    return channel.checkQueue(queue).then(
      () => false,
      (error) => error.code === 404,
    );
  });
}

// --- A. connection --------------------------------------------------------------------------------------------

// Product and capabilities as RabbitMQ's (CONN-07, CONN-08, Q-01).
check('connect_server_properties', async (scene) => {
  const properties = (await scene.connection()).connection.serverProperties;
  equal(properties.product, 'RabbitMQ');
  assert.match(properties.version, /^4\.\d+\.\d+/);
  const names =
    'publisher_confirms exchange_exchange_bindings basic.nack consumer_cancel_notify connection.blocked ' +
    'consumer_priorities authentication_failure_close per_consumer_qos direct_reply_to';
  equal(names.split(' ').filter((name) => properties.capabilities[name] !== true), []);
});

// The broker proposes channel-max 2047, frame-max 131072, heartbeat 60 (CONN-16).
check('connect_tune_defaults', async (scene) => {
  const { channelMax, frameMax, heartbeat } = (await scene.connection(0, { query: 'frameMax=0' })).connection;
  equal({ channelMax, frameMax, heartbeat }, { channelMax: 2047, frameMax: FRAME_MAX, heartbeat: 60 });
});

// A client may ask for less, and gets its bodies in frames of that size (CONN-16, FRM-10).
check('connect_tune_lower', async (scene) => {
  const connection = await scene.connection(0, { query: 'frameMax=8192&channelMax=2&heartbeat=5' });
  const { channelMax, frameMax, heartbeat } = connection.connection;
  equal({ channelMax, frameMax, heartbeat }, { channelMax: 2, frameMax: 8192, heartbeat: 5 });
  const channel = await connection.createConfirmChannel();
  const queue = await scene.queue(channel);
  const content = crypto.randomBytes(100_000);
  await publish(channel, '', queue, content);
  const got = await get(channel, queue, { noAck: true });
  assert(got.content.equals(content), 'the body changed');
});

// A wrong password and an unknown user get the same 403 (CONN-13, CONN-14).
check('connect_bad_password_refused', async (scene) => {
  const text =
    'Handshake terminated by server: 403 (ACCESS-REFUSED) with message "ACCESS_REFUSED - Login was refused using ' +
    'authentication mechanism PLAIN. For details see the broker logfile."';
  for (const user of ['guest:wrong', `nobody-${RUN}:guest`]) {
    await assert.rejects(scene.connection(0, { user }), { message: text });
  }
});

// An unknown virtual host is refused with a connection.close (CONN-20).
check('connect_unknown_vhost_refused', async (scene) => {
  const vhost = `missing-${RUN}`;
  await assert.rejects(scene.connection(0, { vhost }), /ConnectionClose/); // amqplib does not show its fields
});

// With heartbeat 1 both sides stay content for longer than three of them (HB-01, HB-02).
check('heartbeats_keep_an_idle_connection', async (scene) => {
  const connection = await scene.connection(0, { query: 'heartbeat=1' });
  const idle = new Promise((resolve) => setTimeout(resolve, 4500, 'idle')); // idle time is the subject here
  equal(await Promise.race([idle, connection.failed]), 'idle');
  const channel = await connection.createChannel();
  await channel.assertQueue('', { exclusive: true });
});

// A new secret is accepted and changes nothing with the internal user database (CONN-30, CONN-31).
check('update_secret', async (scene) => {
  const connection = await scene.connection();
  await within(connection.updateSecret(Buffer.from('another'), 'interop'), 'update-secret-ok');
  await (await connection.createChannel()).assertQueue('', { exclusive: true });
});

// A closed channel's number is used again and again, and works each time (CHN-05).
check('channel_numbers_are_reused', async (scene) => {
  const connection = await scene.connection();
  const queue = await scene.queue(await connection.createChannel());
  for (let n = 0; n < 30; n += 1) {
    const channel = await connection.createConfirmChannel();
    equal(channel.ch, 2);
    await send(channel, queue, String(n));
    equal(await drained(channel, queue), [String(n)]);
    await channel.close();
  }
});

// --- C. exchanges and routing ---------------------------------------------------------------------------------

// direct compares the key, fanout does not; unbound is unbound (RTE-02, RTE-03, BND-04).
check('exchange_direct_fanout_and_unbind', async (scene) => {
  const channel = await scene.channel();
  for (const [type, expected] of [['direct', ['1']], ['fanout', ['1', '2']]]) {
    const exchange = await scene.exchange(channel, type);
    const queue = await scene.queue(channel);
    await channel.bindQueue(queue, exchange, 'a');
    await publish(channel, exchange, 'a', '1');
    await publish(channel, exchange, 'b', '2');
    await channel.unbindQueue(queue, exchange, 'a');
    await channel.unbindQueue(queue, exchange, 'never bound');
    await publish(channel, exchange, 'a', '3');
    equal(await drained(channel, queue), expected);
  }
});

// `*` is one word, `#` any number, words may be empty, wildcards are whole words (RTE-04).
check('exchange_topic', async (scene) => {
  const channel = await scene.channel();
  const exchange = await scene.exchange(channel, 'topic');
  const keys = ['', '.', 'a', 'a.', 'a.b', 'a.b.c', 'x.a.b'];
  const expected = {
    '#': keys,
    '*': ['a'],
    '*.*': ['.', 'a.', 'a.b'],
    'a.*': ['a.', 'a.b'],
    'a.#': ['a', 'a.', 'a.b', 'a.b.c'],
    '#.a.#': ['a', 'a.', 'a.b', 'a.b.c', 'x.a.b'],
    '#.b': ['a.b', 'x.a.b'],
    'a#': [],
  };
  const queues = {};
  for (const pattern of Object.keys(expected)) {
    queues[pattern] = await scene.queue(channel, CLASSIC);
    await channel.bindQueue(queues[pattern], exchange, pattern);
  }
  for (const key of keys) await publish(channel, exchange, key, key);
  const got = {};
  for (const [pattern, queue] of Object.entries(queues)) got[pattern] = await drained(channel, queue);
  equal(got, expected);
});

// headers: all, any, presence; integers are equal in any width, and not equal to text (RTE-05, RTE-06).
check('exchange_headers', async (scene) => {
  const channel = await scene.channel();
  const exchange = await scene.exchange(channel, 'headers');
  const bindings = {
    all: { 'x-match': 'all', n: { '!': 'int64', value: 7 }, flag: true },
    any: { 'x-match': 'any', n: { '!': 'int64', value: 7 }, flag: true },
    presence: { 'x-match': 'all', n: null },
  };
  const queues = {};
  for (const [label, table] of Object.entries(bindings)) {
    queues[label] = await scene.queue(channel, CLASSIC);
    await channel.bindQueue(queues[label], exchange, '', table);
  }
  const sent = {
    byte: { n: { '!': 'int8', value: 7 }, flag: true },
    short: { n: { '!': 'int16', value: 7 }, flag: false },
    text: { n: '7' },
    flag: { flag: true },
    none: {},
  };
  for (const [label, headers] of Object.entries(sent)) await publish(channel, exchange, '', label, { headers });
  const got = {};
  for (const [label, queue] of Object.entries(queues)) got[label] = await drained(channel, queue);
  equal(got, { all: ['byte'], any: ['byte', 'short', 'flag'], presence: ['byte', 'short', 'text'] });
});

// Binding one exchange to another, and taking the binding away again (BND-07).
check('exchange_to_exchange', async (scene) => {
  const channel = await scene.channel();
  const [source, middle] = [await scene.exchange(channel, 'direct'), await scene.exchange(channel, 'topic')];
  const queue = await scene.queue(channel);
  await channel.bindExchange(middle, source, 'a.b');
  await channel.bindQueue(queue, middle, 'a.*');
  await publish(channel, source, 'a.b', '1');
  await publish(channel, source, 'a.c', '2');
  await channel.unbindExchange(middle, source, 'a.b');
  await publish(channel, source, 'a.b', '3');
  await publish(channel, middle, 'a.c', '4');
  equal(await drained(channel, queue), ['1', '4']);
});

// The predeclared exchanges exist, route, and cannot be deleted (EXC-01, EXC-07).
check('exchange_predeclared', async (scene) => {
  const channel = await scene.channel();
  const queue = await scene.queue(channel);
  for (const exchange of ['amq.direct', 'amq.fanout', 'amq.topic', 'amq.headers', 'amq.match']) {
    await channel.checkExchange(exchange);
    await channel.bindQueue(queue, exchange, RUN, { [RUN]: 'x' });
    await publish(channel, exchange, RUN, exchange, { headers: { [RUN]: 'x' } });
    await channel.unbindQueue(queue, exchange, RUN, { [RUN]: 'x' });
  }
  equal(await drained(channel, queue), ['amq.direct', 'amq.fanout', 'amq.topic', 'amq.headers', 'amq.match']);
  const text = "ACCESS_REFUSED - deletion of system exchange 'amq.topic' in vhost '/' not allowed";
  await refused(403, text, channel.deleteExchange('amq.topic'));
});

// Missing, reserved, unknown type, default exchange, inequivalent (EXC-02, 03, 04, 06).
check('exchange_refusals', async (scene) => {
  const missing = scene.name('x');
  const declared = await scene.exchange(await scene.channel(), 'direct');
  const cases = [
    [404, `NOT_FOUND - no exchange '${missing}' in vhost '/'`, (c) => c.checkExchange(missing)],
    [
      403,
      `ACCESS_REFUSED - exchange name 'amq.${RUN}' contains reserved prefix 'amq.*'`,
      (c) => c.assertExchange(`amq.${RUN}`, 'direct'),
    ],
    [406, "PRECONDITION_FAILED - unknown exchange type 'x-none'", (c) => c.assertExchange(missing, 'x-none')],
    [403, 'ACCESS_REFUSED - operation not permitted on the default exchange', (c) => c.assertExchange('', 'direct')],
    [403, 'ACCESS_REFUSED - operation not permitted on the default exchange', (c) => c.deleteExchange('')],
    [
      406,
      `PRECONDITION_FAILED - inequivalent arg 'auto_delete' for exchange '${declared}' in vhost '/': ` +
        "received 'true' but current is 'false'",
      (c) => c.assertExchange(declared, 'direct', { autoDelete: true }),
    ],
  ];
  for (const [code, text, action] of cases) await refused(code, text, action(await scene.channel()));
});

// 404 names what is missing; with both missing, the exchange (BND-02).
check('bind_to_missing_refused', async (scene) => {
  const queue = await scene.queue(await scene.channel());
  const missing = scene.name();
  const noExchange = `NOT_FOUND - no exchange '${missing}' in vhost '/'`;
  await refused(404, noExchange, (await scene.channel()).bindQueue(queue, missing, 'k'));
  await refused(404, noExchange, (await scene.channel()).bindQueue(missing, missing, 'k'));
  const noQueue = `NOT_FOUND - no queue '${missing}' in vhost '/'`;
  await refused(404, noQueue, (await scene.channel()).bindQueue(missing, 'amq.direct', 'k'));
});

// --- D. queues ------------------------------------------------------------------------------------------------

// declare-ok counts ready messages and consumers, on either type (QUE-01).
check('queue_declare_counts', async (scene) => {
  const channel = await scene.channel();
  for (const options of [QUORUM, CLASSIC]) {
    const name = scene.name();
    const fresh = { queue: name, messageCount: 0, consumerCount: 0 };
    equal({ ...(await channel.assertQueue(name, options)) }, fresh);
    await send(channel, name, '1', '2');
    equal({ ...(await channel.assertQueue(name, options)) }, { ...fresh, messageCount: 2 });
    await (await Inbox.on(channel, name)).wait(2);
    equal({ ...(await channel.assertQueue(name, options)) }, { ...fresh, consumerCount: 1 });
  }
});

// A server-named queue, and the empty name that means the last one declared (QUE-06, CHN-13, CHN-14).
check('queue_server_named_and_empty_name', async (scene) => {
  const channel = await scene.channel();
  await refused(404, 'NOT_FOUND - no previously declared queue', (await scene.channel()).purgeQueue(''));
  const { queue } = await channel.assertQueue('', { exclusive: true });
  assert.match(queue, /^amq\.gen-[A-Za-z0-9_-]{22}$/);
  await channel.bindQueue('', 'amq.direct', ''); // both empty: the key is the queue's name
  await publish(channel, 'amq.direct', queue, 'm');
  equal(await drained(channel, ''), ['m']);
});

// Missing, reserved, server-named quorum, wrong properties, wrong values (QUE-07 to 09, QUE-12, ARG-01).
check('queue_refusals', async (scene) => {
  const name = scene.name();
  const typed = (value) => ({ arguments: { 'x-queue-type': value } });
  const cases = [
    [404, `NOT_FOUND - no queue '${name}' in vhost '/'`, (c) => c.checkQueue(name)],
    [
      403,
      `ACCESS_REFUSED - queue name 'amq.${RUN}' contains reserved prefix 'amq.*'`,
      (c) => c.assertQueue(`amq.${RUN}`, QUORUM),
    ],
    [
      406,
      'PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue',
      (c) => c.assertQueue('', QUORUM),
    ],
    [
      406,
      `PRECONDITION_FAILED - invalid property 'auto-delete' for queue '${name}' in vhost '/'`,
      (c) => c.assertQueue(name, { ...QUORUM, autoDelete: true }),
    ],
    [
      406,
      `PRECONDITION_FAILED - invalid arg 'x-queue-type' for queue '${name}' in vhost '/': ` +
        '"unsupported queue type \'foo\'"',
      (c) => c.assertQueue(name, typed('foo')),
    ],
    [
      406,
      `PRECONDITION_FAILED - invalid arg 'x-expires' for queue '${name}' in vhost '/': {value_zero,0}`,
      (c) => c.assertQueue(name, { ...QUORUM, expires: 0 }),
    ],
  ];
  for (const [code, text, action] of cases) await refused(code, text, action(await scene.channel()));
});

// Inequivalent declares, with amqplib's types; integers of another width are equal (EQV-01 to 06).
check('queue_redeclare_inequivalent_refused', async (scene) => {
  const channel = await scene.channel();
  const limited = (value) => ({ arguments: { 'x-queue-type': 'quorum', 'x-max-length': value } });
  const queue = await scene.queue(channel, limited(1000)); // amqplib writes it as a short
  await channel.assertQueue(queue, limited({ '!': 'int64', value: 1000 }));
  const plain = await scene.queue(channel);
  const start = (arg, name) => `PRECONDITION_FAILED - inequivalent arg '${arg}' for queue '${name}' in vhost '/': `;
  const cases = [
    ['x-max-length', queue, "received '100000' but current is '1000'", limited(100000)],
    ['x-max-length', queue, "received none but current is the value '1000' of type 'short'", QUORUM],
    [
      'x-max-length',
      plain,
      "received the value '5' of type 'long' but current is none",
      limited({ '!': 'int64', value: 5 }),
    ],
    ['x-queue-type', plain, "received 'classic' but current is 'quorum'", {}],
    ['durable', plain, "received 'false' but current is 'true'", { ...QUORUM, durable: false }],
    ['auto_delete', plain, "received 'true' but current is 'false'", { ...QUORUM, autoDelete: true }],
  ];
  for (const [arg, name, text, options] of cases) {
    await refused(406, start(arg, name) + text, (await scene.channel()).assertQueue(name, options));
  }
  equal(await counts(channel, queue), [0, 0]);
});

// 405 for every other connection, on any node, until its own has closed (EXQ-01, EXQ-02, CONN-27).
check('queue_exclusive_locked', async (scene) => {
  const owner = await scene.connection(0);
  const { queue } = await (await owner.createChannel()).assertQueue(scene.name(), { exclusive: true });
  await seenOn(scene, 1, queue);
  const text =
    `RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '${queue}' in vhost '/'. It could be ` +
    'originally declared on another connection or the exclusive property value does not match that of the original ' +
    'declaration.';
  const uses = [
    (c) => c.checkQueue(queue),
    (c) => c.assertQueue(queue, { exclusive: true }),
    (c) => c.get(queue),
    (c) => c.consume(queue, () => {}),
    (c) => c.purgeQueue(queue),
    (c) => c.deleteQueue(queue),
    (c) => c.bindQueue(queue, 'amq.direct', 'k'),
  ];
  for (const use of uses) await refused(405, text, use(await scene.channel(1)));
  await owner.close();
  await refused(404, `NOT_FOUND - no queue '${queue}' in vhost '/'`, (await scene.channel(0)).checkQueue(queue));
});

// An auto-delete queue goes with its last consumer (EXQ-05).
check('queue_auto_delete', async (scene) => {
  const channel = await scene.channel();
  const queue = await scene.queue(channel, { ...CLASSIC, autoDelete: true });
  const inbox = await Inbox.on(channel, queue);
  await send(channel, queue, 'm');
  await inbox.wait(1);
  await channel.cancel(inbox.tag);
  await gone(scene, queue);
});

// Conditions of a delete on classic, and counts of purge and delete (DEL-01, DEL-02, DEL-07).
check('queue_purge_and_delete', async (scene) => {
  const channel = await scene.channel();
  const queue = await scene.queue(channel, CLASSIC);
  await send(channel, queue, ...numbers(9));
  const text = `PRECONDITION_FAILED - queue '${queue}' in vhost '/' `;
  await refused(406, `${text}not empty`, (await scene.channel()).deleteQueue(queue, { ifEmpty: true }));
  equal((await channel.purgeQueue(queue)).messageCount, 9);
  const { tag } = await Inbox.on(channel, queue);
  await refused(406, `${text}in use`, (await scene.channel()).deleteQueue(queue, { ifUnused: true }));
  await channel.cancel(tag);
  await send(channel, queue, '1', '2');
  equal((await channel.deleteQueue(queue, { ifUnused: true })).messageCount, 2);
  equal((await channel.deleteQueue(queue)).messageCount, 0);
});

// --- E. publishing --------------------------------------------------------------------------------------------

// A thousand publishes in flight on another node: all confirmed, in order in the queue (CNF-02, PUB-10).
check('confirms_thousand_in_flight', async (scene) => {
  const owner = await scene.channel(0);
  const queue = await scene.queue(owner);
  await seenOn(scene, 1, queue);
  const channel = await scene.channel(1);
  const confirmed = [];
  for (const text of numbers(1000)) {
    channel.sendToQueue(queue, Buffer.from(text), {}, (error) => confirmed.push(error || 'ack'));
  }
  await within(channel.waitForConfirms(), 'confirms', WAIT_MS * 3);
  equal(confirmed, Array(1000).fill('ack'));
  equal(await counts(owner, queue), [1000, 0]);
  equal(await drained(owner, queue), numbers(1000));
});

// basic.return comes before the confirm of its message, which is an ack (PUB-04, PUB-05, CNF-03).
check('publish_mandatory_returned_before_its_confirm', async (scene) => {
  const channel = await scene.channel();
  const missing = scene.name();
  const events = [];
  channel.on('return', (message) => events.push(message));
  for (const text of numbers(3)) {
    await publish(channel, '', missing, text, { mandatory: true, headers: { n: text }, type: 'lost' });
    events.push('confirmed');
  }
  equal(events.filter((_, n) => n % 2 === 1), ['confirmed', 'confirmed', 'confirmed']);
  const returned = events.filter((_, n) => n % 2 === 0);
  const fields = { replyCode: 312, replyText: 'NO_ROUTE', exchange: '', routingKey: missing };
  for (const [n, message] of returned.entries()) {
    equal({ ...message.fields }, fields);
    equal([body(message), message.properties.type, message.properties.headers], [String(n), 'lost', { n: String(n) }]);
  }
  equal(returned.length, 3);
  await publish(channel, '', missing, 'dropped'); // not mandatory: confirmed all the same (PUB-07)
});

// CC and BCC are further keys, one copy a queue; consumers see CC and never BCC (RTE-09, PRP-07, PRP-08).
check('publish_cc_and_bcc', async (scene) => {
  const channel = await scene.channel();
  const queues = [];
  for (let n = 0; n < 3; n += 1) queues.push(await scene.queue(channel));
  const [main, copied, blind] = queues;
  await publish(channel, '', main, 'm', { CC: [copied, copied, main], BCC: blind });
  for (const queue of queues) {
    const message = await get(channel, queue, { noAck: true });
    equal([message.fields.routingKey, message.properties.headers], [main, { CC: [copied, copied, main] }]);
    equal(await drained(channel, queue), []);
  }
  const text = 'PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"BCC",longstr}';
  const wrong = channel.publish('', main, Buffer.from('m'), { headers: { BCC: 'no array' } });
  equal(wrong, true);
  closedWith(406, text, await within(channel.failed, 'channel closed'));
});

// 404 closes the channel; the connection and earlier publishes are not touched (PUB-01, PUB-03).
check('publish_to_missing_exchange_refused', async (scene) => {
  const connection = await scene.connection();
  const channel = failing(await connection.createChannel());
  const queue = await scene.queue(channel);
  const missing = scene.name('x');
  channel.sendToQueue(queue, Buffer.from('before'));
  channel.publish(missing, 'k', Buffer.from('m'));
  channel.sendToQueue(queue, Buffer.from('after'));
  const error = await within(channel.failed, 'channel closed');
  closedWith(404, `NOT_FOUND - no exchange '${missing}' in vhost '/'`, error);
  equal([error.classId, error.methodId], [60, 40]);
  const other = await connection.createChannel();
  equal(body(await get(other, queue, { noAck: true })), 'before');
  equal(await drained(other, queue), []);
});

// The properties amqplib can set come back, on both types of queue (PRP-01, PRP-03, PRP-05).
check('properties_kept', async (scene) => {
  const channel = await scene.channel();
  const sent = {
    contentType: 'application/json',
    contentEncoding: 'gzip',
    headers: {},
    deliveryMode: 2,
    priority: 255,
    correlationId: 'c',
    replyTo: 'r',
    expiration: '600000',
    messageId: 'm',
    timestamp: 1700000000,
    type: 't',
    userId: 'guest',
    appId: 'a',
  };
  for (const options of [QUORUM, CLASSIC]) {
    const queue = await scene.queue(channel, options);
    await publish(channel, '', queue, '{}', sent);
    const { properties } = await get(channel, queue, { noAck: true });
    equal({ ...properties, clusterId: undefined }, { ...sent, clusterId: undefined });
    await publish(channel, '', queue, 'bare');
    const bare = (await get(channel, queue, { noAck: true })).properties;
    equal(Object.entries(bare).filter(([key, value]) => key !== 'headers' && value !== undefined), []);
  }
});

// Every field type of the wire, by name, comes back as the same type (FRM-14, FRM-15).
check('headers_of_every_type_kept', async (scene) => {
  const channel = await scene.channel();
  const typed = (type, value) => ({ '!': type, value });
  const sent = {
    int8: typed('int8', -128),
    uint8: typed('uint8', 255),
    int16: typed('int16', -32768),
    uint16: typed('uint16', 65535),
    int32: typed('int32', -(2 ** 31)),
    uint32: typed('uint32', 2 ** 32 - 1),
    int64: typed('int64', -(2 ** 53)),
    float: typed('float', 0.25),
    double: Math.PI,
    decimal: typed('decimal', { places: 2, digits: 314 }),
    timestamp: typed('timestamp', 1795230245),
    string: 'grüße ☃',
    bytes: Buffer.from([0, 255, 254]),
    yes: true,
    no: false,
    nothing: null,
    array: [1, 'two', [], {}, null, [[typed('timestamp', 1)]]],
    table: { empty: {}, deeper: { deepest: [{ bytes: Buffer.from('x') }] } },
  };
  const plain = (value) => {
    if (Array.isArray(value)) return value.map(plain);
    if (value === null || typeof value !== 'object' || Buffer.isBuffer(value)) return value;
    // The decoder keeps the mark on the types that JavaScript has not.
    if ('!' in value) return ['timestamp', 'decimal'].includes(value['!']) ? value : value.value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, plain(inner)]));
  };
  for (const options of [QUORUM, CLASSIC]) {
    const queue = await scene.queue(channel, options);
    await publish(channel, '', queue, 'm', { headers: sent });
    equal((await get(channel, queue, { noAck: true })).properties.headers, plain(sent));
  }
});

// 0 and 1 bytes, the sizes around one and two frames, and 5 MiB (FRM-10).
check('bodies_of_every_size', async (scene) => {
  const channel = await scene.channel();
  const queue = await scene.queue(channel);
  const payload = FRAME_MAX - 8;
  const sizes = [0, 1, payload - 1, payload, payload + 1, 2 * payload - 1, 2 * payload, 2 * payload + 1, 5 << 20];
  const bodies = sizes.map((size) => crypto.randomBytes(size));
  await Promise.all(bodies.map((content) => publish(channel, '', queue, content)));
  const inbox = await Inbox.on(channel, queue, { noAck: true });
  await inbox.wait(sizes.length);
  equal(inbox.messages.map((message) => message.content.length), sizes);
  assert(bodies.every((content, n) => inbox.messages[n].content.equals(content)), 'a body changed');
});

// --- F. consuming, B. acknowledging ---------------------------------------------------------------------------

// get-ok with the count of what is left, and get-empty (GET-01).
check('get_and_get_empty', async (scene) => {
  const channel = await scene.channel();
  const queue = await scene.queue(channel);
  equal(await channel.get(queue), false);
  await send(channel, queue, '1', '2');
  const first = await channel.get(queue);
  const fields = { deliveryTag: 1, redelivered: false, exchange: '', routingKey: queue, messageCount: 1 };
  equal([body(first), { ...first.fields }], ['1', fields]);
  const second = await channel.get(queue);
  equal([body(second), { ...second.fields }], ['2', { ...fields, deliveryTag: 2, messageCount: 0 }]);
  equal(await channel.get(queue), false);
});

// With prefetch 2 exactly two are out; each ack brings exactly one more; 0 takes the limit away (QOS-02).
check('prefetch_is_exact', async (scene) => {
  for (const options of [QUORUM, CLASSIC]) {
    const channel = await scene.channel();
    const queue = await scene.queue(channel, options);
    await send(channel, queue, ...numbers(20));
    await channel.prefetch(2);
    const inbox = await Inbox.on(channel, queue);
    for (let out = 2; out < 10; out += 1) {
      await inbox.wait(out);
      equal([await counts(channel, queue), inbox.messages.length], [[20 - out, 1], out]);
      channel.ack(inbox.messages[out - 2]);
    }
    await inbox.wait(10);
    await channel.prefetch(0); // for consumers started from now on
    const rest = await Inbox.on(channel, queue);
    await rest.wait(10);
    equal([...inbox.bodies(), ...rest.bodies()], numbers(20));
  }
});

// ackAll, nackAll and allUpTo settle what they say, in order (ACK-02, ACK-03, ACK-07).
check('ack_and_nack_several', async (scene) => {
  const channel = await scene.channel();
  for (const options of [QUORUM, CLASSIC]) {
    const queue = await scene.queue(channel, options);
    await send(channel, queue, ...numbers(5));
    const messages = [];
    for (let n = 0; n < 5; n += 1) messages.push(await get(channel, queue));
    channel.ack(messages[1], true);
    channel.nackAll(true);
    const again = [];
    for (let n = 0; n < 3; n += 1) again.push(await get(channel, queue));
    equal(again.map((m) => [body(m), m.fields.redelivered]), [['2', true], ['3', true], ['4', true]]);
    channel.nack(again[0], false, false);
    channel.reject(again[1], true);
    const last = await get(channel, queue);
    equal([body(last), last.fields.redelivered], ['3', true]);
    channel.ackAll();
    equal(await drained(channel, queue), []);
  }
});

// Redeliveries of a quorum queue are counted in headers, also those of nack; not on classic (Q-31, Q-32, CON-23).
check('delivery_count_headers', async (scene) => {
  const channel = await scene.channel();
  for (const options of [QUORUM, CLASSIC]) {
    const queue = await scene.queue(channel, options);
    await send(channel, queue, 'm');
    for (let returned = 0; returned < 4; returned += 1) {
      const message = await get(channel, queue);
      let expected = {};
      if (options === QUORUM && returned > 0) {
        expected = { 'x-acquired-count': returned, 'x-delivery-count': returned };
        if (scene.peer) delete expected['x-acquired-count']; // CON-21: up to 4.2 there is one header only
      }
      // A message sent with an empty table comes back with one (FRM-16).
      equal([{ ...message.properties.headers }, message.fields.redelivered], [expected, returned > 0]);
      channel.nack(message, false, true);
    }
  }
});

// basic.recover gives back what is unacked, in order (ACK-09).
check('recover_redelivers', async (scene) => {
  const channel = await scene.channel();
  const queue = await scene.queue(channel);
  await send(channel, queue, '1', '2', '3');
  const inbox = await Inbox.on(channel, queue);
  channel.ack((await inbox.wait(3))[0]);
  await channel.recover();
  await inbox.wait(5);
  equal(inbox.bodies(), ['1', '2', '3', '2', '3']);
  equal(inbox.messages.map((m) => m.fields.deliveryTag), [1, 2, 3, 4, 5]);
});

// Cancelling stops deliveries, keeps what is unacked, and frees the tag (CON-09, CON-11, ACK-10).
check('cancel_then_settle', async (scene) => {
  const channel = await scene.channel();
  const queue = await scene.queue(channel);
  await channel.prefetch(1);
  await send(channel, queue, '1', '2');
  const inbox = await Inbox.on(channel, queue, { consumerTag: 'mine' });
  const [message] = await inbox.wait(1);
  await channel.cancel('mine');
  await channel.cancel('never there');
  channel.nack(message, false, true);
  await eventually('both ready, no consumer', async () => (await counts(channel, queue)).join() === '2,0');
  const again = await Inbox.on(channel, queue, { consumerTag: 'mine' });
  const [first] = await again.wait(1);
  equal([body(first), first.fields.redelivered, inbox.messages.length], ['1', true, 1]);
});

// The broker cancels the consumers of a deleted queue, wherever they are (CON-13).
check('cancel_notification_when_the_queue_is_deleted', async (scene) => {
  for (const options of [QUORUM, CLASSIC]) {
    const queue = await scene.queue(await scene.channel(0), options);
    const inboxes = [];
    for (const node of [0, 1, 2]) {
      await seenOn(scene, node, queue);
      const channel = await scene.channel(node);
      inboxes.push([channel, await Inbox.on(channel, queue)]);
    }
    await (await scene.channel(1)).deleteQueue(queue);
    for (const [channel, inbox] of inboxes) {
      await inbox.until('basic.cancel', () => inbox.cancelled > 0);
      await channel.assertQueue('', { exclusive: true }); // the channel goes on
      equal(inbox.cancelled, 1);
    }
  }
});

// A consumer tag in use on the channel is 530 and closes the connection (CON-01).
check('consumer_tag_reuse_refused', async (scene) => {
  const connection = await scene.connection();
  const [channel, other] = [failing(await connection.createChannel()), await connection.createChannel()];
  const queue = await scene.queue(channel);
  await Inbox.on(channel, queue, { consumerTag: 'mine' });
  await Inbox.on(other, queue, { consumerTag: 'mine' }); // tags are per channel
  channel.consume(queue, () => {}, { consumerTag: 'mine' }).catch(() => {});
  const error = await within(connection.failed, 'connection closed');
  closedWith(530, "NOT_ALLOWED - attempt to reuse consumer tag 'mine'", error);
});

// 406 closes the channel; its unacked messages return, the connection goes on (ACK-04, ACK-05, CHN-06).
check('unknown_delivery_tag_closes_the_channel_only', async (scene) => {
  const connection = await scene.connection();
  const [broken, other] = [failing(await connection.createChannel()), await connection.createConfirmChannel()];
  const queue = await scene.queue(other);
  await send(other, queue, '1', '2', '3');
  const messages = [];
  for (let n = 0; n < 3; n += 1) messages.push(await get(broken, queue));
  broken.ack(messages[1]);
  broken.ack(messages[1], true); // settled before: multiple does not help
  const error = await within(broken.failed, 'channel closed');
  closedWith(406, 'PRECONDITION_FAILED - unknown delivery tag 2', error);
  const again = [await get(other, queue, { noAck: true }), await get(other, queue, { noAck: true })];
  equal(again.map((m) => [body(m), m.fields.redelivered]), [['1', true], ['3', true]]);
  equal(await drained(other, queue), []);
});

// An exclusive consumer keeps others out and is kept out by others (CON-04).
check('consume_exclusively_on_classic', async (scene) => {
  await consumeExclusively(scene, CLASSIC);
});

// The same on a quorum queue.
check('consume_exclusively_on_quorum', async (scene) => {
  scene.notOnThePeer('Q-12: RabbitMQ ignores the flag on quorum queues (CON-04)');
  await consumeExclusively(scene, QUORUM);
});

async function consumeExclusively(scene, options) {
  const channel = await scene.channel();
  const queue = await scene.queue(channel, options);
  const text = `ACCESS_REFUSED - queue '${queue}' in vhost '/' in exclusive use`;
  const alone = await Inbox.on(channel, queue, { exclusive: true });
  await refused(403, text, Inbox.on(await scene.channel(), queue));
  await channel.cancel(alone.tag);
  await Inbox.on(channel, queue);
  await refused(403, text, Inbox.on(await scene.channel(), queue, { exclusive: true }));
}

// Closing a channel returns its unacked messages, also those of basic.get, to their places (CHN-05, GET-04, Q-30).
check('channel_close_returns_messages', async (scene) => {
  const channel = await scene.channel();
  const queue = await scene.queue(channel);
  await send(channel, queue, '1', '2', '3');
  const holder = await scene.channel(1);
  await seenOn(scene, 1, queue);
  await get(holder, queue);
  await (await Inbox.on(holder, queue)).wait(2);
  equal(await channel.get(queue), false);
  await holder.close();
  await eventually('all ready', async () => (await counts(channel, queue))[0] === 3);
  const returned = await drained(channel, queue);
  // RabbitMQ's quorum queues return what the consumer held before what the get held.
  if (scene.peer) returned.sort();
  equal(returned, ['1', '2', '3']);
});

// --- across nodes, and lost connections -----------------------------------------------------------------------

// Declared on one node, published on the next, consumed on the third. What is acked is gone, what is not returns.
check('nodes_declare_publish_consume', async (scene) => {
  for (const options of [QUORUM, CLASSIC]) {
    const owner = await scene.channel(0);
    const queue = await scene.queue(owner, options);
    await seenOn(scene, 1, queue);
    await seenOn(scene, 2, queue);
    const consumer = await scene.channel(2);
    await consumer.prefetch(7);
    const inbox = await Inbox.on(consumer, queue);
    const publisher = await scene.channel(1);
    await send(publisher, queue, ...numbers(70));
    for (let n = 7; n <= 70; n += 7) {
      await inbox.wait(n);
      consumer.ack(inbox.messages[n - 1], true);
    }
    equal(inbox.bodies(), numbers(70));
    await send(publisher, queue, ...numbers(7));
    await inbox.wait(77); // so all acks have arrived: RabbitMQ may lose some when the channel closes at once after them
    await consumer.close();
    await eventually('seven returned', async () => (await counts(owner, queue)).join() === '7,0');
    equal(await drained(owner, queue), numbers(7));
  }
});

// A topic exchange made on one node routes on another once its binding is known there (BND-11).
check('nodes_bind_and_publish', async (scene) => {
  const channel = await scene.channel(0);
  const [exchange, queue] = [await scene.exchange(channel, 'topic'), await scene.queue(channel)];
  await channel.bindQueue(queue, exchange, 'a.#');
  const routed = async () => {
    const elsewhere = await scene.channel(1);
    let returned = false;
    elsewhere.on('return', () => {
      returned = true;
    });
    const published = publish(elsewhere, exchange, 'a.b.c', 'm', { mandatory: true });
    return Promise.race([published, elsewhere.failed.then(() => Promise.reject(new Error('closed')))]).then(
      () => !returned,
      () => false,
    );
  };
  await eventually('the publish routed', routed);
  equal(body(await get(channel, queue, { noAck: true })), 'm');
});

// A server on one node replies into the exclusive queue of a client on another (EXQ-04).
check('nodes_rpc_into_an_exclusive_queue', async (scene) => {
  const [client, server] = [await scene.channel(0), await scene.channel(2)];
  const requests = await scene.queue(server);
  await seenOn(scene, 0, requests);
  const returned = new Set();
  server.on('return', (message) => returned.add(message.properties.correlationId));
  const serve = async (message) => {
    const { replyTo, correlationId } = message.properties;
    await eventually('the reply routed', async () => {
      returned.delete(correlationId); // this node may not know the client's queue yet (BND-11)
      await publish(server, '', replyTo, `answer ${body(message)}`, { correlationId, mandatory: true });
      return !returned.has(correlationId);
    });
    server.ack(message);
  };
  await server.consume(requests, (message) => serve(message).catch((error) => server.emit('error', error)));
  const { queue: replyTo } = await client.assertQueue('', { exclusive: true });
  const inbox = await Inbox.on(client, replyTo, { noAck: true });
  for (const text of numbers(10)) await publish(client, '', requests, text, { replyTo, correlationId: text });
  await inbox.wait(10);
  const got = inbox.messages.map((m) => [m.properties.correlationId, body(m)]).sort();
  equal(got, numbers(10).map((text) => [text, `answer ${text}`]));
});

// amqplib's recovery, cut off, reconnects to the next node and its consumer goes on there (CONN-32, DUR-10).
check('recovery_moves_to_another_node', async (scene) => {
  const publisher = await scene.channel();
  const queue = await scene.queue(publisher);
  for (const node of scene.addresses.keys()) await seenOn(scene, node, queue);
  const proxy = await Proxy.start(scene.addresses);
  const bodies = new Set();
  const setup = async (model) => {
    const channel = failing(await model.createChannel());
    await channel.consume(queue, (message) => {
      bodies.add(body(message));
      channel.ack(message);
    });
  };
  const recovery = { initialDelay: 50, maxDelay: 500, setup };
  try {
    const connection = failing(await amqplib.connect(`amqp://guest:guest@${proxy.address}`, { recovery }));
    scene.opened.push(connection);
    for (const text of ['1', '2', '3']) {
      await send(publisher, queue, text);
      await eventually(`message ${text}`, () => bodies.has(text));
      proxy.cut();
    }
    await send(publisher, queue, '4');
    await eventually('message 4', () => bodies.has('4'));
    equal([...bodies], ['1', '2', '3', '4']);
    assert(proxy.made >= 4, `${proxy.made} connections were made`);
    await connection.close();
  } finally {
    proxy.stop();
  }
});

// --- running --------------------------------------------------------------------------------------------------

// Runs one check and prints its line; whether it passed, or null when it was skipped.
async function run({ name, run: action }, addresses, peer) {
  const scene = new Scene(addresses, peer);
  let trouble = null;
  try {
    try {
      await within(action(scene), 'the check', CHECK_MS);
    } finally {
      await within(scene.end(), 'the clean-up', CHECK_MS);
    }
  } catch (error) {
    trouble = error;
  }
  if (trouble instanceof Skipped) {
    console.log(`skip ${name}: ${trouble.message}`);
    return null;
  }
  const why = trouble && String(trouble.message || trouble).replace(/\s*\n\s*/g, ' ');
  console.log(trouble ? `not ok ${name}: ${why}` : `ok ${name}`);
  return !trouble;
}

async function main() {
  const args = process.argv.slice(2);
  const peer = args.includes('--peer');
  const addresses = args.filter((arg) => arg !== '--peer');
  if (addresses.length === 0 || addresses.some((address) => !/:\d+$/.test(address))) {
    console.error('usage: test.js [--peer] HOST:PORT [HOST:PORT ...]');
    process.exit(2);
  }
  const results = [];
  for (const each of CHECKS) results.push(await run(each, addresses, peer));
  const failed = results.filter((result) => result === false).length;
  console.log(`${results.filter((result) => result === true).length} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
}

// What a failed check leaves behind may be rejected later; its own line has said why it failed.
process.on('unhandledRejection', () => {});
main();
