// Numbers, times and foreign text as people read them. No function here touches the page.

const digits = (n, places) => n.toLocaleString("en", { maximumFractionDigits: places, minimumFractionDigits: 0 });

/** A number with about three significant digits: 0.52, 8.4, 131, 12,400. */
export function number(n) {
  if (n === null || n === undefined || !Number.isFinite(n)) return "–";
  const size = Math.abs(n);
  if (size > 0 && size < 0.1) return String(Number(n.toPrecision(2)));
  return digits(n, size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : 2);
}

export const rate = (n) => n === null || n === undefined ? "–" : `${number(n)}/s`;

/** Milliseconds: 0.84 ms, 12.5 ms, 340 ms, 1.2 s. */
export function ms(n) {
  if (n === null || n === undefined || !Number.isFinite(n)) return "–";
  return n >= 10000 ? `${number(n / 1000)} s` : n >= 1000 ? `${digits(n / 1000, 2)} s` : `${number(n)} ms`;
}

/** A Go duration for the provider's annotations: 250ms, 1500us. */
export const duration = (n) => n >= 1 && Number.isInteger(n) ? `${n}ms` : `${Math.round(n * 1000)}us`;

/** A share in percent. It shows 100 % only if nothing is missing. */
export function percent(n) {
  if (n === null || n === undefined || !Number.isFinite(n)) return "–";
  if (n > 99.99 && n < 100) return "> 99.99 %";
  if (n > 0 && n < 0.1) return "< 0.1 %";
  return `${digits(Math.floor(n * 100) / 100, n >= 99 ? 2 : 1)} %`;
}

export function cores(millicores) {
  if (!Number.isFinite(millicores)) return "–";
  const n = digits(millicores / 1000, 2);
  return `${n} ${n === "1" ? "core" : "cores"}`;
}

export function bytes(n) {
  if (!Number.isFinite(n)) return "–";
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (n < 1024) return `${number(n)} ${unit}`;
    n /= 1024;
  }
  return `${number(n)} TiB`;
}

/** A config as the project writes it: ⟨8, 1000m⟩, ⟨8, 1000m, 20 %⟩. A program's instance may have no share of its own. */
export function config(i) {
  if (!i.cpu_millicores && !i.gpu_pct) return "shared CPU";
  return `⟨${i.batch ?? 1}, ${i.cpu_millicores}m${i.gpu_pct ? `, ${i.gpu_pct} %` : ""}⟩`;
}

export const count = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

/** A time of day, from unix seconds or an RFC 3339 text. */
export function clock(at) {
  const date = new Date(typeof at === "number" ? at * 1000 : at);
  return Number.isNaN(+date) ? "–" : date.toLocaleTimeString("en-GB");
}

export function dateTime(at) {
  const date = new Date(typeof at === "number" ? at * 1000 : at);
  return Number.isNaN(+date) ? "–" : `${date.toLocaleDateString("en-CA")} ${date.toLocaleTimeString("en-GB")}`;
}

/** How long ago, coarse: 40 s, 12 min, 3 h, 2 d. */
export function ago(seconds) {
  if (!(seconds >= 0)) return "–";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/**
 * Foreign text with its control characters made visible, so that a name or a log line cannot hide or
 * reorder what is around it. Line ends and tabs stay.
 */
export function plain(text) {
  return String(text ?? "")
    .replace(/\u001b\[[0-9;]*m/g, "")
    // eslint-disable-next-line no-control-regex
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, "\ufffd");
}

/** A word for a shell, quoted where it needs to be. */
export const shell = (word) => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;

/** A name that the provider takes, made from a file's name. */
export function nameOf(file) {
  return file.toLowerCase().replace(/\.(onnx|zip|tar|tgz|tar\.gz)$/g, "").replace(/[^a-z0-9]+/g, "-")
    .replace(/^[-0-9]+|-+$/g, "").slice(0, 40).replace(/-+$/, "") || "model";
}
