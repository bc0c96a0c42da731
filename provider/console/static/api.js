// Requests to the provider. All addresses are relative to the page, so that a proxy may serve the console
// under a path of its own.

// The page's own address may hold a user and a password, which fetch refuses.
const base = new URL("../", location.origin + location.pathname);

export const address = (path) => new URL(path, base).href;

/** An answer that is no success. status is 0 if there was no answer. */
export class Problem extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

const noAnswer = "The provider does not answer. Is it running, and is the network up?";

export function explain(status, text) {
  if (status === 401) return "The provider asks for a user and a password. Reload the page to enter them.";
  try {
    const { error, message } = JSON.parse(text);
    const said = typeof error === "string" ? error : error?.message ?? message;
    if (said) return said;
  } catch { /* It is no JSON: the text itself says what is wrong. */ }
  return text.trim().slice(0, 2000) || `The provider answered with status ${status}.`;
}

/** Fetches and returns the response, whatever its status. */
export async function raw(path, options = {}) {
  try {
    return await fetch(address(path), { cache: "no-store", ...options });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Problem(noAnswer, 0);
  }
}

/** Fetches JSON, or text if the answer is none. It throws a Problem for any other status than 2xx. */
export async function call(path, { json, ...options } = {}) {
  if (json !== undefined) {
    options.body = JSON.stringify(json);
    options.headers = { "Content-Type": "application/json", ...options.headers };
  }
  const response = await raw(path, options);
  let text;
  try {
    text = await response.text();
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Problem("The answer ended too early.", 0);
  }
  if (!response.ok) throw new Problem(explain(response.status, text), response.status);
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return text;
  }
}

export function query(path, parameters) {
  const q = new URLSearchParams(Object.entries(parameters).filter(([, v]) => v !== undefined && v !== ""));
  return q.size ? `${path}?${q}` : path;
}

/**
 * Uploads a file and reports the progress from 0 to 1. fetch cannot report it. Returns the answer, and a
 * function that stops the upload.
 */
export function upload(path, file, progress) {
  const request = new XMLHttpRequest();
  const done = new Promise((resolve, reject) => {
    request.open("POST", address(path));
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.onprogress = (e) => e.lengthComputable && progress(e.loaded / e.total);
    request.onload = () => {
      if (request.status < 200 || request.status > 299) {
        reject(new Problem(explain(request.status, request.responseText), request.status));
        return;
      }
      try {
        resolve(JSON.parse(request.responseText));
      } catch {
        reject(new Problem("The provider's answer could not be read.", request.status));
      }
    };
    request.onerror = () => reject(new Problem("The provider ended the upload. The file may be larger than it takes, or the connection broke.", 0));
    request.onabort = () => reject(new Problem("The upload was stopped.", 0));
    request.send(file);
  });
  return { done, stop: () => request.abort() };
}

/** The deployment of a function, as it was sent, from its status. */
export async function deploymentOf(namespace, name) {
  const status = await call(query(`system/function/${encodeURIComponent(name)}`, { namespace }));
  const { name: service, replicas, availableReplicas, invocationCount, createdAt, usage, ...rest } = status;
  const labels = { ...rest.labels };
  delete labels.faas_function; // The provider adds it.
  return { ...rest, service, labels };
}

/** The header that refuses a deployment unless the function is at the revision seen, or absent if none was seen. */
export const unchanged = (seen) => seen ? { "If-Match": `"${seen}"` } : { "If-None-Match": "*" };

/**
 * Changes annotations of a function, and nothing else, unless it was deployed again since the user saw the revision.
 * Some may be labels, and are changed there.
 */
export async function annotate(namespace, name, seen, annotations) {
  const deployment = await deploymentOf(namespace, name);
  for (const [key, value] of Object.entries(annotations)) {
    const { labels } = deployment, both = key in labels && key in (deployment.annotations ?? {});
    if (key in labels) labels[key] = value;
    if (both || !(key in labels)) deployment.annotations = { ...deployment.annotations, [key]: value };
  }
  await call("system/functions", { method: "PUT", json: deployment, headers: unchanged(seen) });
}
