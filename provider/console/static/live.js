// The state of the provider as the page knows it, and the stream that keeps it current. Components read it
// with useLive and are rendered again only if what they selected has changed.

import { useLayoutEffect, useReducer, useRef } from "./vendor/hooks.mjs";
import { address, call, query } from "./api.js";

/** Points of a sparkline: how many, and how many seconds each stands for. */
export const sparkPoints = 30, sparkStep = 20;

export const live = {
  /** Functions by key, null before the first answer. */
  functions: null,
  nodes: [],
  sparks: new Map(),
  /** Decisions, oldest first, of the namespace shown, and the ID with which to ask for those that follow. */
  events: [],
  next: 0,
  namespace: "",
  /** Several replicas of the provider serve, and these figures are those of one of them. */
  several: false,
  started: 0,
  version: "",
  /** "connecting", "live", "polling" (answers, but without a stream) or "lost". */
  connection: "connecting",
  lostAt: 0,
  problem: null,
  /** What to tell the user, for example of a restart. */
  notice: null,
  /** The function whose remedy the user is asked about, as it was when the button was pressed. */
  asked: null,
};

const listeners = new Set();

export function changed() {
  for (const listen of [...listeners]) listen();
}

export const set = (fields) => {
  Object.assign(live, fields);
  changed();
};

/** What select returns of the live state. The component is rendered again only if that changes. */
export function useLive(select) {
  const [, again] = useReducer((n) => n + 1, 0);
  const latest = useRef(null);
  const now = select(live);
  latest.current = { select, now };
  useLayoutEffect(() => {
    const listen = () => {
      if (!Object.is(latest.current.select(live), latest.current.now)) again();
    };
    listeners.add(listen);
    listen();
    return () => listeners.delete(listen);
  }, []);
  return now;
}

export const keyOf = (namespace, name) => `${namespace}/${name}`;

const maxEvents = 500;

/**
 * What identifies a decision, also where several replicas of the provider give it IDs of their own: its first time and
 * what it says, without how often.
 */
export const decisionKey = (e) => `${e.first_at ?? e.at} ${keyOf(e.namespace, e.function)} ${e.kind} ${e.text.replace(/ \(×\d+\)$/, "")}`;

/** Merges decisions. An equal one that follows another replaces it, and its text says how often. */
export function mergeEvents(list, more) {
  const known = new Map(list.map((e) => [decisionKey(e), e]));
  for (const e of more) {
    // The instances of equal decisions of one instant add up.
    for (const [key, was] of e.replaces ? known : []) {
      if (was.id === e.replaces && was.function === e.function && was.kind === e.kind) known.delete(key);
    }
    const key = decisionKey(e), was = known.get(key);
    if (!was || (e.count ?? 1) >= (was.count ?? 1)) known.set(key, e);
  }
  return [...known.values()].sort((a, b) => a.at - b.at || a.id - b.id).slice(-maxEvents);
}

function extendSpark(key, value, now) {
  const bucket = Math.floor(now / sparkStep);
  const old = live.sparks.get(key);
  if (!old) {
    live.sparks.set(key, { bucket, values: [...Array(sparkPoints - 1).fill(null), value] });
    return;
  }
  if (old.bucket === bucket && old.values.at(-1) === value) return;
  const steps = Math.min(Math.max(bucket - old.bucket, 0), sparkPoints);
  const values = steps ? [...old.values.slice(steps), ...Array(steps).fill(old.values.at(-1))] : [...old.values];
  values[sparkPoints - 1] = value;
  live.sparks.set(key, { bucket, values });
}

/** When the stream last said something of a function, by key: an answer that was on its way meanwhile is older. */
const streamed = new Map();

function applyStats(stats, whole) {
  const functions = new Map(live.functions), newer = (key) => whole && streamed.get(key) > stats.now;
  for (const key of whole ? [...functions.keys()] : []) {
    if (!newer(key)) functions.delete(key);
  }
  for (const gone of stats.gone ?? []) {
    const key = keyOf(gone.namespace, gone.name);
    streamed.set(key, stats.now);
    functions.delete(key);
    live.sparks.delete(key);
  }
  for (const f of stats.functions ?? []) {
    const key = keyOf(f.namespace, f.name);
    if (newer(key)) continue;
    if (!whole) streamed.set(key, stats.now);
    const { series, ...rest } = f;
    functions.set(key, rest);
    if (series?.arrived) {
      const step = stats.step_s || sparkStep;
      // The series of a new function is shorter.
      const known = series.arrived.slice(-sparkPoints).map((n) => n / step);
      live.sparks.set(key, { bucket: Math.floor(stats.now / sparkStep), values: [...Array(sparkPoints - known.length).fill(null), ...known] });
    } else {
      extendSpark(key, f.load_per_s ?? 0, stats.now ?? Date.now() / 1000);
    }
  }
  for (const key of whole ? [...live.sparks.keys()] : []) {
    if (!functions.has(key)) live.sparks.delete(key);
  }
  live.functions = functions;
  if (stats.nodes) live.nodes = stats.nodes;
  if (stats.started) live.started = stats.started;
  live.several = Boolean(stats.several);
  if (stats.version) live.version = stats.version;
}

