// The card of a gradual rollout on a function's page: both sides, what it waits for, and two buttons.

import { html, useCallback, useEffect, useState, useEvery, Confirm } from "./parts.js";
import { call, query } from "./api.js";
import { number, percent, plain } from "./format.js";

const side = (s) => (s.answered > 0 ? [percent(100 * (1 - s.missed / s.answered)), percent((100 * s.failed) / s.answered)] : ["–", "–"]);

export function Rollout({ f }) {
  const [state, setState] = useState(null), [asked, setAsked] = useState("");
  const path = query(`system/rollout/${encodeURIComponent(f.name)}`, { namespace: f.namespace });
  const load = useCallback(() => call(path).then(setState, () => setState(null)), [path]);
  useEffect(() => { load(); }, [load]);
  useEvery(2000, load, [load]);
  const r = state?.rollout;
  if (!r) return null;
  const act = () => call(path, { method: "POST", json: { action: asked } }).then(setState);
  const row = (revision, image, role, share, s) => html`<tr><td>${String(revision)}</td><td>${plain(image)}</td><td>${role}</td><td class="n">${share} %</td>
    <td class="n">${number(s.answered)}</td>${side(s).map((text) => html`<td class="n">${text}</td>`)}</tr>`;
  return html`<section class="card"><div class="card-head"><h2>Rollout</h2>
      <span><button type="button" class="small" disabled=${!r.ready} onClick=${() => setAsked("promote")}>Promote …</button> ${" "}
      <button type="button" class="small" onClick=${() => setAsked("abort")}>Abort …</button></span></div>
    ${asked && html`<${Confirm} title=${asked === "promote" ? "Promote the candidate" : "Abort the rollout"} label=${asked === "promote" ? "Promote" : "Abort"}
      danger=${asked === "abort"} act=${act} close=${() => setAsked("")}><p>${asked === "promote"
        ? `Revision ${r.revision} takes over from revision ${state.revision}.` : `Revision ${r.revision} is removed, and revision ${state.revision} answers all requests.`}</p><//>`}
    <div class="scroll" tabindex="0" role="region" aria-label="Both revisions"><table class="tight"><thead><tr><th>Revision</th><th>Image</th><th>Role</th>
      <th class="n">Share</th><th class="n">Requests</th><th class="n">In time</th><th class="n">Failed</th></tr></thead>
      <tbody>${row(state.revision, state.image, "present", 100 - r.share_pct, r.present)}${row(r.revision, r.image, "candidate", r.share_pct, r.candidate)}</tbody></table></div>
    <p class="quiet">${plain(`${r.phase}: ${r.why}.`)}${r.compared > 0 && ` Of ${r.compared} mirrored requests, ${r.different} were answered differently.`}</p></section>`;
}
