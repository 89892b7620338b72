// Users, their permissions, and virtual hosts.

import { h, heading, section, facts, button, link, replace } from "./dom.js";
import { ApiError, find, get, path, request } from "./api.js";
import { count, value } from "./format.js";
import { ask } from "./form.js";
import { PagedList, Table } from "./list.js";

const TAGS = ["administrator", "monitoring", "policymaker", "management", "impersonator"];
const tagsOf = (user) => (Array.isArray(user.tags) ? user.tags : String(user.tags ?? "").split(",").filter(Boolean));

// `user`: one that is there, or nothing for a new one.
function setUser(context, user) {
  ask({
    title: user ? `Change ${user.name}` : "Add a user",
    submit: user ? "Change" : "Add",
    specs: [
      user ? null : { name: "name", label: "Name", required: true },
      { name: "password", label: "Password", type: "password", autocomplete: "new-password", hint: user ? "Empty: it stays as it is." : "Empty: the user cannot log in with a password." },
      { name: "tags", label: "Tags", value: user ? tagsOf(user).join(",") : "", hint: `Separated by commas: ${TAGS.join(", ")}.` },
    ],
    action: async (given) => {
      const name = user?.name ?? given.name;
      const body = { tags: given.tags };
      if (given.password) body.password = given.password;
      else if (user) {
        // Read anew: another may have set a password since the dialog was opened.
        const { password_hash, hashing_algorithm } = await get(path("users", name), null, context.signal);
        Object.assign(body, { password_hash, hashing_algorithm });
      }
      else body.password_hash = "";
      await request("PUT", path("users", name), { body });
      await context.refresh();
      return user ? "User changed." : "User added.";
    },
  });
}

function setPermission(context, { vhost, user, row, vhosts, users }) {
  ask({
    title: "Set permissions",
    submit: "Set",
    specs: [
      vhost === undefined ? { name: "vhost", label: "Virtual host", options: vhosts } : null,
      user === undefined ? { name: "user", label: "User", options: users } : null,
      { name: "configure", label: "Configure", value: row?.configure ?? ".*", hint: "Regular expressions of names. Empty: nothing." },
      { name: "write", label: "Write", value: row?.write ?? ".*" },
      { name: "read", label: "Read", value: row?.read ?? ".*" },
    ],
    action: async ({ configure, write, read, ...given }) => {
      await request("PUT", path("permissions", vhost ?? given.vhost, user ?? given.user), { body: { configure, write, read } });
      await context.refresh();
      return "Permissions set.";
    },
  });
}

function setTopic(context, user, vhosts) {
  ask({
    title: "Set topic permissions",
    submit: "Set",
    specs: [
      { name: "vhost", label: "Virtual host", options: vhosts },
      { name: "exchange", label: "Topic exchange", required: true },
      { name: "write", label: "Write", value: ".*", hint: "Regular expressions of routing keys." },
      { name: "read", label: "Read", value: ".*" },
    ],
    action: async ({ vhost, ...body }) => {
      await request("PUT", path("topic-permissions", vhost, user), { body });
      await context.refresh();
      return "Topic permissions set.";
    },
  });
}

function addVhost(context) {
  ask({
    title: "Add a virtual host",
    submit: "Add",
    specs: [
      { name: "name", label: "Name", required: true },
      { name: "description", label: "Description" },
      { name: "tags", label: "Tags" },
      { name: "type", label: "Type of queues that are declared without one", options: [["", "the node's default"], "quorum", "classic"] },
    ],
    action: async ({ name, description, tags, type }) => {
      const body = { description, tags };
      if (type) body.default_queue_type = type;
      await request("PUT", path("vhosts", name), { body });
      await context.refresh();
      return "Virtual host added.";
    },
  });
}

function removal(context, title, intro, at, submit = "Delete") {
  ask({ title, intro, submit, danger: true, action: async () => {
    await request("DELETE", at);
    await context.refresh();
    return `${title}: done.`;
  } });
}

function permissionTable(context, ofUser) {
  const set = (row) => setPermission(context, { vhost: row.vhost, user: row.user, row });
  const clear = (row) => removal(context, "Clear permissions", `${row.user} can no longer use virtual host ${row.vhost}.`, path("permissions", row.vhost, row.user), "Clear");
  return new Table({
    caption: "Permissions",
    key: (row) => `${row.vhost} ${row.user}`,
    empty: "No permissions.",
    columns: [
      ofUser ? null : { title: "User", head: true, text: (row) => row.user, href: (row) => `#/${path("user", row.user)}` },
      { title: "Virtual host", head: ofUser, text: (row) => row.vhost },
      { title: "Configure", text: (row) => row.configure },
      { title: "Write", text: (row) => row.write },
      { title: "Read", text: (row) => row.read },
      { title: "Change", text: () => "Change", make: (row) => h("div", { class: "buttons" },
        button("Change", () => set(row), { "aria-label": `Change the permissions of ${row.user} in ${row.vhost}` }),
        button("Clear", () => clear(row), { class: "danger", "aria-label": `Clear the permissions of ${row.user} in ${row.vhost}` })) },
    ],
  });
}

