// The frame of the console: head, connection, and the view that the address names.

import { html, render, useEffect, useRef, useState, useLoad, Asked } from "./parts.js";
import { call } from "./api.js";
import { begin, choose, connect, live, set, useLive } from "./live.js";
import { clock, plain } from "./format.js";
import { Functions } from "./functions.js";

const later = {
  nodes: () => import("./nodes.js").then((m) => m.Nodes),
  queue: () => import("./queue.js").then((m) => m.Queue),
  deploy: () => import("./deploy.js").then((m) => m.Deploy),
  function: () => import("./function.js").then((m) => m.FunctionPage),
};

const links = [["", "Functions"], ["nodes", "Nodes"], ["queue", "Queue"], ["deploy", "Deploy"]];

function routeOf(hash) {
  const parts = hash.replace(/^#\/?/, "").split("/");
  const decode = (text) => {
    try {
      return decodeURIComponent(text ?? "");
    } catch {
      return text;
    }
  };
  return parts[0] === "function" ? { view: "function", namespace: decode(parts[1]), name: decode(parts[2]), part: parts[3] ?? "" } : { view: parts[0] };
}

function useRoute() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const listen = () => setHash(location.hash);
    addEventListener("hashchange", listen);
    return () => removeEventListener("hashchange", listen);
  }, []);
  return hash;
}

function App() {
  const hash = useRoute(), route = routeOf(hash), main = useRef(null), first = useRef(true);
  const page = `${route.view}/${route.namespace ?? ""}/${route.name ?? ""}`;
  useEffect(() => {
    if (route.view !== "function") document.title = `${links.find(([id]) => id === route.view)?.[1] ?? "Not found"} · faas-infer`;
    // A screen reader begins to read the new view.
    if (!first.current) main.current.focus();
    first.current = false;
  }, [page]);
  return html`<a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); main.current.focus(); }}>Skip to the content</a>
    <header class="top"><a class="brand" href="#/"><span class="mark" aria-hidden="true"></span>faas-infer</a>
      <nav aria-label="Views">${links.map(([id, label]) => html`<a key=${id} href=${`#/${id}`} aria-current=${route.view === id || id === "" && route.view === "function" ? "page" : undefined}>${label}</a>`)}</nav>
      <span class="grow"></span><${Namespaces} /><${Connection} /><${Theme} /></header>
    <${Notices} />
    <main id="main" ref=${main} tabindex="-1"><${View} key=${page} route=${route} /></main>
    <${Asked} /><${Foot} />`;
}

function View({ route }) {
  const [Part, setPart] = useState(null), [failed, setFailed] = useState(false);
  const load = later[route.view], connection = useLive((s) => s.connection);
  // What could not be loaded is asked for again when the provider answers again.
  useEffect(() => {
    if (Part || failed && connection !== "live") return;
    load?.().then((part) => setPart(() => part), () => setFailed(true));
  }, [load, connection]);
  if (route.view === "") return html`<${Functions} />`;
  if (!load) return html`<h1>Nothing here</h1><p><a href="#/">See all functions</a></p>`;
  if (failed && !Part) {
    return html`<div class="box bad" role="alert"><span class="sign" aria-hidden="true">✕</span><p class="grow">This part of the page could not be loaded.</p>
      <button type="button" class="small" onClick=${() => location.reload()}>Reload</button></div>`;
  }
  return Part ? html`<${Part} ...${route} />` : html`<p class="quiet">Loading …</p>`;
}

const words = {
  live: ["●", "Live"],
  connecting: ["◌", "Connecting"],
  polling: ["◐", "Every 5 s"],
  lost: ["✕", "No answer"],
};

function Connection() {
  const state = useLive((s) => s.connection), [sign, word] = words[state];
  return html`<span class=${`connection ${state}`} role="status" title=${state === "polling" ? "Live updates are not to be had now; the page asks every 5 s" : ""}><span aria-hidden="true">${sign}</span> ${word}</span>`;
}

/** What is wrong with the connection, and what happened meanwhile. */
function Notices() {
  const state = useLive((s) => s.connection), problem = useLive((s) => s.problem), notice = useLive((s) => s.notice), at = useLive((s) => s.lostAt);
  return html`<div class="notices" role="status">
    ${state === "lost" && html`<div class="box bad"><span class="sign" aria-hidden="true">✕</span><p class="grow">${plain(problem?.message)}
      ${live.functions && problem?.status !== 401 ? ` The figures are those of ${clock(at)}. The page tries again by itself.` : ""}</p>
      <button type="button" class="small" onClick=${problem?.status === 401 ? () => location.reload() : connect}>${problem?.status === 401 ? "Reload" : "Try now"}</button></div>`}
    ${notice && html`<div class="box info"><span class="sign" aria-hidden="true">i</span><p class="grow">${notice.text}${notice.at ? ` (${clock(notice.at)})` : ""}</p>
      <button type="button" class="small" onClick=${() => set({ notice: null })}>Close</button></div>`}</div>`;
}

function Namespaces() {
  const { data } = useLoad((signal) => call("system/namespaces", { signal }), []), now = useLive((s) => s.namespace);
  if (!Array.isArray(data) || data.length < 2) return null;
  return html`<label class="namespace"><span class="sr">Namespace</span><select value=${now || live.defaultNamespace} onChange=${(e) => choose(e.target.value)}>
    ${data.map((n) => html`<option key=${n} value=${n}>${plain(n)}</option>`)}</select></label>`;
}

const themes = { auto: "System", light: "Light", dark: "Dark" };

function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "auto");
  const change = (next) => {
    setTheme(next);
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("theme", next);
    } catch { /* Storage may be off. The choice then lasts as long as the page. */ }
  };
  return html`<label class="theme"><span class="sr">Colours</span><select value=${theme} onChange=${(e) => change(e.target.value)}>
    ${Object.entries(themes).map(([id, label]) => html`<option key=${id} value=${id}>${label}</option>`)}</select></label>`;
}

function Foot() {
  const version = useLive((s) => s.version);
  return html`<footer class="quiet">faas-infer ${plain(version)}</footer>`;
}

live.defaultNamespace = "openfaas-fn";
begin();
const app = document.getElementById("app");
app.replaceChildren();
render(html`<${App} />`, app);
