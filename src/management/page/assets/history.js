// What the page has polled lately, for charts and for rates that the server does not know.

const POINTS_MAX = 180;
const SERIES_MAX = 600;
const GAP_MS = 60_000;
const kept = new Map();

// Adds a value to the series of that name, and returns its points.
export function note(name, value, now = Date.now()) {
  let points = kept.get(name) ?? [];
  const last = points.at(-1);
  // After a long gap the former values say nothing about now.
  if (last && now - last.t > GAP_MS) points = [];
  if (typeof value === "number") points.push({ t: now, v: value });
  if (points.length > POINTS_MAX) points.shift();
  // The series that was added to longest ago is the first one.
  kept.delete(name);
  kept.set(name, points);
  if (kept.size > SERIES_MAX) kept.delete(kept.keys().next().value);
  return points;
}

// By how much a value has grown a second over the last polls; undefined with too few of them.
export function growth(points, overMs = 30_000) {
  const last = points.at(-1);
  const first = points.find((point) => last.t - point.t <= overMs);
  if (!last || !first || last.t - first.t < 1_000) return undefined;
  return ((last.v - first.v) * 1_000) / (last.t - first.t);
}

// The rate of one kind of message_stats: the server's, else that of its counter, if that is there.
export function rateOf(stats, kind, name) {
  const known = stats?.[`${kind}_details`]?.rate;
  if (typeof known === "number") return known;
  if (typeof stats?.[kind] !== "number") return undefined;
  const grown = growth(note(`${name} ${kind}`, stats[kind]));
  return grown === undefined ? undefined : Math.max(0, grown);
}

// False where nothing has passed yet, or the server takes no samples.
export const knowsRates = (stats) => Object.keys(stats ?? {}).length > 0;

// Seconds until a queue is empty at the present pace; undefined if it does not get shorter.
export function timeToDrain(queue, name) {
  const messages = queue.messages;
  if (messages === 0) return 0;
  const shrinks = -(growth(note(`${name} messages`, messages)) ?? 0);
  const stats = queue.message_stats;
  let pace = shrinks;
  if (typeof stats?.publish_details?.rate === "number" || typeof stats?.ack_details?.rate === "number") {
    const of = (kind) => stats[`${kind}_details`]?.rate ?? 0;
    pace = of("ack") + of("deliver_no_ack") + of("get_no_ack") - of("publish");
  }
  return pace > 0.01 ? messages / pace : undefined;
}
