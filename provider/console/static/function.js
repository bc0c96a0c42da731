// The page of one function: how it does, what was decided for it, and what one can change.

import { html, memo, useCallback, useEffect, useMemo, useRef, useState, useEvery, Blocks, Confirm, Failure, Remedy, RemoveFunction, State, change, cost, functionLink } from "./parts.js";
import { call, query } from "./api.js";
import { choose, decisionKey, keyOf, live, mergeEvents, useLive } from "./live.js";
import { Bars, Histogram, TimeChart } from "./charts.js";
import { Attainment } from "./functions.js";
import { bytes, clock, config, count, cores, ms, number, percent, plain, rate } from "./format.js";
import { Logs } from "./logs.js";
import { Rollout } from "./rollout.js";
import { Try } from "./try.js";
import { WhatIf } from "./whatif.js";

const parts = [["", "Overview"], ["decisions", "Decisions"], ["try", "Try it"], ["what-if", "What if"], ["logs", "Logs"], ["deployment", "Deployment"]];

/** A series over its whole span, in seconds: where the function is younger, it has no values. */
function whole(series, span, step) {
  const missing = series?.at?.length ? Math.round(span / step) - series.at.length : 0;
  if (missing <= 0) return series;
  const first = series.at[0], none = Array(missing).fill(null);
  return Object.fromEntries(Object.entries(series).map(([name, values]) => [name, !Array.isArray(values) ? values
    : [...(name === "at" ? none.map((_, i) => first - (missing - i) * step) : none), ...values]]));
}

/** What the provider knows of one function: the live figures, completed by those that it is asked for. */
function useDetail(namespace, name, span) {
  const [detail, setDetail] = useState(null), [failure, setFailure] = useState(null), asked = useRef({ at: 0, what: "", stop: null });
  const short = useLive((state) => state.functions?.get(keyOf(namespace, name)));
  const started = useLive((state) => state.started);
  const load = useCallback(async () => {
    // A question for the same is waited for, one for something else is of no use any more.
    const what = `${namespace}/${name}/${span}`, stop = new AbortController();
    if (asked.current.stop && asked.current.what === what) return;
    asked.current.stop?.abort();
    asked.current = { ...asked.current, what, stop };
    try {
      const [window, step] = span === "1h" ? ["1h", "30s"] : ["10m", "10s"];
      const stats = await call(query("system/stats", { namespace, function: name, window, step }), { signal: stop.signal });
      if (stop.signal.aborted) return;
      const f = (stats.functions ?? []).find((x) => x.name === name);
      setDetail(f ? { ...f, series: span === "1h" ? whole(f.series, 3600, 30) : whole(f.series, 600, 10) } : null);
      setFailure(f ? null : { message: `There is no function ${name}.`, status: 404 });
    } catch (e) {
      if (stop.signal.aborted) return;
      if (e.status === 404) setDetail(null);
      setFailure(e);
    }
    asked.current = { at: Date.now(), what, stop: null };
  }, [namespace, name, span]);
  useEffect(() => { load(); }, [load, started]);
  useEffect(() => () => asked.current.stop?.abort(), []);
  // Figures that moved make the page ask again, at most every two seconds.
  useEffect(() => {
    if (!short || !asked.current.at) return undefined;
    const timer = setTimeout(load, Math.max(0, asked.current.at + 2000 - Date.now()));
    return () => clearTimeout(timer);
  }, [short, load]);
  useEvery(10000, load, [load]);
  const merged = useMemo(() => detail && { ...detail, ...short, instances: detail.instances }, [detail, short]);
  return { f: merged, failure };
}

