// What the page is to show: a shop's queues under load, and names that are made to break a page.

import amqp from "amqplib";

// As markup, this would run; as an attribute or in a script, it would end that.
export const HOSTILE = "<img src=x onerror=window.broken=1>'\"`&lt;</script><script>window.broken=1</script>";
export const SHOP = ["orders", "invoices", "mails", "stock"];

export class Api {
  constructor(address, user = "guest", password = "guest") {
    this.base = `http://${address}/api/`;
    this.authorization = `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;
  }

  async call(method, path, body) {
    const at = path.map(encodeURIComponent).join("/");
    const response = await fetch(this.base + at, {
      method,
      headers: { authorization: this.authorization, "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} /api/${at}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }
}

async function shop(channel) {
  await channel.assertExchange("shop", "topic", { durable: true, arguments: { "alternate-exchange": "lost" } });
  await channel.assertExchange("lost", "fanout", { durable: true });
  await channel.assertExchange("graves", "direct", { durable: true });
  for (const name of SHOP) {
    const options = { "x-queue-type": "quorum", "x-dead-letter-exchange": "graves", "x-dead-letter-routing-key": name, "x-delivery-limit": 3 };
    await channel.assertQueue(name, { durable: true, arguments: options });
    await channel.assertQueue(`${name}.dead`, { durable: true, arguments: { "x-queue-type": "quorum" } });
    await channel.bindQueue(name, "shop", `${name}.#`);
    await channel.bindQueue(`${name}.dead`, "graves", name);
  }
  await channel.assertQueue("lost.and.found", { durable: true, arguments: { "x-queue-type": "quorum" } });
  await channel.bindQueue("lost.and.found", "lost", "");
}

// The names of objects, in every field that a client or an operator chooses.
async function hostile(api, address) {
  await api.call("PUT", ["users", HOSTILE], { password: HOSTILE, tags: HOSTILE.replaceAll(",", "") });
  await api.call("PUT", ["vhosts", HOSTILE], { description: HOSTILE, tags: "a" });
  await api.call("PUT", ["permissions", HOSTILE, "guest"], { configure: ".*", write: ".*", read: ".*" });
  await api.call("PUT", ["permissions", "/", HOSTILE], { configure: HOSTILE.replace(/[*`]/g, ""), write: ".*", read: ".*" });
  for (const vhost of ["/", HOSTILE]) {
    await api.call("PUT", ["policies", vhost, HOSTILE], { pattern: "<img src=x", "apply-to": "queues", definition: { "message-ttl": 600000000 } });
    await api.call("PUT", ["operator-policies", vhost, HOSTILE], { pattern: "<img src=x", "apply-to": "queues", definition: { "max-length": 100000 } });
    await api.call("PUT", ["exchanges", vhost, HOSTILE], { type: "headers", durable: true, arguments: { [HOSTILE]: HOSTILE } });
    const letters = { "x-queue-type": "quorum", "x-dead-letter-exchange": HOSTILE, "x-dead-letter-routing-key": HOSTILE };
    await api.call("PUT", ["queues", vhost, HOSTILE], { durable: true, arguments: letters });
    await api.call("POST", ["bindings", vhost, "e", HOSTILE, "q", HOSTILE], { routing_key: HOSTILE, arguments: { [HOSTILE]: HOSTILE } });
    const properties = { headers: { [HOSTILE]: HOSTILE }, content_type: HOSTILE, message_id: HOSTILE, app_id: HOSTILE, correlation_id: HOSTILE };
    await api.call("POST", ["exchanges", vhost, HOSTILE, "publish"], { routing_key: HOSTILE, properties: { ...properties, headers: { [HOSTILE]: HOSTILE } }, payload: HOSTILE, payload_encoding: "string" });
    await api.call("POST", ["exchanges", vhost, "amq.default", "publish"], { routing_key: HOSTILE, properties, payload: HOSTILE, payload_encoding: "string" });
  }
  // It finds nothing, and stays in the list.
  const task = { kind: "move", vhost: HOSTILE, queue: HOSTILE, to: { exchange: HOSTILE }, filter: { routing_key: HOSTILE, header: { [HOSTILE]: "other" } } };
  await api.call("POST", ["quorate", "tasks"], task);
  // The product too, of which RabbitMQ's page makes a link.
  const client = await amqp.connect(`amqp://guest:guest@${address}`, { clientProperties: { connection_name: HOSTILE, product: HOSTILE, information: HOSTILE } });
  const channel = await client.createChannel();
  await channel.prefetch(1);
  await channel.consume(HOSTILE, () => {}, { consumerTag: HOSTILE, arguments: { "x-note": HOSTILE } });
  return client;
}

// Traffic until it is stopped: some messages are rejected, so that they die.
async function traffic(address) {
  const client = await amqp.connect(`amqp://guest:guest@${address}`, { clientProperties: { connection_name: "shop" } });
  const channel = await client.createConfirmChannel();
  await shop(channel);
  await channel.prefetch(20);
  let taken = 0;
  let isOver = false;
  const settle = (message, isGood, ms) => setTimeout(() => {
    if (isOver) return;
    if (isGood) channel.ack(message);
    else channel.nack(message, false, false);
  }, ms);
  await channel.consume("orders", (message) => {
    taken += 1;
    settle(message, taken % 20 !== 0, 50);
  });
  await channel.consume("invoices", (message) => settle(message, true, 200));
  let sent = 0;
  const timer = setInterval(() => {
    for (let burst = 0; burst < 4; burst += 1) {
      sent += 1;
      const body = Buffer.from(JSON.stringify({ order: sent, sum: (sent * 7919) % 1000 }));
      channel.publish("shop", `${SHOP[sent % SHOP.length]}.eu`, body, { persistent: true, contentType: "application/json" });
    }
    channel.publish("shop", "nobody.knows", Buffer.from("?"));
  }, 100);
  return async () => {
    isOver = true;
    clearInterval(timer);
    await client.close();
  };
}

export async function begin(http, address) {
  const api = new Api(http);
  const stop = await traffic(address);
  const client = await hostile(api, address);
  return { api, stop: async () => {
    await stop();
    await client.close();
  } };
}
