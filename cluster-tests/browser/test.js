// The web page in a real browser: test.js HTTP AMQP [STEP].

import { begin, HOSTILE, Api } from "./world.js";
import { check, equal, eventually, launch, logIn, newPage, open, readable, unharmed } from "./browser.js";

const [http, address, only = ""] = process.argv.slice(2);
const shots = process.env.QUORATE_SCREENSHOTS;
const of = (kind, ...names) => `#/${[kind, ...names].map(encodeURIComponent).join("/")}`;
const steps = [];
const step = (name, run) => steps.push({ name, run });
const shot = (page, name, fullPage = true) => page.screenshot({ path: `${shots}/${name}.png`, fullPage });

// Every view, and some text that it must show.
const VIEWS = [
  ["overview", "#/", "Published"],
  ["queues", "#/queues", HOSTILE],
  ["queue", of("queue", "/", HOSTILE), HOSTILE],
  ["queue-of-vhost", of("queue", HOSTILE, HOSTILE), HOSTILE],
  ["queue-orders", of("queue", "/", "orders"), "x-delivery-limit"],
  ["exchanges", "#/exchanges", HOSTILE],
  ["exchange", of("exchange", "/", HOSTILE), HOSTILE],
  ["exchange-default", of("exchange", "/", "amq.default"), "(default)"],
  ["bindings", "#/bindings", "alternate exchange"],
  ["bindings-of-vhost", `#/bindings?${new URLSearchParams({ vhost: HOSTILE })}`, HOSTILE],
  ["connections", "#/connections", HOSTILE],
  ["channels", "#/channels", "guest"],
  ["users", "#/users", HOSTILE],
  ["user", of("user", HOSTILE), HOSTILE],
  ["policies", "#/policies", HOSTILE],
  ["definitions", "#/definitions", "Import"],
  ["tasks", "#/tasks", HOSTILE],
  ["cluster", "#/cluster", "catalog"],
  ["events", "#/events", "connection opened"],
];

step("headers", async () => {
  const page = await fetch(`http://${http}/`);
  const policy = page.headers.get("content-security-policy");
  for (const part of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'"]) {
    check(policy.includes(part), `content policy without ${part}: ${policy}`);
  }
  check(!policy.includes("unsafe"), policy);
  equal(page.headers.get("x-content-type-options"), "nosniff", "sniffing");
  const again = await fetch(`http://${http}/`, { headers: { "if-none-match": page.headers.get("etag") } });
  equal(again.status, 304, "a file that the browser has");
  equal((await fetch(`http://${http}/page/none.js`)).status, 404, "no such file");
});

step("login", async ({ newPage: fresh }) => {
  const page = await fresh();
  await page.goto(`http://${http}/`);
  await shot(page, "login");
  await page.getByLabel("User").fill("guest");
  await page.getByLabel("Password").fill("wrong");
  await page.keyboard.press("Enter");
  await page.getByText("Login failed").waitFor();
  await page.getByLabel("Password").fill("guest");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  const [cookie] = await page.context().cookies();
  check(cookie.httpOnly && cookie.sameSite === "Strict", `cookie: ${JSON.stringify(cookie)}`);
  await page.reload();
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  const statuses = await page.evaluate(async () => {
    const status = async (method, at, headers) => {
      const response = await fetch(at, { method, headers });
      return [response.status, response.headers.get("www-authenticate")];
    };
    return {
      read: await status("GET", "api/whoami"),
      forged: await status("PUT", "api/vhosts/forged"),
      wrong: await status("DELETE", "api/vhosts/forged", { "x-quorate-csrf": "wrong" }),
      logout: await status("POST", "logout"),
    };
  });
  equal(statuses, { read: [200, null], forged: [403, null], wrong: [403, null], logout: [403, null] }, "requests without the token");
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByText("Logged out.").waitFor();
  equal(await page.evaluate(async () => (await fetch("session")).status), 401, "after the logout");
  const other = await fetch(`http://${http}/login`, { method: "POST", headers: { origin: "http://elsewhere" }, body: new URLSearchParams({ user: "guest", password: "guest" }) });
  equal(other.status, 403, "a form of another site");
});

