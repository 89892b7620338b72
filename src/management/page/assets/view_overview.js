// The cluster at a glance: counts, rates, charts, alarms and nodes.

import { h, heading, section, link, replace } from "./dom.js";
import { get, see } from "./api.js";
import { bytes, count, duration, rate, UNKNOWN } from "./format.js";
import { knowsRates, note, rateOf } from "./history.js";
import { Chart } from "./chart.js";
import { Table } from "./list.js";

const RATES = [["publish", "Published"], ["confirm", "Confirmed"], ["deliver_get", "Delivered"], ["ack", "Acknowledged"], ["redeliver", "Redelivered"]];
const OBJECTS = [["queues", "Queues"], ["connections", "Connections"], ["channels", "Channels"], ["consumers", "Consumers"], ["exchanges", "Exchanges"]];

function card(name, href) {
  const value = h("strong", null, UNKNOWN);
  const title = h("span", null, name);
  const element = href ? h("a", { class: "card", href }, value, title) : h("div", { class: "card" }, value, title);
  return { element, set: (text) => { value.textContent = text; } };
}

function alarmsOf(node) {
  const alarms = [];
  if (node.mem_alarm) alarms.push(`memory: ${bytes(node.mem_used)} of ${bytes(node.mem_limit)}`);
  if (node.disk_free_alarm) alarms.push(`disk: ${bytes(node.disk_free)} free, ${bytes(node.disk_free_limit)} needed`);
  return alarms;
}

function nodeTable() {
  return new Table({
    caption: "Nodes",
    key: (node) => node.name,
    columns: [
      { title: "Node", head: true, text: (node) => node.name },
      { title: "State", text: (node) => (!node.running ? "does not answer" : node.being_drained ? "drained" : "running"),
        state: (node) => (!node.running ? "bad" : node.being_drained ? "warn" : "good") },
      { title: "Memory", num: true, text: (node) => `${bytes(node.mem_used)} of ${bytes(node.mem_limit)}`, state: (node) => (node.mem_alarm ? "bad" : "") },
      { title: "Free disk", num: true, text: (node) => bytes(node.disk_free), state: (node) => (node.disk_free_alarm ? "bad" : "") },
      { title: "Descriptors", num: true, text: (node) => `${count(node.fd_used)} of ${count(node.fd_total)}` },
      { title: "Connections", num: true, text: (node) => count(node.sockets_used) },
      { title: "Up", num: true, text: (node) => (node.running ? duration(node.uptime / 1000) : UNKNOWN) },
    ],
  });
}

export async function open(context) {
  const messages = [["messages_ready", "Ready"], ["messages_unacknowledged", "Unacknowledged"], ["messages", "Messages"]]
    .map(([field, name]) => [field, card(name)]);
  const rates = RATES.map(([kind, name]) => [kind, card(name)]);
  const objects = OBJECTS.map(([field, name]) => [field, card(name, `#/${field === "consumers" ? "queues" : field}`)]);
  const alarms = h("div", { role: "status" });
  const lengths = new Chart("Messages in queues", count);
  const passing = new Chart("Messages a second", rate);
  const nodes = context.may.monitor ? nodeTable() : null;
  const cards = (list) => h("div", { class: "cards" }, list.map(([, one]) => one.element));
  const rateCards = cards(rates);
  const version = h("span", { class: "muted" });
  let series = { lengths: [], passing: [] };

  const draw = () => {
    lengths.update(series.lengths);
    passing.update(series.passing);
  };

  await context.poll(async () => {
    const [shown, listed] = await Promise.all([
      get("overview", { columns: "queue_totals,object_totals,message_stats,quorate_version" }, context.signal),
      nodes ? see("nodes", { columns: "name,running,being_drained,mem_used,mem_limit,mem_alarm,disk_free,disk_free_limit,disk_free_alarm,fd_used,fd_total,sockets_used,uptime" }, context.signal) : [],
    ]);
    const totals = shown.queue_totals ?? {};
    version.textContent = `version ${shown.quorate_version}`;
    for (const [field, one] of messages) one.set(count(totals[field]));
    for (const [field, one] of objects) one.set(count(shown.object_totals?.[field]));
    const now = rates.map(([kind, one]) => {
      const value = rateOf(shown.message_stats, kind, "overview");
      one.set(rate(value));
      return [kind, value];
    });
    series = {
      lengths: messages.slice(0, 2).map(([field], at) => ({ name: ["Ready", "Unacknowledged"][at], points: note(`overview ${field}`, totals[field]) })),
      passing: now.map(([kind, value], at) => ({ name: RATES[at][1], points: note(`overview rate ${kind}`, value) })),
    };
    rateCards.hidden = !knowsRates(shown.message_stats);
    passing.element.hidden = rateCards.hidden;
    draw();
    nodes?.update(listed ?? []);
    const raised = (listed ?? []).flatMap((node) => alarmsOf(node).map((text) => `${node.name}: ${text}`));
    replace(alarms, raised.map((text) => h("p", { class: "alarm" }, `Alarm at ${text}. Publishers are blocked.`)));
  });
  document.addEventListener("view-shown", draw, { once: true, signal: context.signal });
  window.addEventListener("resize", draw, { signal: context.signal });

  return [
    heading("Overview", version),
    alarms,
    section("Messages", cards(messages), rateCards, h("div", { class: "charts" }, lengths.element, passing.element)),
    section("Objects", cards(objects)),
    nodes ? section("Nodes", nodes.element, h("p", null, link("#/cluster", "Groups, replicas and maintenance"))) : null,
  ];
}
