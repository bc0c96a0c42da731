// Parts that several views use. Names, logs and errors reach the page as text nodes only.

import { h, Component, render, createElement } from "./vendor/preact.mjs";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.mjs";
import htm from "./vendor/htm.mjs";
import { annotate, call, query } from "./api.js";
import { config, count, cores, duration, ms, plain } from "./format.js";
import { refresh, set, useLive } from "./live.js";

export { render, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState };
export const html = htm.bind(h);

/** A component that is rendered again only if a property has changed. */
export function memo(of) {
  return class extends Component {
    shouldComponentUpdate(next) {
      const names = new Set([...Object.keys(next), ...Object.keys(this.props)]);
      for (const name of names) {
        const a = this.props[name], b = next[name];
        if (!Object.is(a, b) && !(typeof a === "object" && typeof b === "object" && JSON.stringify(a) === JSON.stringify(b))) return true;
      }
      return false;
    }
    render(props) {
      return createElement(of, props);
    }
  };
}

export const functionLink = (namespace, name, part = "") =>
  `#/function/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}${part ? `/${part}` : ""}`;

const states = {
  ok: ["✓", "in time"],
  misses: ["▲", "misses"],
  broken: ["✕", "broken"],
  starting: ["◐", "starting"],
  idle: ["○", "idle"],
};

/** Whether the requests of the last minute kept the objective: null if there was none. Few late ones are no miss, but not in time. */
export function inTime(f) {
  const share = f.minute?.attainment_pct;
  return share === null || share === undefined ? null : share >= (f.percentile || 99);
}

/** A function's state: a sign and a word, so that colour says nothing alone. */
export function State({ of: f }) {
  const [sign, word] = f.state === "ok" && !inTime(f) ? ["✓", "ready"] : states[f.state] ?? ["?", plain(f.state || "unknown")];
  return html`<span class=${`state ${f.state}`}><span aria-hidden="true">${sign}</span> ${word}</span>`;
}

const maxSquares = 8;

/** Instances by config: a square for each, filled if it is ready. Parked ones are ready, too: they answer as quickly. */
export const Blocks = memo(({ of }) => {
  const groups = (of ?? []).filter((g) => (g.count ?? 1) > 0);
  if (!groups.length) return html`<span class="quiet">none</span>`;
  return html`<ul class="blocks">${groups.map((g) => {
    const all = g.count ?? 1, parked = g.parked ?? 0, ready = g.ready ?? all, up = ready + parked;
    const squares = Array.from({ length: Math.min(all, maxSquares) }, (_, i) => i < ready ? "ready" : i < ready + parked ? "parked" : "starting");
    const words = [`${all} × ${config(g)}`, up < all && `${up} ready`, parked && `${parked} parked`].filter(Boolean).join(", ");
    return html`<li title=${`${words}${g.cpu_millicores ? `: batches of up to ${g.batch ?? 1} on ${g.cpu_millicores} millicores${g.gpu_pct ? ` and ${g.gpu_pct} % of a GPU` : ""}` : ""}`}>
      <span class="squares" aria-hidden="true">${squares.map((s) => html`<i class=${s}></i>`)}</span>
      <span>${all > 1 ? `${all} × ` : ""}${config(g)}</span>${up < all && html` <span class="quiet">${up} ready</span>`}</li>`;
  })}</ul>`;
});

export const cost = (f) => [
  f.cost_millicores || !f.cost_gpu_pct ? cores(f.cost_millicores ?? 0) : "",
  f.cost_gpu_pct ? `${f.cost_gpu_pct} % GPU` : "",
].filter(Boolean).join(" + ");

/** What went wrong, in a box that a screen reader announces. */
export const Failure = ({ of, children }) => of && html`<div class="box bad" role="alert"><span aria-hidden="true">✕</span>
  <div><p>${plain(of.message ?? of)}</p>${children}</div></div>`;