export function FunctionPage({ namespace, name, part }) {
  const [span, setSpan] = useState("10m"), [removing, setRemoving] = useState(false);
  const { f, failure } = useDetail(namespace, name, span);
  useEffect(() => { document.title = `${name} · faas-infer`; }, [name]);
  // A link may lead to a function of another namespace, for example from a node. The live figures are then those of it.
  const elsewhere = f && namespace !== (live.namespace || live.defaultNamespace);
  useEffect(() => { if (elsewhere) choose(namespace); }, [elsewhere, namespace]);
  if (!f) {
    return html`<p class="crumbs"><a href="#/">Functions</a></p><h1>${plain(name)}</h1>
      ${failure ? html`<${Failure} of=${failure}><p><a href="#/">See all functions</a></p><//>` : html`<p class="quiet" role="status">Loading …</p>`}`;
  }
  return html`<p class="crumbs"><a href="#/">Functions</a></p>
    <div class="head"><h1>${plain(f.name)}</h1><${State} of=${f} /><span class="grow"></span>
      <button type="button" class="small" onClick=${() => setRemoving(true)}>Remove …</button></div>
    ${removing && html`<${RemoveFunction} of=${f} close=${() => setRemoving(false)} />`}
    ${f.sentence && html`<div class=${`box ${f.state === "broken" ? "bad" : f.state === "misses" ? "warn" : "info"}`} role="status">
      <span class="sign" aria-hidden="true">${f.state === "broken" ? "✕" : f.state === "misses" ? "▲" : "i"}</span>
      <p class="grow sentence">${plain(f.sentence)}</p><${Remedy} of=${f} part=${part} /></div>`}
    <nav class="tabs" aria-label="Parts of this function">${parts.map(([id, label]) => html`
      <a key=${id} href=${functionLink(namespace, name, id)} aria-current=${part === id ? "page" : undefined}>${label}</a>`)}</nav>
    ${part === "" && html`<${Overview} f=${f} span=${span} choose=${setSpan} />`}
    ${part === "decisions" && html`<${Decisions} namespace=${namespace} name=${name} />`}
    ${part === "try" && html`<${Try} key=${name} f=${f} />`}
    ${part === "what-if" && html`<${WhatIf} key=${name} f=${f} />`}
    ${part === "logs" && html`<${Logs} key=${name} namespace=${namespace} name=${name} />`}
    ${part === "deployment" && html`<${Deployment} f=${f} />`}`;
}

const Tile = ({ label, children, note }) => html`<div class="tile"><dt>${label}</dt><dd>${children}${note && html`<span class="quiet">${note}</span>`}</dd></div>`;

function Overview({ f, span, choose }) {
  const goal = f.slo_ms ? { value: f.slo_ms, label: `objective ${ms(f.slo_ms)}` } : null, s = f.series;
  const r = f.revision ?? {}, swapping = r.asked && r.serving && r.asked !== r.serving;
  return html`
    <dl class="tiles">
      <${Tile} label="In time, last minute" note=${f.hour && `hour ${percent(f.hour.attainment_pct)}`}><${Attainment} of=${f.minute} /><//>
      <${Tile} label="Requests, now" note=${f.carries_per_s > 0 && `instances carry ${rate(f.carries_per_s)}`}>${rate(f.load_per_s ?? 0)}<//>
      <${Tile} label=${`p${f.percentile || 99} latency`} note=${f.slo_ms ? `objective ${ms(f.slo_ms)}` : "no objective"}>${ms(f.minute?.p99_ms)}<//>
      <${Tile} label="p50 latency">${ms(f.minute?.p50_ms)}<//>
      <${Tile} label="Waiting" note="requests in the queue">${number(f.waiting ?? 0)}<//>
      <${Tile} label="Cost" note=${f.memory_bytes > 0 && bytes(f.memory_bytes)}>${cost(f)}<//>
      <${Tile} label="Revision" note=${swapping ? `revision ${plain(r.asked)} is asked for and starts` : ""}>${plain(r.serving || r.asked || "–")}<//>
    </dl>
    ${f.promise && html`<p class="quiet">${plain(f.promise.sentence[0].toUpperCase() + f.promise.sentence.slice(1))}.</p>`}
    <${Rollout} key=${`${f.namespace}/${f.name}`} f=${f} />
    <section class="card"><div class="card-head"><h2>Load</h2><${Span} span=${span} choose=${choose} /></div>
      ${s ? html`<div class="two charts"><${Requests} s=${s} step=${span === "1h" ? 30 : 10} /><${Latency} s=${s} goal=${goal} /></div>` : html`<p class="empty">No history yet.</p>`}</section>
    <div class="two">
      <section class="card"><h2>Latencies of the last hour</h2>${f.latency_ms
        ? html`<${Histogram} bounds=${f.latency_ms.bounds} counts=${f.latency_ms.counts} objective=${f.slo_ms} />` : html`<p class="empty">No request yet.</p>`}</section>
      <section class="card"><h2>Batches as they form</h2><${Batches} of=${f.batches} /></section>
    </div>
    <section class="card"><h2>Instances</h2><${Instances} f=${f} /></section>
    ${f.predicted?.length > 0 && html`<section class="card"><h2>Predicted against seen</h2>
      <p class="quiet">How long executions take on average: as it was predicted for batches of their sizes, and as it was measured. The plan uses the prediction, corrected by what was seen, with a margin.</p>
      <${Predicted} rows=${f.predicted} /></section>`}
    <section class="card"><div class="card-head"><h2>Latest decisions</h2><a href=${functionLink(f.namespace, f.name, "decisions")}>All of the last hour</a></div>
      <${Latest} namespace=${f.namespace} name=${f.name} /></section>`;
}

