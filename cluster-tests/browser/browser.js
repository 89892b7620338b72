// A Chromium, and what is watched in each of its pages whatever a step does.

import { chromium } from "playwright-core";
import { existsSync } from "node:fs";

// What has not come within this time never comes.
const HANGS_MS = 300_000;
const PROGRAMS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
// What a browser says of requests that are meant to fail.
const EXPECTED = /Failed to load resource: the server responded with a status of 40[01345]/;

export async function launch() {
  const executablePath = process.env.CHROMIUM ?? PROGRAMS.find((path) => existsSync(path));
  if (!executablePath) throw new Error("no Chromium here: .ci/deps browser installs one");
  // As root there is no sandbox; the page is our own.
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
}

// A page of a browser that has no cookies yet. `faults` gathers what must not happen: errors of scripts, violations of the
// content policy, requests to other hosts, dialogs of the browser.
export async function newPage(browser, http, faults, options) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(HANGS_MS);
  page.on("pageerror", (error) => faults.push(`error of a script: ${error.stack ?? error}`));
  page.on("console", (message) => {
    if (message.type() === "error" && !EXPECTED.test(message.text())) faults.push(`console: ${message.text()}`);
  });
  page.on("dialog", (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(`http://${http}/`) && !request.url().startsWith("blob:")) faults.push(`request to another host: ${request.url()}`);
  });
  return page;
}

export function check(holds, what) {
  if (!holds) throw new Error(what);
}

export function equal(found, expected, what) {
  check(JSON.stringify(found) === JSON.stringify(expected), `${what}: ${JSON.stringify(found)} is not ${JSON.stringify(expected)}`);
}

// Waits until it is so.
export async function eventually(holds, what, ms = HANGS_MS) {
  const until = Date.now() + ms;
  while (Date.now() < until) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error(`not in time: ${what}`);
}

export async function logIn(page, http, user = "guest", password = "guest") {
  await page.goto(`http://${http}/`);
  await page.getByLabel("User").fill(user);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
}

// Opens a view by its address, and waits until it is there.
export async function open(page, hash) {
  await page.evaluate((to) => {
    document.querySelector("#main")?.replaceChildren();
    if (location.hash === to) window.dispatchEvent(new HashChangeEvent("hashchange"));
    else location.hash = to;
  }, hash);
  await page.waitForFunction(() => document.querySelector("main h1") && !document.querySelector("main[aria-busy]"));
}

// No name has become markup, and none has run.
export async function unharmed(page, where) {
  const found = await page.evaluate(() => ({
    broken: window.broken,
    images: document.querySelectorAll("img").length,
    scripts: document.querySelectorAll("script:not([src])").length,
  }));
  equal(found, { images: 0, scripts: 0 }, `${where}: a name has become markup`);
}

// What a screen reader needs of every view.
export async function readable(page, where) {
  const wrong = await page.evaluate(() => {
    const said = [];
    const shown = (element) => element.getClientRects().length > 0;
    if (document.querySelectorAll("h1").length !== 1) said.push("not one heading of the first level");
    for (const field of document.querySelectorAll("input, select, textarea")) {
      if (shown(field) && !field.labels?.length && !field.ariaLabel) said.push(`field without a label: ${field.outerHTML.slice(0, 90)}`);
    }
    for (const one of document.querySelectorAll("button, a")) {
      if (shown(one) && !one.closest("[aria-hidden]") && !(one.ariaLabel || one.textContent.trim())) said.push(`no name: ${one.outerHTML.slice(0, 90)}`);
    }
    for (const table of document.querySelectorAll("table")) {
      if (!table.caption?.textContent) said.push("table without a caption");
      for (const head of table.querySelectorAll("th")) if (!head.scope) said.push(`th without a scope: ${head.textContent}`);
    }
    for (const picture of document.querySelectorAll("main svg")) {
      if (!picture.closest("[aria-hidden]") && !picture.getAttribute("aria-label")) said.push("picture without words");
    }
    const levels = [...document.querySelectorAll("main h1, main h2, main h3")].map((one) => Number(one.tagName[1]));
    if (levels.some((level, at) => at > 0 && level > levels[at - 1] + 1)) said.push(`headings leave out a level: ${levels}`);
    return said;
  });
  equal(wrong, [], `${where}: a screen reader`);
}