step("a session ends with its user's password", async ({ newPage: fresh, api }) => {
  await api.call("PUT", ["users", "clerk"], { password: "one", tags: "monitoring" });
  const page = await fresh();
  await logIn(page, http, "clerk", "one");
  await api.call("PUT", ["users", "clerk"], { password: "two", tags: "monitoring" });
  await page.getByText("The session has ended").waitFor();
  await api.call("PUT", ["users", "clerk"], { password: "two", tags: "" });
  await page.getByLabel("User").fill("clerk");
  await page.getByLabel("Password").fill("two");
  await page.keyboard.press("Enter");
  await page.getByText("Not management user").waitFor();
  await api.call("DELETE", ["users", "clerk"]);
});

step("a user sees what it may", async ({ newPage: fresh, api }) => {
  await api.call("PUT", ["users", "reader"], { password: "r", tags: "management" });
  await api.call("PUT", ["permissions", "/", "reader"], { configure: "", write: "", read: ".*" });
  const page = await fresh();
  await logIn(page, http, "reader", "r");
  for (const hidden of ["Users", "Cluster", "Events", "Definitions"]) equal(await page.getByRole("link", { name: hidden, exact: true }).count(), 0, hidden);
  for (const [word, title] of [["queues", "Queues"], ["exchanges", "Exchanges"], ["bindings", "Bindings"], ["policies", "Policies"], ["connections", "Connections"]]) {
    await open(page, `#/${word}`);
    equal(await page.locator("h1").textContent(), title, word);
    equal(await page.locator("#problem").textContent(), "", `${word}: a problem`);
  }
  await open(page, "#/queue/%2F/orders");
  await page.getByRole("button", { name: "Purge" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Purge" }).click();
  // RabbitMQ too lets who may read a queue purge it.
  await page.getByText("Queue purged.").waitFor({ state: "attached" });
  await page.getByRole("button", { name: "Delete the queue" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("dialog").getByRole("alert").filter({ hasText: /refused/i }).waitFor();
  await api.call("DELETE", ["users", "reader"]);
});

step("views", async ({ page }) => {
  for (const [name, hash, text] of VIEWS) {
    await open(page, hash);
    // A value of several lines, or of a title, is not text of its own.
    await eventually(async () => (await page.locator("main").textContent()).includes(text), `${name} shows ${text}`);
    await page.waitForTimeout(300);
    await unharmed(page, name);
    await readable(page, name);
    equal(await page.locator("#problem").textContent(), "", `${name}: a problem`);
    await shot(page, `desk-${name}`);
  }
  const connections = await new Api(http).call("GET", ["connections"]);
  const named = connections.find((one) => one.client_properties.connection_name === HOSTILE);
  await open(page, of("connection", named.name));
  await page.getByText(HOSTILE).first().waitFor();
  await unharmed(page, "connection");
  await shot(page, "desk-connection");
});

// A dialog's form: fills its fields by their labels, and submits.
async function fill(page, submit, given) {
  const dialog = page.getByRole("dialog");
  for (const [label, value] of Object.entries(given)) {
    const field = dialog.getByLabel(label, { exact: true });
    if (await field.evaluate((one) => one.tagName === "SELECT")) await field.selectOption(value);
    else await field.fill(value);
  }
  await dialog.getByRole("button", { name: submit, exact: true }).click();
}

step("changes", async ({ page, api }) => {
  const name = `made ${HOSTILE}`;
  await open(page, "#/queues");
  await page.getByRole("button", { name: "Add a queue" }).click();
  await fill(page, "Add", { "Virtual host": "/", Name: name, Arguments: "{\"x-max-length\": }" });
  await page.getByRole("dialog").getByText(/^Arguments: /).waitFor();
  await fill(page, "Add", { Arguments: "{\"x-max-length\": 50}" });
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.getByLabel("Filter by name").fill("made ");
  await page.getByRole("link", { name, exact: true }).click();
  await page.getByRole("heading", { level: 1, name: `Queue ${name}` }).waitFor();

  for (const payload of [HOSTILE, "second"]) {
    await page.getByRole("button", { name: "Publish" }).click();
    await fill(page, "Publish", { Headers: JSON.stringify({ [HOSTILE]: HOSTILE }), Payload: payload });
    await page.getByRole("dialog").waitFor({ state: "detached" });
  }
  await eventually(async () => (await page.locator(".facts").first().textContent()).includes("Ready2"), "two messages are ready");
  await page.getByRole("button", { name: "Get messages" }).click();
  await fill(page, "Get", { "How many": "5" });
  await page.getByRole("heading", { name: "2 messages got" }).waitFor();
  check((await page.getByRole("dialog").textContent()).includes(HOSTILE), "the payload and the headers");
  await unharmed(page, "messages that were got");
  await shot(page, "desk-got", false);
  await page.getByRole("button", { name: "Close" }).click();

  const settings = page.getByRole("table", { name: "Effective settings" });
  await settings.getByText("max-length").first().waitFor();
  if (await page.getByRole("button", { name: "Browse" }).count()) {
    await page.getByRole("button", { name: "Browse" }).click();
    await page.getByRole("table", { name: "Messages", exact: true }).getByText("second").waitFor();
    await shot(page, "desk-browse");
  }
  await page.getByRole("button", { name: "Add a binding" }).click();
  await fill(page, "Bind", { "From exchange": HOSTILE, "Routing key": HOSTILE });
  await page.getByRole("table", { name: "Bindings to this queue" }).getByRole("link", { name: HOSTILE }).waitFor();
  await page.getByRole("button", { name: /^Remove the binding/ }).click();
  await fill(page, "Remove", {});
  await page.getByRole("table", { name: "Bindings to this queue" }).getByRole("link", { name: HOSTILE }).waitFor({ state: "detached" });

  await page.getByRole("button", { name: "Purge" }).click();
  await fill(page, "Purge", {});
  await eventually(async () => (await api.call("GET", ["queues", "/", name])).messages === 0, "the queue is purged");
  await page.getByRole("button", { name: "Delete the queue" }).click();
  await fill(page, "Delete", {});
  await page.getByRole("heading", { level: 1, name: "Queues" }).waitFor();
  const left = await api.call("GET", ["queues", "/"]);
  check(!left.some((queue) => queue.name === name), "the queue is deleted");
});

// Dead letters go back to the queue in which they died; a slow task is paused, resumed and cancelled.
step("put back", async ({ page, api }) => {
  const dead = "orders.dead";
  await eventually(async () => (await api.call("GET", ["queues", "/", dead])).messages > 0, "an order is dead");
  await open(page, of("queue", "/", dead));
  await page.getByRole("button", { name: "Redrive" }).click();
  await fill(page, "Dry run", { "Died of": "rejected" });
  await page.getByRole("dialog").getByText("Nothing was changed.").waitFor();
  check(/ [1-9]\d* messages match, /.test(await page.getByRole("dialog").textContent()), "a dry run counts what matches");
  await shot(page, "desk-redrive", false);
  await fill(page, "Begin", { "Messages a second, at most": "1000" });
  const tasks = page.getByRole("table", { name: "Tasks" });
  const redriven = tasks.getByRole("row").filter({ hasText: dead }).filter({ hasText: "done" });
  await redriven.last().waitFor();
  check(/moved [1-9]/.test(await redriven.last().textContent()), "dead letters are put back");

  await api.call("PUT", ["queues", "/", "slow"], { durable: true, arguments: { "x-queue-type": "quorum" } });
  for (let message = 0; message < 60; message += 1) {
    await api.call("POST", ["exchanges", "/", "amq.default", "publish"], { routing_key: "slow", properties: {}, payload: "s", payload_encoding: "string" });
  }
  const { id } = await api.call("POST", ["quorate", "tasks"], { kind: "move", vhost: "/", queue: "slow", to: { queue: "lost.and.found" }, rate: 1 });
  const slow = tasks.getByRole("row").filter({ hasText: "slow" });
  for (const [verb, state] of [["Pause", "paused"], ["Resume", "running"], ["Cancel", "cancelled"]]) {
    await page.getByRole("button", { name: `${verb} task ${id}` }).click();
    if (verb === "Cancel") await fill(page, "Cancel the task", {});
    await slow.getByText(state).waitFor();
  }
  check((await api.call("GET", ["queues", "/", "slow"])).messages > 0, "a cancelled task leaves the rest where it is");
  await unharmed(page, "tasks");
  await api.call("DELETE", ["queues", "/", "slow"]);
});

step("users, policies and definitions", async ({ page, api }) => {
  await open(page, "#/users");
  await page.getByRole("button", { name: "Add a user" }).click();
  await fill(page, "Add", { Name: "made", Password: "secret", Tags: "monitoring" });
  await page.getByRole("link", { name: "made", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: "User made" }).waitFor();
  await page.getByRole("button", { name: "Set permissions" }).click();
  await fill(page, "Set", { "Virtual host": "/", Configure: "^made" });
  await page.getByRole("cell", { name: "^made" }).waitFor();
  await page.getByRole("button", { name: "Change password or tags" }).click();
  await fill(page, "Change", { Tags: "management,policymaker" });
  await page.getByRole("dialog").waitFor({ state: "detached" });
  equal((await new Api(http, "made", "secret").call("GET", ["whoami"])).tags, ["management", "policymaker"], "the password stays");
  await page.getByRole("button", { name: "Delete the user" }).click();
  await fill(page, "Delete", {});
  await page.getByRole("heading", { level: 1, name: "Users" }).waitFor();

  await open(page, "#/policies");
  await page.getByRole("button", { name: "Add a policy" }).click();
  await fill(page, "Set", { "Virtual host": "/", Name: "made", "Pattern of names": "^mails$", "Applies to": "queues", Definition: "{\"max-length\": \"x\"}" });
  await page.getByRole("dialog").getByRole("alert").filter({ hasText: "maximum length" }).waitFor();
  await fill(page, "Set", { Definition: "{\"max-length\": 100000}" });
  await page.getByRole("button", { name: "Delete made" }).waitFor();
  equal((await api.call("GET", ["policies", "/", "made"])).definition, { "max-length": 100000 }, "the policy");
  await page.getByRole("button", { name: "Change made" }).click();
  await page.getByRole("dialog").waitFor();
  if (await page.getByRole("dialog").getByRole("button", { name: "Dry run" }).count()) {
    await fill(page, "Dry run", { Definition: "{\"max-length\": 1}" });
    await page.getByRole("dialog").getByText("Nothing was changed").waitFor();
  }
  await shot(page, "desk-policy", false);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Delete made" }).click();
  await fill(page, "Delete", {});
  await page.getByRole("button", { name: "Delete made" }).waitFor({ state: "detached" });

  await open(page, "#/definitions");
  const downloading = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export" }).click();
  const file = await (await downloading).path();
  await page.getByLabel("File").setInputFiles(file);
  await page.getByRole("button", { name: "Import" }).click();
  await fill(page, "Import", {});
  await page.getByText("is imported").waitFor();
});

step("maintenance", async ({ page }) => {
  await open(page, "#/cluster");
  const drains = page.getByRole("button", { name: /^Drain / });
  if (await drains.count() < 2) return;
  const name = (await drains.last().getAttribute("aria-label")).replace("Drain ", "");
  await drains.last().click();
  await fill(page, "Drain", {});
  await page.getByRole("button", { name: `Revive ${name}` }).waitFor();
  await shot(page, "desk-drained");
  await page.getByRole("button", { name: `Revive ${name}` }).click();
  await fill(page, "Revive", {});
  await page.getByRole("button", { name: `Drain ${name}` }).waitFor();
  await open(page, "#/events");
  await page.getByRole("log").getByText("the node is drained").first().waitFor();
  check(await page.getByRole("log").getByText("audit").count() > 0, "changes are among the events");
});

// Nothing but the keys of a keyboard, from the login to a message that was published.
step("keyboard", async ({ newPage: fresh, api }) => {
  const page = await fresh();
  const press = (...keys) => keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
  const reach = async (name) => {
    for (let tabs = 0; tabs < 120; tabs += 1) {
      const found = await page.evaluate(() => {
        const one = document.activeElement;
        const outline = getComputedStyle(one).outlineStyle !== "none";
        return { name: one.ariaLabel || one.labels?.[0]?.textContent || one.textContent.trim(), outline };
      });
      if (found.name === name) {
        check(found.outline, `the focus on ${name} is not seen`);
        return;
      }
      await press("Tab");
    }
    throw new Error(`${name} is not reached by Tab`);
  };
  await page.goto(`http://${http}/`);
  await page.getByLabel("User").waitFor();
  await page.keyboard.type("guest");
  await press("Tab");
  await page.keyboard.type("guest");
  await press("Enter");
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  // The first stop of a loaded page.
  await page.reload();
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  await page.evaluate(() => document.activeElement.blur());
  await press("Tab");
  await reach("Skip to content");
  await press("Enter");
  equal(await page.evaluate(() => document.activeElement.id), "main", "the skip link");
  await press("Shift+Tab");
  await page.evaluate(() => document.getElementById("skip").focus());
  await reach("Queues");
  await press("Enter");
  await page.getByRole("heading", { level: 1, name: "Queues" }).waitFor();
  equal(await page.evaluate(() => document.activeElement.tagName), "H1", "the focus is in the new view");
  await reach("Add a queue");
  await press("Enter");
  await reach("Virtual host");
  await page.keyboard.type("/");
  await reach("Name");
  await page.keyboard.type("by-keys");
  await press("Enter");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  equal(await page.evaluate(() => document.activeElement.textContent), "Add a queue", "the focus is back");
  await reach("Filter by name");
  await page.keyboard.type("by-keys");
  await eventually(async () => (await page.getByRole("table", { name: "Queues" }).getByRole("row").count()) === 2, "one queue is left");
  await reach("Ready");
  await press("Enter");
  await page.locator("th[aria-sort=ascending]", { hasText: "Ready" }).waitFor();
  await reach("by-keys");
  // A poll does not take the focus away.
  await page.waitForTimeout(6_000);
  await reach("by-keys");
  await press("Enter");
  await page.getByRole("heading", { level: 1, name: "Queue by-keys" }).waitFor();
  await reach("Publish");
  await press("Enter");
  await reach("Payload");
  await page.keyboard.type("typed");
  await reach("The payload is given as");
  await press("Enter");
  await reach("Publish");
  await press("Enter");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await eventually(async () => (await api.call("GET", ["queues", "/", "by-keys"])).messages === 1, "the message is there");
  await api.call("DELETE", ["queues", "/", "by-keys"]);
});

step("a phone", async ({ newPage: fresh }) => {
  const page = await fresh({ viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true });
  await logIn(page, http);
  for (const [name, hash] of VIEWS) {
    await open(page, hash);
    await page.waitForTimeout(500);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    await shot(page, `phone-${name}`);
    check(width <= 360, `${name} is ${width} pixels wide`);
  }
  await page.getByRole("button", { name: "Menu" }).click();
  await shot(page, "phone-menu", false);
  await page.getByRole("link", { name: "Queues", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: "Queues" }).waitFor();
  await page.getByRole("button", { name: "Add a queue" }).click();
  await shot(page, "phone-dialog", false);
});

step("dark", async ({ newPage: fresh }) => {
  const page = await fresh({ colorScheme: "dark" });
  await logIn(page, http);
  const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const [red] = ground.match(/\d+/g).map(Number);
  check(red < 64, `the ground is ${ground}`);
  for (const [name, hash] of VIEWS) {
    if (!["overview", "queues", "queue-orders", "bindings", "cluster", "events"].includes(name)) continue;
    await open(page, hash);
    await page.waitForTimeout(500);
    await shot(page, `dark-${name}`);
  }
});

step("a hidden page rests", async ({ page }) => {
  await open(page, "#/queues");
  let asked = 0;
  page.on("request", () => (asked += 1));
  const turn = (hidden) => page.evaluate((to) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => to });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await eventually(async () => asked > 0, "a page that is seen polls");
  await turn(true);
  await page.waitForTimeout(500);
  asked = 0;
  await page.waitForTimeout(7_000);
  equal(asked, 0, "requests of a hidden page");
  await turn(false);
  await eventually(async () => asked > 0, "a page that is seen again polls");
});

// The overview after some minutes of traffic, for README.
step("a picture for README", async ({ page }) => {
  await page.setViewportSize({ width: 1180, height: 860 });
  await open(page, "#/");
  await page.waitForTimeout(Number(process.env.QUORATE_PICTURE_MS ?? 12_000));
  await shot(page, "overview", false);
});

// Lists are sorted, filtered and drawn a page at a time, and the picture of a topology is bounded.
step("ten thousand queues", async ({ page, api }) => {
  const name = (number) => `many.${String(number).padStart(5, "0")}`;
  const count = 10_000;
  const queues = Array.from({ length: count }, (_, number) => (
    { name: name(number), durable: true, auto_delete: false, arguments: { "x-queue-type": "quorum", "x-dead-letter-exchange": "graves" } }));
  await api.call("PUT", ["vhosts", "many"], {});
  await api.call("PUT", ["permissions", "many", "guest"], { configure: ".*", write: ".*", read: ".*" });
  await api.call("POST", ["definitions", "many"], { queues });
  const of = new URLSearchParams({ vhost: "many" });
  const times = {};
  const rows = page.locator("main tbody tr");
  const time = async (what, act, first) => {
    const begun = Date.now();
    await act();
    await eventually(async () => (await rows.first().textContent()).includes(first), `${what} begins with ${first}`);
    times[what] = Date.now() - begun;
  };
  await time("open", () => open(page, `#/queues?${of}`), name(0));
  equal(await rows.count(), 100, "rows of a page");
  check((await page.locator("main .pager").textContent()).includes("10,000"), "the pager tells how many there are");
  await time("next page", () => page.getByRole("button", { name: "Next page" }).click(), name(100));
  // Its name has an arrow when the list is sorted by it.
  const byName = page.locator("main th[data-sort=name] button");
  await time("sort", () => byName.click(), name(0));
  await time("sort in reverse", () => byName.click(), name(count - 1));
  await time("filter", () => page.getByLabel("Filter by name").fill("many.0777"), name(7_779));
  equal(await rows.count(), 10, "rows that the filter leaves");
  await unharmed(page, "ten thousand queues");
  await shot(page, "desk-queues-many");
  await time("topology", () => open(page, `#/bindings?${of}`), "graves");
  check((await page.locator("main svg a.box").count()) <= 60, "boxes of the picture");
  console.log(`        ms with ${count} queues: ${JSON.stringify(times)}`);
  await api.call("DELETE", ["vhosts", "many"]);
});

async function main() {
  const world = await begin(http, address);
  const browser = await launch();
  const faults = [];
  const fresh = (options) => newPage(browser, http, faults, options);
  const page = await fresh();
  await logIn(page, http);
  const failed = [];
  const ran = steps.filter((one) => one.name.includes(only));
  for (const { name, run } of ran) {
    const begun = Date.now();
    let current = page;
    try {
      await run({ page, api: world.api, newPage: async (options) => (current = await fresh(options)) });
      equal(faults.splice(0), [], "faults");
      console.log(`ok      ${name} (${Date.now() - begun} ms)`);
    } catch (error) {
      failed.push(name);
      await shot(current, `failed-${name.replace(/\W+/g, "-")}`).catch(() => {});
      console.log(`failed  ${name}: ${error.stack}\n        ${faults.splice(0).join("\n        ")}`);
    }
    if (current !== page) await current.context().close();
  }
  await browser.close();
  await world.stop();
  console.log(`${ran.length} steps, ${failed.length} failed; screenshots in ${shots}`);
  process.exit(failed.length ? 1 : 0);
}

await main();