const Span = ({ span, choose }) => html`<div class="segmented" role="group" aria-label="Time span">${[["10m", "10 minutes"], ["1h", "1 hour"]].map(([id, label]) => html`
  <button type="button" key=${id} aria-pressed=${span === id ? "true" : "false"} onClick=${() => choose(id)}>${label}</button>`)}</div>`;

const Requests = memo(({ s, step }) => {
  const per = (values) => (values ?? []).map((v) => v === null ? null : v / step);
  const areas = [["in time", "in_time", "ok"], ["late", "late", "late"], ["refused", "refused", "refused"], ["failed", "failed", "failed"]]
    .map(([label, field, tone]) => ({ label, tone, values: per(s[field]) }));
  const lines = s.carries_per_s ? [{ label: "instances carry", tone: "carry", faint: true, values: s.carries_per_s }] : [];
  return html`<${TimeChart} title="Requests per second" at=${s.at} areas=${areas} lines=${lines} />`;
});

const Latency = memo(({ s, goal }) => html`<${TimeChart} title="Latency" at=${s.at} limit=${goal} format=${ms}
  lines=${[{ label: "p99", tone: "p99", values: s.p99_ms ?? [] }, { label: "p50", tone: "p50", values: s.p50_ms ?? [] }]} />`);

const Batches = memo(({ of }) => {
  // Each bar holds the sizes above those of the bar before, up to its own.
  const rows = (of?.counts ?? []).map((value, i) => {
    const from = (of.sizes[i - 1] ?? 0) + 1, to = of.sizes[i];
    return { label: to === undefined ? `above ${from - 1}` : from === to ? String(to) : `${from}–${to}`, value };
  }).filter((r) => r.value > 0);
  if (!rows.length) return html`<p class="empty">No batch yet. Requests that come together are executed together, as long as each is answered in time.</p>`;
  const total = rows.reduce((n, r) => n + r.value, 0);
  return html`<p class="quiet">${count(total, "batch", "batches")} in the last hour, by the number of requests in each</p>
    <${Bars} rows=${rows.map((r) => ({ ...r, note: percent((r.value / total) * 100) }))} />`;
});

const instanceStates = { ready: "●", starting: "◐", parked: "○", stopping: "◌" };

