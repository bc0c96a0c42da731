// The list of functions, and what to do where there is none.

import { html, memo, useState, Blocks, Copy, Remedy, State, cost, functionLink, inTime } from "./parts.js";
import { live, useLive } from "./live.js";
import { Bullet, Sparkline } from "./charts.js";
import { cores, count, ms, number, percent, plain, rate } from "./format.js";

const rank = { broken: 0, misses: 1, starting: 2, ok: 3, idle: 4 };

/** The keys of the functions in the order of the list, as one text: it changes only if the order does. */
const order = (state) => state.functions && [...state.functions.values()]
  .sort((a, b) => (rank[a.state] ?? 3) - (rank[b.state] ?? 3) || (a.name < b.name ? -1 : 1))
  .map((f) => `${f.namespace}/${f.name}`).join("\n");

const trouble = (state) => [...(state.functions?.values() ?? [])]
  .filter((f) => f.state === "misses" || f.state === "broken").map((f) => `${f.namespace}/${f.name}`).sort().join("\n");

const shownAtFirst = 200;

export function Functions() {
  const keys = useLive(order), [filter, setFilter] = useState(""), [all, setAll] = useState(false);
  if (keys === null) return html`<h1>Functions</h1><p class="quiet" role="status">Loading …</p>`;
  if (keys === "") return html`<${FirstFunction} />`;
  const list = keys.split("\n"), wanted = filter.trim().toLowerCase();
  const found = wanted ? list.filter((k) => k.toLowerCase().includes(wanted)) : list;
  const shown = all ? found : found.slice(0, shownAtFirst);
  return html`<div class="head"><h1>Functions</h1><${Totals} />
      ${list.length > 8 && html`<label class="find"><span class="sr">Find a function</span>
        <input type="search" placeholder="Find …" value=${filter} onInput=${(e) => setFilter(e.target.value)} /></label>`}</div>
    <${Several} />
    <${Attention} />
    <div class="table functions" role="table" aria-label="Functions">
      <div class="tr th" role="row">
        <span role="columnheader">Function</span><span role="columnheader">In time</span><span role="columnheader">Requests, now</span>
        <span role="columnheader">Latency</span><span role="columnheader">Instances</span><span role="columnheader">Cost</span></div>
      ${shown.map((key) => html`<${Row} key=${key} id=${key} />`)}
    </div>
    ${found.length === 0 && html`<p class="empty">No function's name contains “${plain(filter)}”.</p>`}
    ${found.length > shown.length && html`<p><button type="button" onClick=${() => setAll(true)}>Show all ${number(found.length)} functions</button></p>`}
    <p class="legend-note quiet">⟨8, 1000m⟩ is an instance that takes batches of up to 8 requests on 1000 millicores.${" "}
      <span class="squares" aria-hidden="true"><i class="ready"></i></span> ready,${" "}
      <span class="squares" aria-hidden="true"><i class="starting"></i></span> starting,${" "}
      <span class="squares" aria-hidden="true"><i class="parked"></i></span> parked: ready in memory, without a share of the CPU.</p>`;
}

function Totals() {
  const text = useLive((state) => {
    const list = [...(state.functions?.values() ?? [])], seen = list.filter((f) => f.slo_ms > 0 && inTime(f) !== null);
    const late = list.filter((f) => f.state === "misses" || f.state === "broken").length;
    const load = list.reduce((n, f) => n + (f.load_per_s ?? 0), 0), held = list.reduce((n, f) => n + (f.cost_millicores ?? 0), 0);
    const total = state.nodes.reduce((n, node) => n + (node.cpu_millicores?.total ?? 0), 0);
    return [count(list.length, "function"), late === 0 && seen.length && seen.every(inTime) && "all in time", late > 0 && `${late} to look at`,
      `${rate(load)} now`, total > 0 ? `${cores(held)} of ${number(total / 1000)}` : cores(held)].filter(Boolean).join(" · ");
  });
  return html`<p class="totals">${text}</p>`;
}

function Several() {
  return useLive((state) => state.several) && html`<p class="quiet">Several replicas of the provider serve these functions. Shares in time and latencies are those of the requests to one of them.</p>`;
}

/** The functions that need somebody, with the reason and one thing to do about it. */
function Attention() {
  const keys = useLive(trouble);
  if (!keys) return null;
  return html`<section class="attention" aria-label="Functions that miss their objectives">
    ${keys.split("\n").slice(0, 12).map((key) => html`<${Trouble} key=${key} id=${key} />`)}</section>`;
}

function Trouble({ id }) {
  const f = useLive((state) => state.functions?.get(id));
  if (!f) return null;
  return html`<div class=${`box ${f.state === "broken" ? "bad" : "warn"}`}><span class="sign" aria-hidden="true">${f.state === "broken" ? "✕" : "▲"}</span>
    <div class="grow"><a class="name" href=${functionLink(f.namespace, f.name)}>${plain(f.name)}</a> <span class="sr">${f.state}:</span>
      <p class="sentence">${plain(f.sentence)}</p></div><${Remedy} of=${f} /></div>`;
}

function Row({ id }) {
  const f = useLive((state) => state.functions?.get(id)), spark = useLive((state) => state.sparks.get(id));
  return f ? html`<${Cells} f=${f} spark=${spark?.values} />` : null;
}

export function Attainment({ of }) {
  const p = of?.attainment_pct;
  if (p === null || p === undefined) return html`<span class="quiet" title="no requests">–</span>`;
  return html`${percent(p)}`;
}

const Cells = memo(({ f, spark }) => html`<div class=${`tr ${f.state}`} role="row">
  <span role="cell" class="cell-name"><a class="name" href=${functionLink(f.namespace, f.name)}>${plain(f.name)}</a><${State} of=${f} /></span>
  <span role="cell" class="cell-time"><span class="label">In time</span><b><${Attainment} of=${f.minute} /></b>
    <span class="quiet second">hour ${percent(f.hour?.attainment_pct)}</span></span>
  <span role="cell" class="cell-rate"><span class="label">Requests, now</span><b>${rate(f.load_per_s ?? 0)}</b><${Sparkline} values=${spark} label="requests over ten minutes" /></span>
  <span role="cell" class="cell-latency"><span class="label">Latency</span><span>${f.minute?.p99_ms === null || f.minute?.p99_ms === undefined
    ? html`<span class="quiet">–</span>` : html`<span class="pair"><span class="quiet">p50</span> ${ms(f.minute.p50_ms)}</span> <span class="pair"><span class="quiet">p99</span> <b>${ms(f.minute.p99_ms)}</b></span>`}</span>
    <${Bullet} p50=${f.minute?.p50_ms} p99=${f.minute?.p99_ms} objective=${f.slo_ms} />
    <span class="quiet second">${f.slo_ms ? `objective ${ms(f.slo_ms)}` : "no objective"}</span></span>
  <span role="cell" class="cell-instances"><span class="label">Instances</span><${Blocks} of=${f.instances} /></span>
  <span role="cell" class="cell-cost"><span class="label">Cost</span>${cost(f)}</span></div>`);

/** The page of a provider without functions. It teaches the first step. */
function FirstFunction() {
  const host = `${location.origin}${new URL("..", location.origin + location.pathname).pathname.replace(/\/$/, "")}`;
  return html`<h1>No function yet</h1>
    <p class="lead">A function is a model, or a program, behind an address. State how long a request may take: faas-infer then keeps
      as many instances as the load needs, and no more.</p>
    <div class="two">
      <section class="card"><h2>Drop a model here</h2><p>An ONNX file is enough. You see whether it can meet your objective, and at what cost, before it is deployed.</p>
        <p><a class="button primary" href="#/deploy">Deploy a model</a></p></section>
      <section class="card"><h2>Or in a terminal</h2>
        <${Copy} text=${`faas-cli template pull https://github.com/faas-infer/faas-infer\nfaas-cli new --lang onnx-infer iris\nfaas-cli up --gateway ${host} --remote-builder ${host} --payload-secret ~/.local/state/faas-infer/secrets/payload-secret`} />
        <p class="quiet">${live.namespace ? `In the namespace ${plain(live.namespace)}. ` : ""}The function appears here as soon as it is deployed.</p></section>
    </div>`;
}
