// The plan for another objective or rate, by the planner that the provider itself uses.

import { html, useEffect, useState, Blocks, Confirm, Failure, LogSlider, change, cost } from "./parts.js";
import { call, query } from "./api.js";
import { duration, ms, plain, rate } from "./format.js";

/** Asks the planner, a moment after the last change. Returns {plan, failure, busy}. */
export function usePlan(namespace, name, slo, perSecond) {
  const [state, setState] = useState({ busy: true });
  useEffect(() => {
    const stop = new AbortController();
    setState((s) => ({ ...s, busy: true }));
    const timer = setTimeout(() => call(query(`system/plan/${encodeURIComponent(name)}`, { namespace }),
      { method: "POST", json: { slo: duration(slo), rate: perSecond }, signal: stop.signal })
      .then((plan) => setState({ plan, busy: false }), (failure) => failure.name !== "AbortError" && setState({ failure, busy: false })), 150);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [namespace, name, slo, perSecond]);
  return state;
}

export function WhatIf({ f }) {
  const [slo, setSLO] = useState(f.slo_ms || 200), [perSecond, setRate] = useState(Math.max(1, Math.round(f.load_per_s || f.minute?.rate_per_s || 50)));
  const [asking, setAsking] = useState(null);
  if (f.kind === "program") {
    return html`<section class="card"><h2>What if</h2><p class="empty">${plain(f.name)} is a program without an objective. The planner works for models:
      set <code>com.openfaas.slo.latency</code> in its deployment.</p></section>`;
  }
  return html`<section class="card"><h2>What if</h2>
    <p class="quiet">The planner that runs your functions works out what another objective or load would take. Nothing changes until you say so.</p>
    <div class="two">
      <div><${LogSlider} id="slo" label=${`Answer ${f.percentile || 99} % within`} value=${slo} min=${1} max=${10000} format=${ms} change=${setSLO} />
        <${LogSlider} id="rate" label="Requests per second" value=${perSecond} min=${1} max=${10000} format=${rate} change=${(v) => setRate(Math.round(v))} /></div>
      <${Outcome} f=${f} slo=${slo} perSecond=${perSecond} ask=${() => setAsking(f.revision?.asked ?? "")} />
    </div>
    ${asking !== null && html`<${Confirm} title="Change the objective?" label=${`Set ${ms(slo)}`} close=${() => setAsking(null)}
      act=${() => change(f, asking, { "com.openfaas.slo.latency": duration(slo) })}>
      <p>The objective of <b>${plain(f.name)}</b> changes from ${ms(f.slo_ms)} to <b>${ms(slo)}</b>.</p>
      <p class="quiet">This deploys a new revision. The present one serves until the new one carries the load.</p><//>`}
  </section>`;
}

function Outcome({ f, slo, perSecond, ask }) {
  const { plan, failure, busy } = usePlan(f.namespace, f.name, slo, perSecond);
  if (failure) return html`<${Failure} of=${failure} />`;
  if (!plan) return html`<p class="quiet" role="status">Planning …</p>`;
  const now = plan.current ?? {}, found = plan.instances?.length > 0;
  return html`<div class=${busy ? "outcome stale" : "outcome"} aria-busy=${busy ? "true" : "false"}>
    <p class=${`box ${plan.fits ? "good" : "warn"}`} role="status"><span class="sign" aria-hidden="true">${plan.fits ? "✓" : "▲"}</span> <span>${plain(plan.sentence)}</span></p>
    <div class="scroll" tabindex="0" role="region" aria-label="The plan against now"><table><thead><tr><th><span class="sr">Quantity</span></th><th>Now</th><th>Then</th></tr></thead><tbody>
      <tr><th>Instances</th><td><${Blocks} of=${now.instances} /></td><td><${Blocks} of=${plan.instances} /></td></tr>
      <tr><th>They carry</th><td>${rate(now.carries_per_s)}</td><td>${found ? rate(plan.carries_per_s) : "–"}</td></tr>
      <tr><th>Cost</th><td>${cost(now)}</td><td>${found ? html`<b>${cost(plan)}</b>` : "–"}</td></tr></tbody></table></div>
    ${slo !== f.slo_ms && html`<p><button type="button" class="primary" disabled=${busy || !plan.fits} onClick=${ask}>Set the objective to ${ms(slo)}</button></p>`}</div>`;
}
