// Members, groups, leaders, replicas and how far they are behind, and maintenance of nodes.

import { h, heading, section, facts, button, replace } from "./dom.js";
import { get, path, request } from "./api.js";
import { bytes, count, duration } from "./format.js";
import { ask } from "./form.js";
import { Table } from "./list.js";

// Entries; a follower is always some behind while there is traffic.
const FAR_BEHIND = 10_000;

function memberState(member) {
  if (!member.running) return ["does not answer", "bad"];
  if (member.not_live) return [`hangs: ${member.not_live}`, "bad"];
  if (member.drained) return ["drained", "warn"];
  if (!member.ready) return [`not ready: ${member.not_ready}`, "warn"];
  return [member.state, member.state === "member" ? "good" : "warn"];
}

function maintain(context, member) {
  const drain = !member.drained;
  ask({
    title: drain ? `Drain ${member.name}` : `Revive ${member.name}`,
    intro: drain ? "It hands over its leaderships, closes the connections of its clients and takes no new ones, until it is revived or started again."
      : "It takes leaderships and clients again.",
    submit: drain ? "Drain" : "Revive",
    danger: drain,
    action: async () => {
      await request("POST", path("quorate", "nodes", member.name, drain ? "drain" : "revive"));
      await context.refresh();
      return drain ? "The node is being drained." : "The node is revived.";
    },
  });
}

function memberTable(context) {
  return new Table({
    caption: "Members",
    key: (member) => member.id,
    columns: [
      { title: "Node", head: true, text: (member) => member.name },
      { title: "State", text: (member) => memberState(member)[0], state: (member) => memberState(member)[1] },
      { title: "Alarms", optional: true, text: (member) => (member.alarms ?? []).join(", "), state: (member) => (member.alarms?.length ? "bad" : "") },
      { title: "Zone", optional: true, text: (member) => member.zone },
      { title: "Leads", num: true, text: (member) => count(member.leads) },
      { title: "Replicas", num: true, text: (member) => count(member.replicas) },
      { title: "Clients", num: true, text: (member) => count(member.connections) },
      { title: "Memory", num: true, text: (member) => (member.running ? `${bytes(member.memory_bytes)} of ${bytes(member.memory_limit_bytes)}` : "") },
      { title: "Free disk", num: true, text: (member) => (member.running ? bytes(member.disk_free_bytes) : "") },
      { title: "Up", num: true, text: (member) => (member.running ? duration(member.uptime_s) : "") },
      { title: "Version", text: (member) => member.version ?? "" },
      { title: "Address", text: (member) => member.rpc_address },
      context.may.administer ? { title: "Maintenance", text: (member) => (member.running ? (member.drained ? "Revive" : "Drain") : ""),
        make: (member) => (member.running ? button(member.drained ? "Revive" : "Drain", () => maintain(context, member), { "aria-label": `${member.drained ? "Revive" : "Drain"} ${member.name}` }) : null) } : null,
    ],
  });
}

// A group of the catalog has the number 0.
const groupName = (group) => (group.group === 0 ? "catalog" : `queues ${group.group}`);
const short = (name) => name.replace(/@.*$/, "");

function groupTable() {
  const replica = (group) => group.replicas.map((one) => {
    const lag = one.node === group.leader ? "leads" : one.lag === null ? one.role : one.lag === 0 ? "up to date" : `${count(one.lag)} behind`;
    return `${short(one.node)}: ${lag}`;
  }).join(", ");
  const silent = (group) => group.placement.filter((node) => !group.replicas.some((one) => one.node === node));
  const state = (group) => {
    if (!group.leader) return ["no leader", "bad"];
    if (silent(group).length) return [`without ${silent(group).map(short).join(", ")}`, "warn"];
    if (group.former.length) return ["moves", "warn"];
    if (group.replicas.some((one) => one.lag > FAR_BEHIND)) return ["a replica catches up", "warn"];
    return ["in order", "good"];
  };
  const largest = (group, field) => Math.max(0, ...group.replicas.map((one) => one[field] ?? 0));
  return new Table({
    caption: "Groups",
    key: (group) => group.group,
    empty: "The cluster has not been formed yet.",
    columns: [
      { title: "Group", head: true, text: groupName },
      { title: "State", text: (group) => state(group)[0], state: (group) => state(group)[1] },
      { title: "Leader", text: (group) => group.leader ?? "" },
      { title: "Term", num: true, text: (group) => count(group.term) },
      { title: "Replicas", text: replica },
      { title: "Last entry", num: true, text: (group) => count(largest(group, "last")) },
      { title: "Log on disk", num: true, text: (group) => bytes(largest(group, "log_bytes")) },
    ],
  });
}

export async function open(context) {
  const members = memberTable(context);
  const groups = groupTable();
  const summary = h("div");
  await context.poll(async () => {
    const cluster = await get("quorate/cluster", null, context.signal);
    replace(summary, facts([
      ["Cluster", cluster.cluster_id],
      ["Version of the replicated machine", cluster.machine_version],
      ["Leader of the catalog", cluster.catalog_leader],
      ["Members that answer", `${cluster.members.filter((member) => member.running).length} of ${cluster.members.length}`],
      ["Groups with a leader", `${cluster.groups.filter((group) => group.leader).length} of ${cluster.groups.length}`],
    ]));
    members.update(cluster.members);
    groups.update(cluster.groups);
  });
  return [heading("Cluster"), summary, section("Members", members.element), section("Groups", groups.element)];
}
