// Asynchronous requests: those that wait, and those that were given up.

import { html, useState, useLoad, useEvery, Confirm, Dialog, Failure } from "./parts.js";
import { call, query } from "./api.js";
import { ago, bytes, count, dateTime, number, plain } from "./format.js";

const page = 50;

export function Queue() {
  const { data, failure, again, loading } = useLoad(async (signal) => {
    const [status, dead] = await Promise.all([call("system/async", { signal }), call(query("system/async/dead", { limit: String(page) }), { signal })]);
    return { status, dead: dead ?? [] };
  }, []);
  const [doing, setDoing] = useState(null), [said, say] = useState(""), [more, setMore] = useState([]);
  // A slow answer is waited for: asking again would end its request.
  useEvery(5000, () => loading.current || again(), [again]);
  if (failure?.status === 404 || failure?.status === 501) {
    return html`<h1>Queue</h1><p class="empty">This provider takes no asynchronous requests.</p>`;
  }
  if (!data) return html`<h1>Queue</h1>${failure ? html`<${Failure} of=${failure} />` : html`<p class="quiet" role="status">Loading …</p>`}`;
  const { status, dead } = data, known = new Set(dead.map((d) => d.sequence)), letters = [...dead, ...more.filter((d) => !known.has(d.sequence))];
  const finish = (text) => {
    say(text);
    setMore([]);
    again();
  };
  const replay = async (order) => {
    const r = await call("system/async/dead/replay", { method: "POST", json: order });
    const failed = r.failed?.length ?? 0;
    finish(`${count(r.replayed, "request")} in the queue again${failed ? `; ${failed} stayed: ${plain(r.failed[0].error)}` : ""}.`);
  };
  const older = async () => {
    const next = await call(query("system/async/dead", { limit: String(page), from: String(letters.at(-1).sequence + 1) }));
    setMore((m) => [...m, ...next]);
  };
  return html`<div class="head"><h1>Queue</h1><p class="totals">Requests to <code>/async-function/NAME</code> are stored, answered later, and tried again if they fail.</p></div>
    <${Failure} of=${failure} />
    ${status.problem && html`<div class="box bad" role="alert"><span aria-hidden="true">✕</span><p>${plain(status.problem)}</p></div>`}
    <dl class="tiles"><div class="tile"><dt>Waiting</dt><dd>${number(status.queued)}</dd></div><div class="tile"><dt>In flight</dt><dd>${number(status.inFlight)}</dd></div>
      <div class="tile"><dt>Best effort</dt><dd>${number(status.bestEffort)}</dd></div><div class="tile"><dt>Dead letters</dt><dd>${number(status.dead)}</dd></div>
      <div class="tile"><dt>Stored</dt><dd>${bytes(status.bytes)}</dd></div></dl>
    ${status.functions?.length > 0 && html`<section class="card"><h2>Waiting by function</h2><div class="scroll" tabindex="0" role="region" aria-label="Waiting by function"><table class="tight"><thead><tr><th>Function</th><th class="n">Waiting</th><th class="n">In flight</th><th class="n">Best effort</th></tr></thead>
      <tbody>${status.functions.map((f) => html`<tr key=${f.name}><td>${plain(f.name)}</td><td class="n">${number(f.queued)}</td><td class="n">${number(f.inFlight)}</td><td class="n">${number(f.bestEffort)}</td></tr>`)}</tbody></table></div></section>`}
    <section class="card"><div class="card-head"><h2>Dead letters</h2>${letters.length > 0 && html`<span class="row">
        <button type="button" class="small" onClick=${() => setDoing({ what: "replay all" })}>Replay all</button>
        <button type="button" class="small" onClick=${() => setDoing({ what: "remove all" })}>Remove all …</button></span>`}</div>
      <p class="quiet" role="status">${said}</p>
      ${letters.length ? html`<ul class="letters">${letters.map((d) => html`<${Letter} key=${d.sequence} d=${d} act=${setDoing} />`)}</ul>`
        : html`<p class="empty">No dead letter. A request that fails for good is kept here with the reason, until somebody replays or removes it.</p>`}
      ${letters.length > 0 && letters.length < status.dead && html`<button type="button" class="small" onClick=${older}>Show more</button>`}</section>
    ${doing?.what === "replay all" && html`<${Confirm} title="Replay all dead letters?" label="Replay all" close=${() => setDoing(null)} act=${() => replay({ all: true })}>
      <p>${count(status.dead, "request")} would be tried again.</p><//>`}
    ${doing?.what === "remove all" && html`<${Confirm} title="Remove all dead letters?" label="Remove all" danger close=${() => setDoing(null)}
      act=${async () => { const r = await call("system/async/dead", { method: "DELETE" }); finish(`${count(r.purged, "dead letter")} removed.`); }}>
      <p>${count(status.dead, "request")} would be lost.</p><//>`}
    ${doing?.what === "replay" && html`<${Confirm} title="Replay the request?" label="Replay" close=${() => setDoing(null)} act=${() => replay({ sequences: [doing.d.sequence] })}>
      <p>The request to <b>${plain(doing.d.function)}</b> would be tried again.</p><//>`}
    ${doing?.what === "remove" && html`<${Confirm} title="Remove the dead letter?" label="Remove" danger close=${() => setDoing(null)}
      act=${async () => { await call(`system/async/dead/${doing.d.sequence}`, { method: "DELETE" }); finish(`Dead letter ${doing.d.sequence} removed.`); }}>
      <p>The request to <b>${plain(doing.d.function)}</b> would be lost.</p><//>`}
    ${doing?.what === "show" && html`<${Show} d=${doing.d} close=${() => setDoing(null)} />`}`;
}

const Letter = ({ d, act }) => html`<li><div class="grow"><b>${plain(d.function) || "(no function)"}</b> <span class="quiet">no. ${d.sequence}, ${count(d.attempts, "try", "tries")}, given up ${ago(Date.now() / 1000 - Date.parse(d.time) / 1000)} ago, ${bytes(d.size)}</span>
    <p>${plain(d.detail || d.reason)}</p></div>
  <span class="row">${[["show", "Show"], ["replay", "Replay"], ["remove", "Remove"]].map(([what, label]) => html`
    <button type="button" key=${what} class="small" aria-label=${`${label} dead letter ${d.sequence}`} onClick=${() => act({ what, d })}>${label}</button>`)}</span></li>`;

function decode(base64) {
  try {
    return new TextDecoder().decode(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)));
  } catch {
    return base64;
  }
}

function Show({ d, close }) {
  const { data, failure } = useLoad((signal) => call(`system/async/dead/${d.sequence}`, { signal }), [d.sequence]);
  const r = data?.request, body = r ? decode(r.Body ?? r.body ?? "") : data?.raw ? decode(data.raw) : "";
  return html`<${Dialog} title=${`Dead letter ${d.sequence}`} close=${close}><${Failure} of=${failure} />
    <dl class="pairs"><dt>Function</dt><dd>${plain(d.function)}</dd><dt>Reason</dt><dd>${plain(d.reason)}</dd>${d.detail && html`<dt>Detail</dt><dd>${plain(d.detail)}</dd>`}
      <dt>Accepted</dt><dd>${dateTime(d.queued)}</dd><dt>Given up</dt><dd>${dateTime(d.time)}</dd>${d.status > 0 && html`<dt>Last status</dt><dd>${d.status}</dd>`}
      ${d.callback && html`<dt>Callback</dt><dd>${plain(d.callback)}</dd>`}${d.callId && html`<dt>Call</dt><dd><code>${plain(d.callId)}</code></dd>`}</dl>
    ${data && html`<h3>Body</h3><pre class="body" tabindex="0"><code>${plain(body.slice(0, 20000)) || "(empty)"}</code></pre>`}
    <div class="row end"><button type="button" class="primary" onClick=${close}>Close</button></div><//>`;
}