async function loadState() {
  const { namespace } = live;
  const history = query("system/stats", { namespace, window: `${sparkPoints * sparkStep}s`, step: `${sparkStep}s` });
  const [stats, events] = await Promise.all([
    call(history).catch((e) => {
      // The history of very many functions is too much for one answer. Their lines then begin now.
      if (e.status === 400) return call(query("system/stats", { namespace }));
      throw e;
    }),
    call(query("system/events", { namespace, limit: "200" })).catch((e) => {
      if (e.status === 404 || e.status === 501) return { events: [] };
      throw e;
    }),
  ]);
  if (namespace !== live.namespace) return;
  const restarted = stats.started !== live.started;
  if (restarted) streamed.clear(); // Its clock may be another.
  live.events = mergeEvents(restarted ? [] : live.events, events.events ?? []);
  live.next = events.next ?? 0;
  applyStats(stats, true);
}

let source = null, retry = 0, failures = 0, generation = 0, poll = 0;

function onStats(message) {
  applyStats(JSON.parse(message.data), false);
  changed();
}

/** Loads the decisions between those that the page loaded and those that the stream sends. */
function loadMissed(mine) {
  const { namespace, next } = live;
  call(query("system/events", { namespace, since: String(next), limit: "200" })).then(
    (more) => mine === generation && set({ events: mergeEvents(live.events, more.events ?? []) }), () => {});
}

const onDecision = (message) => set({ events: mergeEvents(live.events, [JSON.parse(message.data)]) });

/** Opens the stream, after loading the state. Calling it again begins anew. */
export async function connect() {
  const mine = ++generation;
  clearTimeout(retry);
  clearInterval(poll);
  source?.close();
  source = null;
  const before = live.started;
  try {
    await loadState();
  } catch (e) {
    if (mine === generation) lost(e);
    return;
  }
  if (mine !== generation) return;
  if (before && live.started !== before) {
    live.notice = { at: live.started, text: "The provider has restarted. This page shows its new state." };
  }
  live.problem = null;
  changed();
  const stream = new EventSource(address(query("system/stream", { namespace: live.namespace })));
  source = stream;
  stream.addEventListener("hello", (m) => {
    if (mine !== generation) return;
    const hello = JSON.parse(m.data);
    failures = 0;
    clearInterval(poll);
    if (hello.started && live.started && hello.started !== live.started) {
      connect();
      return;
    }
    set({ connection: "live", problem: null, version: hello.version ?? live.version });
    loadMissed(mine);
  });
  stream.addEventListener("stats", (m) => mine === generation && onStats(m));
  stream.addEventListener("decision", (m) => mine === generation && onDecision(m));
  stream.onerror = () => {
    if (mine !== generation) return;
    stream.close();
    source = null;
    broke();
  };
}

/** The stream broke. If the provider answers otherwise, the page asks for the state itself. */
function broke() {
  if (live.connection === "live" && failures === 0) {
    failures = 1;
    set({ connection: "connecting" });
    retry = setTimeout(connect, 300);
    return;
  }
  failures++;
  set({ connection: "polling" });
  const mine = generation;
  clearInterval(poll);
  poll = setInterval(() => loadState().then(changed, (e) => mine === generation && lost(e)), 5000);
  retry = setTimeout(connect, wait());
}

const wait = () => Math.min(1000 * 2 ** Math.min(failures, 5), 20000) * (0.75 + Math.random() / 2);

function lost(e) {
  failures++;
  clearInterval(poll);
  clearTimeout(retry);
  if (live.connection !== "lost") live.lostAt = Date.now() / 1000;
  set({ connection: "lost", problem: e });
  // Nobody but the user can enter a password.
  if (e.status !== 401) retry = setTimeout(connect, Math.min(wait(), 5000));
}

/** Shows another namespace. */
export function choose(namespace) {
  if (namespace === live.namespace) return;
  streamed.clear();
  Object.assign(live, { namespace, functions: null, sparks: new Map(), events: [], connection: "connecting" });
  changed();
  connect();
}

/** Loads the state again, for example after a change made here. */
export const refresh = () => loadState().then(changed, () => {});

let hidden = 0;

/** Ends all that goes on between the page and the provider. */
function pause() {
  generation++;
  source?.close();
  source = null;
  clearTimeout(retry);
  clearInterval(poll);
  set({ connection: "connecting" });
}

/**
 * Opens the stream, and closes it while nobody sees the page: over HTTP/1.1, browsers open six connections to a
 * host for all tabs together, and a seventh tab would load nothing.
 */
export function begin() {
  const seen = () => document.visibilityState !== "hidden";
  if (seen()) connect();
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hidden);
    if (!seen()) hidden = setTimeout(pause, 1000);
    else if (!source && live.connection !== "polling") connect();
  });
  addEventListener("online", () => seen() && live.connection !== "live" && connect());
}