const Instances = memo(({ f }) => {
  const list = (f.instances ?? []).filter((i) => (i.count ?? 1) > 0);
  if (!list.length) {
    return html`<p class="empty">No instance holds resources now. The next request starts one${f.slo_ms ? ", and waits for it" : ""}.</p>`;
  }
  if (!list[0].id) return html`<${Blocks} of=${list} />`;
  const several = list.some((i) => i.variant && i.variant !== "model");
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Instances"><table class="tight"><thead><tr><th>Config</th><th>State</th><th>Node</th>${several && html`<th>Variant</th>`}
    <th class="n">Predicted</th><th class="n">Seen</th><th class="n">Carries</th></tr></thead>
    <tbody>${list.map((i) => html`<tr key=${i.id}><td title=${plain(i.id)}>${config(i)}</td><td><span aria-hidden="true">${instanceStates[i.state] ?? ""}</span> ${plain(i.state)}</td>
      <td>${plain(i.node)}</td>${several && html`<td>${plain(i.variant)}</td>`}<td class="n">${i.predicted_ms ? ms(i.predicted_ms) : "–"}</td><td class="n">${i.seen_ms ? ms(i.seen_ms) : "–"}</td>
      <td class="n">${i.carries_per_s ? rate(i.carries_per_s) : "–"}</td></tr>`)}</tbody></table></div>`;
});

const Predicted = memo(({ rows }) => {
  const top = Math.max(...rows.flatMap((r) => [r.predicted_ms ?? 0, r.seen_ms ?? 0]), 1e-9);
  const at = (v) => ({ left: `${(v / top) * 100}%` });
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Predicted against seen"><table class="tight"><thead><tr><th>Config</th><th class="n">Mean batch</th><th class="n">Predicted</th><th class="n">Seen</th><th class="wide">
      <span class="dot predicted" aria-hidden="true"></span> predicted <span class="dot seen" aria-hidden="true"></span> seen</th><th class="n">Difference</th><th class="n">Executions</th></tr></thead>
    <tbody>${rows.map((r) => html`<tr key=${config(r)}><td>${config(r)}</td><td class="n">${r.mean_batch ? r.mean_batch.toFixed(1) : "–"}</td><td class="n">${ms(r.predicted_ms)}</td><td class="n">${r.seen_ms ? ms(r.seen_ms) : "–"}</td>
      <td class="wide"><span class="dumbbell" aria-hidden="true">${r.seen_ms > 0 && html`<i class="span" style=${{ left: `${(Math.min(r.seen_ms, r.predicted_ms) / top) * 100}%`, width: `${(Math.abs(r.seen_ms - r.predicted_ms) / top) * 100}%` }}></i>
        <i class="dot seen" style=${at(r.seen_ms)}></i>`}<i class="dot predicted" style=${at(r.predicted_ms)}></i></span></td>
      <td class="n">${r.seen_ms > 0 && r.predicted_ms > 0 ? `${r.seen_ms >= r.predicted_ms ? "+" : "−"}${Math.round(Math.abs(r.seen_ms / r.predicted_ms - 1) * 100)} %` : "–"}</td>
      <td class="n">${number(r.executions ?? 0)}</td></tr>`)}</tbody></table></div>`;
});

const kinds = { start: "+", stop: "−", resize: "↕", park: "○", unpark: "●", problem: "✕", exit: "✕", unhealthy: "▲", reject: "▲", solved: "✓", healthy: "✓",
  deploy: "⇧", update: "⇧", delete: "×", revision: "⇄", replace: "⇄", relieve: "→", steer: "↗", scale: "↕", node: "▦" };

/** Decisions as sentences, the newest first. */
const Sentences = memo(({ of, names }) => html`<ol class="decisions">${of.map((e) => html`<li key=${decisionKey(e)}><time>${clock(e.at)}</time>
  <span class=${`kind ${e.kind}`} title=${plain(e.kind)} aria-hidden="true">${kinds[e.kind] ?? "·"}</span>
  <span>${names && e.function ? html`<a href=${functionLink(e.namespace, e.function, "decisions")}>${plain(e.function)}</a>: ` : ""}${plain(e.text)}</span></li>`)}</ol>`);

const ofFunction = (list, namespace, name) => list.filter((e) => e.function === name && (e.namespace || namespace) === namespace
  || e.members?.includes(`${name}.${namespace}`));

function Latest({ namespace, name }) {
  const all = useLive((state) => state.events);
  const list = useMemo(() => ofFunction(all, namespace, name).slice(-5).reverse(), [all, namespace, name]);
  return list.length ? html`<${Sentences} of=${list} />` : html`<p class="empty">Nothing had to be decided lately.</p>`;
}

