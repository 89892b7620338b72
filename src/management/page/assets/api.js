// Requests to this host's API, with the session's cookie and, for changes, its token.

let token = "";
const silentNodes = new Set();

export class ApiError extends Error {
  constructor(status, text, hasSession) {
    super(text);
    this.status = status;
    this.hasSession = hasSession;
  }
}

// A path below /api, of names that may contain anything.
export function path(...segments) {
  return segments.map((segment) => {
    // Browsers resolve these, whether they are encoded or not.
    if (segment === "." || segment === "..") {
      throw new ApiError(0, `a browser cannot address the name "${segment}": use quorate ctl`, true);
    }
    return encodeURIComponent(segment);
  }).join("/");
}

function query(parameters) {
  const given = Object.entries(parameters ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

async function answerOf(response) {
  const text = await response.text();
  let body = null;
  try {
    body = text ? JSON.parse(text) : null;
  } catch {
    body = text;
  }
  if (response.ok) return body;
  const reason = (body && (body.reason || body.error)) || text || `HTTP status ${response.status}`;
  const lacksSession = response.status === 401 && body?.error === "not_authorized";
  throw new ApiError(response.status, String(reason), !lacksSession);
}

async function send(url, options) {
  let response;
  try {
    response = await fetch(url, { ...options, credentials: "same-origin", cache: "no-store", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "the node does not answer", true);
  }
  const silent = response.headers.get("x-quorate-silent-nodes");
  for (const node of silent ? silent.split(", ") : []) silentNodes.add(node);
  return response;
}

export async function request(method, at, { parameters, body, reason, signal } = {}) {
  const headers = { "x-quorate-csrf": token, accept: "application/json" };
  // Headers are of ASCII.
  if (reason) headers["x-reason"] = reason.replace(/[^ -~]/g, "?");
  if (body !== undefined) headers["content-type"] = "application/json";
  const response = await send(`api/${at}${query(parameters)}`, {
    method,
    headers,
    signal,
    body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
  });
  return answerOf(response).catch((error) => {
    if (error.hasSession === false) document.dispatchEvent(new CustomEvent("session-ended", { detail: error.message }));
    throw error;
  });
}

export const get = (at, parameters, signal) => request("GET", at, { parameters, signal });

// As `get`, with null for what is not there: an object, or a part that this server does not have.
export async function find(at, parameters, signal) {
  try {
    return await get(at, parameters, signal);
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

// As `find`, with null for what this user may not see.
export async function see(at, parameters, signal) {
  try {
    return await find(at, parameters, signal);
  } catch (error) {
    if (error.status === 401 && error.hasSession) return null;
    throw error;
  }
}

// True if this server has a path that is only posted to: then it says so of a read.
export async function isPosted(at, signal) {
  try {
    await get(at, null, signal);
    return true;
  } catch (error) {
    return error.status === 405;
  }
}

// The nodes that have not answered since this was last asked.
export function takeSilentNodes() {
  const nodes = [...silentNodes].sort();
  silentNodes.clear();
  return nodes;
}

async function session(url, options) {
  const found = await answerOf(await send(url, options));
  token = found?.csrf ?? "";
  return found;
}

export const currentSession = () => session("session", { method: "GET", headers: { "x-quorate-csrf": "" } });

export const logIn = (user, password) =>
  session("login", { method: "POST", body: new URLSearchParams({ user, password }) });

export async function logOut() {
  await answerOf(await send("logout", { method: "POST", headers: { "x-quorate-csrf": token } }));
  token = "";
}
