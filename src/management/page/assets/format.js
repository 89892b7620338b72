// Numbers, sizes and times as people read them.

const NUMBER = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
export const UNKNOWN = "–";

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export function count(value) {
  return isNumber(value) ? NUMBER.format(value) : UNKNOWN;
}

export function rate(value) {
  if (!isNumber(value)) return UNKNOWN;
  const digits = Math.abs(value) < 10 ? 1 : 0;
  return `${new Intl.NumberFormat("en", { maximumFractionDigits: digits }).format(value)}/s`;
}

export function bytes(value) {
  if (!isNumber(value)) return UNKNOWN;
  let unit = 0;
  let amount = value;
  while (amount >= 1024 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${unit === 0 || amount >= 100 ? Math.round(amount) : amount.toFixed(1)} ${UNITS[unit]}`;
}

export function duration(seconds) {
  if (!isNumber(seconds)) return UNKNOWN;
  if (seconds < 1) return "< 1 s";
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => seconds >= size);
  const [size, unit] = parts[first];
  const whole = Math.floor(seconds / size);
  const next = parts[first + 1];
  const rest = next ? Math.floor((seconds - whole * size) / next[0]) : 0;
  return rest && whole < 10 ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
}

export function date(ms) {
  if (!isNumber(ms)) return UNKNOWN;
  return new Date(ms).toISOString().replace("T", " ").slice(0, 19);
}

export function yes(flag) {
  return flag ? "yes" : "no";
}

// A value of arguments or of a policy, on one line.
export function value(any) {
  return typeof any === "string" ? any : JSON.stringify(any);
}

// The default exchange has the empty name.
export const exchangeName = (name) => (name === "" ? "(default)" : name);