/** A modal dialog. The browser keeps the focus inside and closes it by Escape. */
export function Dialog({ title, close, children }) {
  const ref = useRef(null);
  useLayoutEffect(() => {
    const dialog = ref.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return html`<dialog ref=${ref} aria-labelledby="dialog-title" onCancel=${(e) => { e.preventDefault(); close(); }}
    onClick=${(e) => e.target === ref.current && close()}>
    <div class="dialog"><h2 id="dialog-title">${title}</h2>${children}</div></dialog>`;
}

/** A dialog that asks before something is changed. act returns a promise. */
export function Confirm({ title, children, label, danger, act, close }) {
  const [busy, setBusy] = useState(false), [failure, setFailure] = useState(null);
  const go = async () => {
    if (busy) return;
    setBusy(true);
    setFailure(null);
    try {
      await act();
      close();
    } catch (e) {
      setFailure(e);
      setBusy(false);
    }
  };
  // Enter in a field does what the button does. It is no form, because the dialog may be inside of one.
  const enter = (e) => {
    if (e.key !== "Enter" || !e.target.matches("input")) return;
    e.preventDefault();
    go();
  };
  return html`<${Dialog} title=${title} close=${close}><div onKeyDown=${enter}>${children}</div><${Failure} of=${failure} />
    <div class="row end"><button type="button" onClick=${close}>Cancel</button>
    <button type="button" class=${danger ? "danger" : "primary"} disabled=${busy} onClick=${go}>${busy ? "Working …" : label}</button></div><//>`;
}

/** Changes annotations of a function, unless it was deployed again since the user saw the revision. */
export async function change(f, seen, annotations) {
  await annotate(f.namespace, f.name, seen, annotations);
  await refresh();
}

/** The one button for a function that misses its objective. It opens the dialog Asked. */
export function Remedy({ of: f, part }) {
  const r = f.remedy;
  if (!r) return null;
  if (r.slo_ms || r.replicas_max) return html`<button type="button" class="primary" onClick=${() => set({ asked: f })}>${plain(r.label)}</button>`;
  return part !== "decisions" && html`<a class="button" href=${functionLink(f.namespace, f.name, "decisions")}>${plain(r.label)}</a>`;
}

/** The dialog of a remedy. It says what the button said when it was pressed, whatever happens to the button since. */
export function Asked() {
  const f = useLive((state) => state.asked), close = () => set({ asked: null });
  useEffect(() => {
    addEventListener("hashchange", close);
    return () => removeEventListener("hashchange", close);
  }, []);
  if (!f) return null;
  const r = f.remedy;
  const act = () => change(f, f.revision?.asked, r.slo_ms ? { "com.openfaas.slo.latency": duration(r.slo_ms) } : { "com.openfaas.scale.max": String(r.replicas_max) });
  return html`<${Confirm} title=${plain(r.label)} label=${plain(r.label)} act=${act} close=${close}>
    <p>${r.slo_ms
      ? html`The objective of <b>${plain(f.name)}</b> changes from ${ms(f.slo_ms)} to <b>${ms(r.slo_ms)}</b>.`
      : html`<b>${plain(f.name)}</b> may have up to <b>${count(r.replicas_max, "instance")}</b>.`}</p>
    <p class="quiet">This deploys a new revision. The present one serves until the new one carries the load.</p><//>`;
}

/** Removes a function after a question. */
export function RemoveFunction({ of: f, close }) {
  const act = async () => {
    await call(query("system/functions", { namespace: f.namespace }), { method: "DELETE", json: { functionName: f.name } });
    location.hash = "#/";
    refresh();
  };
  return html`<${Confirm} title="Remove the function?" label="Remove" danger act=${act} close=${close}>
    <p><b>${plain(f.name)}</b> stops answering, and its instances stop. Its image stays, so it can be deployed again.</p><//>`;
}

/** A text to copy, for example a command. */
export function Copy({ text, label = "Copy" }) {
  const [said, say] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      say("Copied");
    } catch {
      say("Select the text and copy it"); // Browsers allow the clipboard only on safe origins.
    }
    setTimeout(() => say(""), 2000);
  };
  return html`<div class="copy"><pre tabindex="0"><code>${plain(text)}</code></pre>
    <button type="button" class="small" onClick=${copy}>${label}</button><span class="quiet" role="status">${said}</span></div>`;
}

/** A slider over powers of ten, with the value beside it. */
export function LogSlider({ id, label, value, min, max, format, change }) {
  const steps = 200, ratio = Math.log(max / min);
  const at = Math.round((Math.log(Math.min(max, Math.max(min, value)) / min) / ratio) * steps);
  const nice = (v) => {
    const unit = 10 ** (Math.floor(Math.log10(v)) - 1);
    return Math.max(min, Math.min(max, Math.round(Math.round(v / unit) * unit * 1000) / 1000));
  };
  return html`<div class="slider"><label for=${id}>${label} <output for=${id}>${format(value)}</output></label>
    <input type="range" id=${id} min="0" max=${steps} value=${at} aria-valuetext=${format(value)}
      onInput=${(e) => change(nice(min * Math.exp((e.target.value / steps) * ratio)))} />
    <span class="ends"><span>${format(min)}</span><span>${format(max)}</span></span></div>`;
}

/** Loads something when its arguments change. Returns {data, failure, again, loading}, the latter a ref. */
export function useLoad(load, parameters) {
  const [state, setState] = useState({}), [turn, again] = useState(0), loading = useRef(false);
  useEffect(() => {
    const stop = new AbortController();
    const end = (set) => {
      if (stop.signal.aborted) return;
      loading.current = false;
      set();
    };
    loading.current = true;
    load(stop.signal).then((data) => end(() => setState({ data })), (failure) => end(() => setState((s) => ({ ...s, failure }))));
    return () => stop.abort();
  }, [...parameters, turn]);
  return { ...state, again: useCallback(() => again((n) => n + 1), []), loading };
}

/** Calls act every so many milliseconds while the page is visible. */
export function useEvery(period, act, parameters) {
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && act(), period);
    return () => clearInterval(timer);
  }, parameters);
}
