// The frame of the page: who is logged in, the menu, and which view the address asks for.

import { h, replace, link, announce, problem } from "./dom.js";
import { currentSession, find, get, logIn, logOut, takeSilentNodes } from "./api.js";
import * as overview from "./view_overview.js";
import * as queues from "./view_queues.js";
import * as queue from "./view_queue.js";
import * as tasks from "./view_tasks.js";
import * as exchanges from "./view_exchanges.js";
import * as topology from "./view_topology.js";
import * as connections from "./view_connections.js";
import * as users from "./view_users.js";
import * as policies from "./view_policies.js";
import * as definitions from "./view_definitions.js";
import * as cluster from "./view_cluster.js";
import * as events from "./view_events.js";

const POLL_MS = 5_000;
const anybody = () => true;
const monitor = (may) => may.monitor;
const administrator = (may) => may.administer;

// What the address leads to: the word after #/, a function that builds the view, who sees it in the menu, and its name.
const VIEWS = [
  ["", overview.open, anybody, "Overview"],
  ["queues", queues.open, anybody, "Queues"],
  ["queue", queue.open],
  ["exchanges", exchanges.open, anybody, "Exchanges"],
  ["exchange", exchanges.openOne],
  ["bindings", topology.open, anybody, "Bindings"],
  ["connections", connections.open, anybody, "Connections"],
  ["connection", connections.openOne],
  ["channels", connections.openChannels, anybody, "Channels"],
  ["users", users.open, administrator, "Users"],
  ["user", users.openOne],
  ["policies", policies.open, anybody, "Policies"],
  ["definitions", definitions.open, administrator, "Definitions"],
  ["tasks", tasks.open, (may) => may.tasks, "Tasks"],
  ["cluster", cluster.open, monitor, "Cluster"],
  ["events", events.open, monitor, "Events"],
];

// The list in the menu that a view of one object belongs to.
const LIST_OF = { queue: "queues", exchange: "exchanges", connection: "connections", user: "users" };

const main = document.getElementById("main");
const header = document.getElementById("header");
const nav = document.getElementById("nav");
const menu = document.getElementById("menu");
let session = null;
let may = {};
let view = null;

