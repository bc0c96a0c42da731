// The machines, what they have, and which instances hold it.

import { html, memo, functionLink } from "./parts.js";
import { useLive } from "./live.js";
import { bytes, config, cores, count, plain } from "./format.js";

export function Nodes() {
  const nodes = useLive((state) => state.nodes), ready = useLive((state) => state.functions !== null);
  if (!ready) return html`<h1>Nodes</h1><p class="quiet" role="status">Loading …</p>`;
  return html`<div class="head"><h1>Nodes</h1><p class="totals">${count(nodes.length, "node")}</p></div>
    ${nodes.length ? html`<div class="nodes">${nodes.map((n) => html`<${Node} key=${n.name} n=${n} />`)}</div>`
      : html`<p class="empty">The provider reports no node. On a cluster they appear when their kubelets report what they have.</p>`}`;
}

function Meter({ label, name = label, used, total, format, parts }) {
  const percent = total > 0 ? Math.min(100, (used / total) * 100) : 0;
  return html`<div class="meter"><span class="what">${label}</span>
    <span class="track" role="img" aria-label=${`${name}: ${format(used)} of ${format(total)} held`}>
      ${parts ? parts.map((p) => html`<i key=${p.key} class="part" title=${p.title} style=${{ width: `${total > 0 ? (p.value / total) * 100 : 0}%` }}></i>`) : html`<i style=${{ width: `${percent}%` }}></i>`}</span>
    <span class="figure">${format(used)} <span class="quiet">of ${format(total)}</span></span></div>`;
}

const Node = memo(({ n }) => {
  const cpu = n.cpu_millicores ?? {}, memory = n.memory_bytes ?? {}, list = n.instances ?? [];
  return html`<section class="card node"><div class="card-head"><h2>${plain(n.name)}</h2><span class="quiet">${count(list.length, "instance")}</span></div>
    <${Meter} label="CPU" used=${(cpu.total ?? 0) - (cpu.free ?? 0)} total=${cpu.total ?? 0} format=${cores}
      parts=${list.filter((i) => i.cpu_millicores > 0 && i.state !== "parked").map((i, k) => ({ key: k, value: i.cpu_millicores, title: `${plain(i.function)} ${config(i)}` }))} />
    <${Meter} label="Memory" used=${(memory.total ?? 0) - (memory.free ?? 0)} total=${memory.total ?? 0} format=${bytes} />
    ${(n.gpus ?? []).map((g, k) => html`<div key=${g.uuid} title=${plain(`${g.kind ?? ""} ${g.uuid}`)}>
      <${Meter} label=${`GPU ${k}`} used=${g.gpu_pct.total - g.gpu_pct.free} total=${g.gpu_pct.total} format=${(v) => `${v} %`} />
      <${Meter} label="" name=${`Memory of GPU ${k}`} used=${g.memory_bytes.total - g.memory_bytes.free} total=${g.memory_bytes.total} format=${bytes} />
      ${g.lost && html`<p class="wrong">✕ ${plain(g.lost)}</p>`}</div>`)}
    ${list.length ? html`<ul class="on-node">${list.map((i, k) => html`<li key=${k}><a href=${functionLink(i.namespace, i.function)}>${plain(i.function)}</a>
      <span>${config(i)}</span> <span class="quiet">${bytes(i.memory_bytes)}${i.state && i.state !== "ready" ? `, ${plain(i.state)}` : ""}</span></li>`)}</ul>`
      : html`<p class="empty">No instance runs here.</p>`}</section>`;
});