export async function open(context) {
  const users = new PagedList(context, {
    caption: "Users",
    at: () => "users",
    key: (user) => user.name,
    columns: [
      { title: "Name", head: true, sort: "name", text: (user) => user.name, href: (user) => `#/user/${encodeURIComponent(user.name)}` },
      { title: "Tags", text: (user) => tagsOf(user).join(", ") },
      { title: "Password", text: (user) => (user.password_hash ? "yes" : "none") },
      { title: "Limits", text: (user) => (Object.keys(user.limits ?? {}).length ? value(user.limits) : "") },
    ],
  });
  const permissions = permissionTable(context, false);
  const vhosts = new Table({
    caption: "Virtual hosts",
    key: (vhost) => vhost.name,
    columns: [
      { title: "Name", head: true, text: (vhost) => vhost.name, href: (vhost) => `#/queues?${new URLSearchParams({ vhost: vhost.name })}` },
      { title: "Description", text: (vhost) => vhost.description },
      { title: "Tags", text: (vhost) => (vhost.tags ?? []).join(", ") },
      { title: "Ready", num: true, text: (vhost) => count(vhost.messages_ready) },
      { title: "Unacked", num: true, text: (vhost) => count(vhost.messages_unacknowledged) },
      { title: "Change", text: () => "Delete", make: (vhost) => button("Delete", () => removal(context, "Delete the virtual host",
        `${vhost.name} is deleted with all its exchanges, queues and messages.`, path("vhosts", vhost.name)),
      { class: "danger", "aria-label": `Delete the virtual host ${vhost.name}` }) },
    ],
  });
  let names = { vhosts: [], users: [] };
  await context.poll(async () => {
    const [rows, hosts, all] = await Promise.all([
      get("permissions", null, context.signal), get("vhosts", null, context.signal),
      get("users", { columns: "name" }, context.signal), users.load(),
    ]);
    names = { vhosts: hosts.map((one) => one.name), users: all.map((one) => one.name) };
    permissions.update(rows);
    vhosts.update(hosts);
  });
  return [
    heading("Users", button("Add a user", () => setUser(context), { class: "main" })),
    users.element,
    section("Permissions", permissions.element, h("p", null, button("Set permissions", () => setPermission(context, names)))),
    section("Virtual hosts", vhosts.element, h("p", null, button("Add a virtual host", () => addVhost(context)))),
  ];
}

export async function openOne(context) {
  const [name] = context.segments;
  const at = path("users", name);
  let user = await find(at, null, context.signal);
  if (user === null) throw new ApiError(404, `there is no user ${name}`, true);
  const vhosts = await context.vhosts();
  const summary = h("div");
  const permissions = permissionTable(context, true);
  const topics = new Table({
    caption: "Topic permissions",
    key: (row) => `${row.vhost} ${row.exchange}`,
    empty: "No topic permissions: all routing keys are allowed.",
    columns: [
      { title: "Exchange", head: true, text: (row) => row.exchange },
      { title: "Virtual host", text: (row) => row.vhost },
      { title: "Write", text: (row) => row.write },
      { title: "Read", text: (row) => row.read },
      { title: "Change", text: () => "Clear", make: (row) => button("Clear", () => removal(context, "Clear topic permissions",
        `All routing keys of ${row.exchange} are allowed again.`, path("topic-permissions", row.vhost, name, ...(row.exchange ? [row.exchange] : ["", ""])), "Clear"), { class: "danger" }) },
    ],
  });
  const remove = () => ask({
    title: "Delete the user", intro: `${name} can no longer log in, and its connections are closed.`, submit: "Delete", danger: true,
    action: async () => {
      await request("DELETE", at);
      location.hash = "#/users";
      return "User deleted.";
    },
  });
  await context.poll(async () => {
    const [found, rows, ofTopics] = await Promise.all([
      get(at, null, context.signal), get(`${at}/permissions`, null, context.signal), get(`${at}/topic-permissions`, null, context.signal),
    ]);
    user = found;
    replace(summary, facts([
      ["Tags", tagsOf(user).join(", ") || "none"],
      ["Password", user.password_hash ? "yes" : "none"],
      ["Limits", Object.keys(user.limits ?? {}).length ? value(user.limits) : null],
    ]));
    permissions.update(rows);
    topics.update(ofTopics);
  });
  return [
    heading(`User ${name}`),
    h("p", null, link("#/users", "All users")),
    h("div", { class: "buttons" }, button("Change password or tags", () => setUser(context, user)), button("Delete the user", remove, { class: "danger" })),
    section("User", summary),
    section("Permissions", permissions.element, h("p", null, button("Set permissions", () => setPermission(context, { user: name, vhosts })))),
    section("Topic permissions", topics.element, h("p", null, button("Set topic permissions", () => setTopic(context, name, vhosts)))),
  ];
}