// What the address says: the words after #/, and parameters.
function address() {
  const [at, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parameters = Object.fromEntries(new URLSearchParams(query ?? ""));
  try {
    return { segments: at.split("/").map(decodeURIComponent), parameters };
  } catch {
    return { segments: ["unknown"], parameters };
  }
}

// What a view is given: the address, what its user may do, and polls that end with it and rest while it is hidden.
class Context {
  constructor(word, segments, parameters) {
    Object.assign(this, { word, segments, parameters, may, user: session.user });
    this.abort = new AbortController();
    this.signal = this.abort.signal;
    this.polls = [];
  }

  // Calls `work` now and every few seconds.
  async poll(work, ms = POLL_MS) {
    const poll = { work, ms, timer: undefined, busy: false };
    this.polls.push(poll);
    await this.run(poll);
  }

  async run(poll) {
    clearTimeout(poll.timer);
    if (poll.busy || this.signal.aborted) return;
    poll.busy = true;
    try {
      await poll.work();
      this.told();
    } catch (error) {
      if (!this.signal.aborted && error.hasSession !== false) problem(error.message);
    }
    poll.busy = false;
    if (!this.signal.aborted && !document.hidden) poll.timer = setTimeout(() => this.run(poll), poll.ms);
  }

  told() {
    if (this.signal.aborted) return;
    problem("");
    const silent = takeSilentNodes();
    if (silent.length) problem(`Node ${silent.join(", ")} does not answer: what is shown may lack its part.`);
  }

  // After a change, and when the page is seen again.
  refresh() {
    return Promise.all(this.polls.map((poll) => this.run(poll)));
  }

  rest() {
    for (const poll of this.polls) clearTimeout(poll.timer);
  }

  // Puts the state of a list into the address, without opening the view anew.
  remember(state) {
    const given = Object.entries(state).filter(([, value]) => value !== "" && value !== null);
    history.replaceState(null, "", `#/${this.word}?${new URLSearchParams(given)}`);
  }

  async vhosts() {
    const found = await get("vhosts", { columns: "name", disable_stats: "true" }, this.signal);
    return found.map((vhost) => vhost.name);
  }

  end() {
    this.abort.abort();
    this.rest();
  }
}

async function open() {
  view?.end();
  problem("");
  closeMenu();
  // What a dialog would change is no longer seen.
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  const { segments, parameters } = address();
  const found = VIEWS.find(([word]) => word === segments[0]);
  const context = new Context(segments[0], segments.slice(1), parameters);
  view = context;
  for (const item of nav.querySelectorAll("a")) {
    const isHere = item.hash.replace(/^#\//, "") === (LIST_OF[segments[0]] ?? segments[0]);
    if (isHere) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
  main.setAttribute("aria-busy", "true");
  try {
    if (!found) throw new Error("There is no such view.");
    const content = await found[1](context);
    if (context.signal.aborted) return;
    replace(main, content);
  } catch (error) {
    if (context.signal.aborted || error.hasSession === false) return;
    replace(main, h("h1", { tabindex: "-1" }, "Not to be shown"), h("p", { class: "error" }, error.message));
  }
  main.removeAttribute("aria-busy");
  const title = main.querySelector("h1");
  document.title = `${title?.textContent ?? "Quorate"} – Quorate`;
  title?.focus();
  // Polls began before the view was shown: what is drawn to its size is drawn again.
  document.dispatchEvent(new CustomEvent("view-shown"));
}

function allowed(tags) {
  const has = (...wanted) => tags.some((tag) => wanted.includes(tag));
  return {
    administer: has("administrator"),
    monitor: has("administrator", "monitoring"),
    setPolicies: has("administrator", "policymaker"),
  };
}

async function enter(found) {
  session = found;
  may = allowed(found.tags);
  may.tasks = (await find("quorate/tasks").catch(() => null)) !== null;
  header.hidden = false;
  document.getElementById("user").textContent = found.user;
  get("cluster-name").then((name) => {
    document.getElementById("cluster").textContent = name.name;
  }).catch(() => {});
  replace(nav, h("ul", null, VIEWS.filter(([, , who]) => who?.(may)).map(([word, , , name]) => h("li", null, link(`#/${word}`, name)))));
  await open();
}

function loginForm(why) {
  view?.end();
  view = null;
  session = null;
  header.hidden = true;
  problem("");
  document.title = "Log in – Quorate";
  const error = h("p", { class: "error", role: "alert" }, why ?? "");
  const user = h("input", { id: "login-user", name: "user", autocomplete: "username", required: true, spellcheck: "false", autocapitalize: "none" });
  const password = h("input", { id: "login-password", name: "password", type: "password", autocomplete: "current-password", required: true });
  const submit = h("button", { type: "submit", class: "main" }, "Log in");
  const form = h("form", { class: "login", on: { submit: async (event) => {
    event.preventDefault();
    submit.disabled = true;
    error.textContent = "";
    try {
      await enter(await logIn(user.value, password.value));
    } catch (thrown) {
      error.textContent = thrown.message;
      submit.disabled = false;
      password.select();
      password.focus();
    }
  } } },
  h("h1", { tabindex: "-1" }, "Quorate"),
  h("p", { class: "field" }, h("label", { for: "login-user" }, "User"), user),
  h("p", { class: "field" }, h("label", { for: "login-password" }, "Password"), password),
  error, h("p", { class: "buttons" }, submit));
  replace(main, form);
  main.removeAttribute("aria-busy");
  user.focus();
}

function closeMenu() {
  menu.setAttribute("aria-expanded", "false");
  header.classList.remove("open");
}

menu.addEventListener("click", () => {
  const isOpen = header.classList.toggle("open");
  menu.setAttribute("aria-expanded", String(isOpen));
});

document.getElementById("skip").addEventListener("click", (event) => {
  // The address says which view is shown, so it must not change.
  event.preventDefault();
  main.focus();
});

document.getElementById("logout").addEventListener("click", async () => {
  await logOut().catch((error) => announce(error.message));
  loginForm("Logged out.");
});

document.addEventListener("session-ended", () => {
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  if (session) loginForm("The session has ended. Log in again.");
});

document.addEventListener("visibilitychange", () => {
  if (document.hidden) view?.rest();
  else view?.refresh();
});

window.addEventListener("hashchange", () => {
  if (session) open();
});

currentSession().then(enter).catch((error) => loginForm(error.status === 401 ? "" : error.message));