function Decisions({ namespace, name }) {
  const fresh = useLive((state) => state.events), started = useLive((state) => state.started);
  const [old, setOld] = useState(null), [failure, setFailure] = useState(null);
  useEffect(() => {
    let gone = false;
    call(query("system/events", { namespace, function: name, limit: "500" }))
      .then((x) => !gone && setOld(x.events ?? []), (e) => !gone && setFailure(e));
    return () => { gone = true; };
  }, [namespace, name, started]);
  const list = useMemo(() => mergeEvents(old ?? [], ofFunction(fresh, namespace, name)).filter((e) => e.at > Date.now() / 1000 - 3600).reverse(), [old, fresh, namespace, name]);
  return html`<section class="card"><h2>Decisions of the last hour</h2><${Failure} of=${failure} />
    ${list.length ? html`<${Sentences} of=${list} />` : old === null && !failure ? html`<p class="quiet" role="status">Loading …</p>`
      : html`<p class="empty">Nothing was decided in the last hour. As soon as the load changes, the reason of every start, stop and resize appears here.</p>`}
    <p class="quiet">In a terminal: <code>faas-infer why ${plain(name)}</code></p></section>`;
}

/** The deployment as it was sent, and the numbers that are often changed. */
function Deployment({ f }) {
  const [status, setStatus] = useState(null), [failure, setFailure] = useState(null), [edit, setEdit] = useState(null);
  const asked = f.revision?.asked;
  useEffect(() => {
    call(query(`system/function/${encodeURIComponent(f.name)}`, { namespace: f.namespace })).then(setStatus, setFailure);
  }, [f.namespace, f.name, asked]);
  if (!status) return html`<section class="card"><h2>Deployment</h2>${failure ? html`<${Failure} of=${failure} />` : html`<p class="quiet">Loading …</p>`}</section>`;
  const annotations = Object.entries({ ...status.labels, ...status.annotations }).filter(([key]) => key !== "faas_function").sort();
  const save = () => change(f, edit.seen, { [edit.key]: edit.value });
  return html`<section class="card"><h2>Deployment</h2>
    <dl class="pairs"><dt>Image</dt><dd><code>${plain(status.image)}</code></dd><dt>Namespace</dt><dd>${plain(f.namespace)}</dd>
      <dt>Revision asked for</dt><dd>${plain(f.revision?.asked || "–")}</dd><dt>Revision that serves</dt><dd>${plain(f.revision?.serving || "–")}</dd>
      <dt>Instances</dt><dd>${count(status.availableReplicas ?? 0, "ready instance")} of ${number(status.replicas ?? 0)}</dd>
      ${status.limits && html`<dt>Limits</dt><dd>${plain(Object.entries(status.limits).map(([k, v]) => `${k} ${v}`).join(", "))}</dd>`}
      ${status.secrets?.length > 0 && html`<dt>Secrets</dt><dd>${plain(status.secrets.join(", "))}</dd>`}
      <dt>Deployed first</dt><dd>${status.createdAt ? new Date(status.createdAt).toLocaleString("en-GB") : "–"}</dd></dl>
    <h3>Annotations and labels</h3>
    ${annotations.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Annotations and labels"><table><thead><tr><th>Key</th><th>Value</th><th><span class="sr">Change</span></th></tr></thead><tbody>${annotations.map(([key, value]) => html`<tr key=${key}><td><code>${plain(key)}</code></td><td>${plain(value)}</td>
      <td>${/^com\.openfaas\.(slo|scale)\./.test(key) && html`<button type="button" class="small" aria-label=${`Change ${key}`} onClick=${() => setEdit({ key, value, seen: asked })}>Change</button>`}</td></tr>`)}</tbody></table></div>` : html`<p class="empty">None.</p>`}
    ${edit && html`<${Confirm} title="Change the deployment" label="Deploy" act=${save} close=${() => setEdit(null)}>
      <label class="field">${plain(edit.key)}<input value=${edit.value} onInput=${(e) => setEdit({ ...edit, value: e.target.value })} /></label>
      <p class="quiet">This deploys a new revision. The present one serves until the new one carries the load.</p><//>`}
  </section>`;
}
