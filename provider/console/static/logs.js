// The output of a function's instances, followed as it comes.

import { html, useEffect, useRef, useState, Failure } from "./parts.js";
import { explain, Problem, query, raw } from "./api.js";
import { clock, plain } from "./format.js";

const maxLines = 500;

/** Calls each for every line of JSON of a stream until it ends. */
async function lines(response, each) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const whole = (rest + value).split("\n");
    rest = whole.pop();
    const parsed = [];
    for (const line of whole) {
      try {
        if (line.trim()) parsed.push(JSON.parse(line));
      } catch { /* A line that is no message says nothing. */ }
    }
    if (parsed.length) each(parsed);
  }
}

export function Logs({ namespace, name }) {
  const [list, setList] = useState([]), [follow, setFollow] = useState(true), [failure, setFailure] = useState(null), [over, setOver] = useState(false);
  const box = useRef(null), number = useRef(0), pending = useRef([]);
  useEffect(() => {
    const stop = new AbortController();
    setList([]);
    setFailure(null);
    setOver(false);
    pending.current = [];
    // Lines that come fast are shown together.
    const show = setInterval(() => {
      if (!pending.current.length) return;
      const more = pending.current.slice(-maxLines);
      pending.current = [];
      setList((old) => [...old, ...more].slice(-maxLines));
    }, 200);
    (async () => {
      const response = await raw(query("system/logs", { name, namespace, tail: "200", follow: String(follow) }), { signal: stop.signal });
      if (!response.ok) throw new Problem(explain(response.status, await response.text()), response.status);
      await lines(response, (more) => pending.current.push(...more.map((m) => ({ id: number.current++, at: m.timestamp, instance: m.instance, text: m.text }))));
      if (!stop.signal.aborted) setOver(true);
    })().catch((e) => !stop.signal.aborted && setFailure(e));
    return () => {
      stop.abort();
      clearInterval(show);
    };
  }, [namespace, name, follow]);
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [list, follow]);
  return html`<section class="card"><div class="card-head"><h2>Logs</h2>
      <label class="check"><input type="checkbox" checked=${follow} onChange=${(e) => setFollow(e.target.checked)} /> Follow</label></div>
    <${Failure} of=${failure} />
    ${list.length ? html`<div class="log" ref=${box} tabindex="0" role="log" aria-label="Log lines">${list.map((l) => html`<div key=${l.id}><time>${clock(l.at)}</time> <span class="instance">${plain(l.instance)}</span> ${plain(l.text)}</div>`)}</div>`
      : html`<p class="empty">${failure ? "" : "The function has written nothing yet. What its instances print appears here."}</p>`}
    ${over && follow && html`<p class="quiet">The stream has ended. <button type="button" class="small" onClick=${() => { setFollow(false); setTimeout(() => setFollow(true)); }}>Read again</button></p>`}
  </section>`;
}
