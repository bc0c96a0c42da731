// Sends a request to a function and shows the answer: what it says, which variant gave it, and how long it took.

import { html, useEffect, useMemo, useRef, useState, useLoad, Copy, Failure } from "./parts.js";
import { address, call, query, raw } from "./api.js";
import { Bars } from "./charts.js";
import { bytes, ms, number, plain, shell } from "./format.js";
import { live } from "./live.js";

/** The size of an input's row: the shape without the batch, free dimensions as 1. */
const rowShape = (input) => input.shape.slice(1).map((d) => (d > 0 ? d : 1));
const elements = (input) => rowShape(input).reduce((a, b) => a * b, 1);

/** Zeros, or empty texts, in the shape of one row. */
function sample(input, shape = rowShape(input)) {
  if (!shape.length) return /BYTES|STRING/.test(input.type ?? input.datatype ?? "") ? "" : /BOOL/.test(input.type ?? input.datatype ?? "") ? false : 0;
  return Array.from({ length: shape[0] }, () => sample(input, shape.slice(1)));
}

const isImage = (input) => {
  const s = input.shape;
  return s?.length === 4 && ((s[1] === 1 || s[1] === 3) && s[2] > 3 || (s[3] === 1 || s[3] === 3) && s[1] > 3);
};

/** Inputs with at most so many elements get a form, and those with at most so many a sample in the JSON. */
const formLimit = 64, sampleLimit = 4096;

/** An image as a tensor in the input's shape, its colours from 0 to 1, or to 255 for whole numbers. */
async function tensorOf(file, input) {
  const last = input.shape[3] === 1 || input.shape[3] === 3, [channels, height, width] = last ? [input.shape[3], input.shape[1], input.shape[2]] : input.shape.slice(1);
  const image = await createImageBitmap(file), canvas = document.createElement("canvas");
  canvas.width = width > 0 ? width : image.width;
  canvas.height = height > 0 ? height : image.height;
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  const { data } = pen.getImageData(0, 0, canvas.width, canvas.height), whole = /INT/.test(input.type ?? input.datatype ?? "");
  const value = (x, y, c) => {
    const at = (y * canvas.width + x) * 4;
    const v = channels === 1 ? 0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2] : data[at + c];
    return whole ? Math.round(v) : Math.round((v / 255) * 10000) / 10000;
  };
  const rows = (each) => Array.from({ length: canvas.height }, (_, y) => Array.from({ length: canvas.width }, (_, x) => each(x, y)));
  const all = Array.from({ length: channels }, (_, c) => c);
  return last ? rows((x, y) => all.map((c) => value(x, y, c))) : all.map((c) => rows((x, y) => value(x, y, c)));
}

/** A body of JSON by rows or, if the inputs are sent whole, by columns, as docs/payloads.md has it. */
function bodyOf(inputs, whole, value) {
  const named = Object.fromEntries(inputs.map((i) => [i.name, value(i)]));
  return JSON.stringify(whole ? { inputs: named } : { instances: [inputs.length === 1 ? named[inputs[0].name] : named] });
}

/** Whether inputs have no rows: one is a scalar, or has a first dimension that is no batch. */
const areWhole = (inputs) => inputs.some((i) => i.shape && (!i.shape.length || i.shape[0] > 1));

function waysOf(f, inputs) {
  const ways = [];
  if (f.kind === "program") return [["json", "Text or JSON"], ["file", "A file"]];
  if (inputs.length && inputs.every((i) => i.shape && elements(i) <= formLimit)) ways.push(["form", "Form"]);
  return [...ways, ["file", inputs.length === 1 && isImage(inputs[0]) ? "An image" : "A file"], ["json", "JSON"]];
}

/** A form for the model's inputs. If they are not known, it asks an instance; it starts one only if the user says so. */
export function Try({ f }) {
  const known = f.inputs || f.kind === "program", [asked, ask] = useState(false), last = useRef(null);
  const may = asked || (f.instances ?? []).some((i) => i.ready > 0);
  const { data, failure } = useLoad(async (signal) => {
    if (f.kind === "program") return {};
    const [model, status] = await Promise.all([
      known || !may ? {} : call(`${pathOf(f)}/v2/models/${encodeURIComponent(f.name)}`, { signal }),
      call(query(`system/function/${encodeURIComponent(f.name)}`, { namespace: f.namespace }), { signal }),
    ]);
    return { ...model, decodes: Boolean(status.annotations?.["com.openfaas.infer.image"]) };
  }, [f.name, f.revision?.asked, Boolean(known), may]);
  // The inputs stay while a new revision starts.
  last.current = f.kind === "program" || failure ? f.inputs ?? last.current ?? [] : f.inputs ?? data?.inputs ?? last.current;
  if (last.current && (data || failure)) {
    const whole = areWhole(last.current), inputs = whole ? last.current.map((i) => ({ ...i, shape: [1, ...i.shape] })) : last.current;
    return html`<${Form} key=${`${f.name} ${Boolean(data)}`} f=${f} inputs=${inputs} whole=${whole} decodes=${Boolean(data?.decodes)} />`;
  }
  return html`<section class="card"><h2>Try it</h2>${may || !data ? html`<p class="quiet" role="status">Asking the model for its inputs …</p>`
    : html`<p>No instance has a share of the CPU now, so the model's inputs are not known yet.</p>
      <p><button type="button" class="primary" onClick=${() => ask(true)}>Ask the model (this starts or wakes an instance)</button></p>`}</section>`;
}

// The default namespace may be left out.
const pathOf = (f) => `function/${encodeURIComponent(f.name)}${f.namespace && f.namespace !== live.defaultNamespace ? `.${encodeURIComponent(f.namespace)}` : ""}`;

function Form({ f, inputs, whole, decodes }) {
  const ways = useMemo(() => waysOf(f, inputs), [f.kind, JSON.stringify(inputs)]);
  const [way, setWay] = useState(ways[0][0]), [values, setValues] = useState(() => Object.fromEntries(inputs.map((i) => [i.name, i.shape ? sample(i) : 0])));
  const [text, setText] = useState(() => f.kind === "program" ? "" : bodyOf(inputs, whole, small));
  const [file, setFile] = useState(null), [wrong, setWrong] = useState({}), [answer, setAnswer] = useState(null), [busy, setBusy] = useState(false);
  const stop = useRef(null);
  useEffect(() => () => stop.current?.abort(), []);
  const path = pathOf(f);
  // Where the function decodes no images, the page makes a tensor of one.
  const converts = way === "file" && !decodes && inputs.length === 1 && isImage(inputs[0]) && file?.type.startsWith("image/");
  const body = way === "file" ? file : way === "form" ? bodyOf(inputs, whole, (i) => values[i.name]) : text;
  const type = way === "file" ? file?.type || "application/octet-stream" : /^\s*[[{]/.test(body) ? "application/json" : "text/plain";
  const send = async (e) => {
    e.preventDefault();
    stop.current?.abort();
    stop.current = new AbortController();
    setBusy(true);
    let began = performance.now();
    try {
      const tensor = converts && await tensorOf(file, inputs[0]), made = converts ? bodyOf(inputs, whole, () => tensor) : body;
      began = performance.now();
      const response = await raw(path, { method: "POST", body: made, headers: { "Content-Type": converts ? "application/json" : type }, signal: stop.current.signal });
      const blob = await response.blob();
      const took = performance.now() - began;
      setAnswer({ took, status: response.status, ok: response.ok, headers: response.headers, size: blob.size,
        text: /image|octet-stream|zip/.test(response.headers.get("Content-Type") ?? "") ? null : await blob.slice(0, 100000).text() });
    } catch (e2) {
      if (e2.name !== "AbortError") setAnswer({ failure: e2 });
    }
    setBusy(false);
  };
  const ready = !busy && (way === "file" ? file : way === "form" ? !Object.values(wrong).some(Boolean) : true);
  const data = converts ? ["-d", "@tensor.json"] : way === "file" ? ["--data-binary", `@${file?.name ?? "FILE"}`] : ["-d", body.length > 2000 ? "@request.json" : body];
  const curl = ["curl", "-sS", address(path), "-H", `Content-Type: ${converts ? "application/json" : type}`, ...data].map(shell).join(" ");
  return html`<div class="two"><section class="card"><h2>Request</h2>
      <div class="segmented" role="group" aria-label="Kind of request">${ways.map(([id, label]) => html`<button type="button" key=${id} aria-pressed=${way === id ? "true" : "false"} onClick=${() => setWay(id)}>${label}</button>`)}</div>
      <form onSubmit=${send}>
        ${way === "form" && inputs.map((i) => html`<${Input} key=${i.name} of=${i} value=${values[i.name]}
          change=${(v, bad) => { setWrong((w) => ({ ...w, [i.name]: bad })); if (!bad) setValues((old) => ({ ...old, [i.name]: v })); }} />`)}
        ${way === "json" && html`<label class="field">Body<textarea rows="10" spellcheck="false" value=${text} onInput=${(e) => setText(e.target.value)}></textarea></label>`}
        ${way === "file" && html`<${FileInput} input=${inputs[0]} decodes=${decodes} file=${file} choose=${setFile} />`}
        <div class="row"><button class="primary" disabled=${!ready}>${busy ? "Waiting …" : "Send"}</button></div>
      </form>
      <h3>The same in a terminal</h3><${Copy} text=${curl} /></section>
    <section class="card" aria-live="polite"><h2>Answer</h2><${Answer} of=${answer} /></section></div>`;
}

/** A sample that fits into a text field. */
const small = (input) => input.shape && elements(input) <= sampleLimit ? sample(input) : "…";

function Input({ of: i, value, change }) {
  const type = i.type ?? i.datatype ?? "", shape = rowShape(i), [text, setText] = useState(JSON.stringify(value)), [bad, setBad] = useState("");
  const label = html`<b>${plain(i.name)}</b> <span class="quiet">${plain(type)}${shape.length ? ` [${shape.join(", ")}]` : ""}</span>`;
  const isText = /BYTES|STRING/.test(type);
  if (shape.length <= 1 && (shape[0] ?? 1) <= 16 && !isText) {
    const list = Array.isArray(value) ? value : [value];
    const put = (n, v) => change(Array.isArray(value) ? list.map((x, k) => k === n ? v : x) : v, false);
    return html`<fieldset><legend>${label}</legend><div class="numbers">${list.map((v, n) => html`<input key=${n} type="number" step="any" required value=${v} aria-label=${`${i.name} ${n + 1}`}
      onInput=${(e) => e.target.value !== "" && put(n, Number(e.target.value))} />`)}</div></fieldset>`;
  }
  const put = (t) => {
    setText(t);
    try {
      const v = JSON.parse(t);
      setBad("");
      change(v, false);
    } catch (e) {
      setBad(e.message);
      change(null, true);
    }
  };
  return html`<label class="field">${label}<textarea rows="4" spellcheck="false" value=${text} aria-invalid=${bad ? "true" : "false"} onInput=${(e) => put(e.target.value)}></textarea>
    ${bad && html`<span class="wrong">This is no JSON: ${bad}</span>`}</label>`;
}

function FileInput({ input, decodes, file, choose }) {
  const canvas = useRef(null), [shown, setShown] = useState(false);
  useEffect(() => {
    setShown(false);
    if (!file?.type.startsWith("image/")) return;
    createImageBitmap(file).then((image) => {
      const at = canvas.current;
      if (!at) return;
      const scale = Math.min(1, 240 / Math.max(image.width, image.height));
      [at.width, at.height] = [Math.max(1, image.width * scale), Math.max(1, image.height * scale)];
      at.getContext("2d").drawImage(image, 0, 0, at.width, at.height);
      setShown(true);
    }, () => {});
  }, [file]);
  return html`<label class="field">${input && isImage(input) ? `An image; ${decodes ? "the function" : "this page"} scales it to ${input.shape.slice(2).filter((d) => d > 3).join(" × ") || "its size"}` : "An image, a .npy file, or any other body"}
      <input type="file" onChange=${(e) => choose(e.target.files[0] ?? null)} /></label>
    ${file && html`<p class="quiet">${plain(file.name)}, ${bytes(file.size)}</p>`}
    <canvas ref=${canvas} class=${shown ? "preview" : "preview none"} role="img" aria-label="The chosen image"></canvas>
    ${input && isImage(input) && !decodes && html`<p class="quiet">The model gets colours from 0 to 1. Clients may send images as they are if the deployment has the annotation <code>com.openfaas.infer.image</code>.</p>`}`;
}

/** The numbers of the first row of an answer, if it is one list of numbers. */
function scores(text) {
  try {
    const answer = JSON.parse(text), all = answer.predictions ?? answer.outputs;
    let row = Array.isArray(all) ? all[0]?.data ?? all[0] : Object.values(all ?? {})[0]?.[0];
    while (Array.isArray(row) && row.length === 1 && Array.isArray(row[0])) [row] = row;
    return Array.isArray(row) && row.length > 1 && row.length <= 2000 && row.every((v) => typeof v === "number") ? row : null;
  } catch {
    return null;
  }
}

function Answer({ of: a }) {
  if (!a) return html`<p class="empty">Send a request. The answer appears here, with the variant of the model that gave it and the time it took.</p>`;
  if (a.failure) return html`<${Failure} of=${a.failure} />`;
  const row = a.text ? scores(a.text) : null, header = (name) => a.headers.get(name);
  const best = row && row.map((value, i) => ({ label: `Output ${i}`, value })).sort((x, y) => y.value - x.value).slice(0, 5);
  let pretty = a.text;
  try {
    if (a.text.length < 5000) pretty = JSON.stringify(JSON.parse(a.text), null, 1).replace(/\[\s*([-\d.,e+\s]+?)\s*\]/g, (_, x) => `[${x.replace(/\s+/g, " ")}]`);
  } catch { /* It is no JSON, and is shown as it is. */ }
  return html`<dl class="tiles small"><div class="tile"><dt>Status</dt><dd><span aria-hidden="true">${a.ok ? "✓" : "✕"}</span> ${a.status}</dd></div>
      <div class="tile"><dt>Time here</dt><dd>${ms(a.took)}</dd></div>
      ${header("X-Duration-Seconds") && html`<div class="tile"><dt>In the provider</dt><dd>${ms(Number(header("X-Duration-Seconds")) * 1000)}</dd></div>`}
      ${header("X-Infer-Variant") && html`<div class="tile"><dt>Variant</dt><dd>${plain(header("X-Infer-Variant"))}</dd></div>`}
      ${header("X-Infer-Revision") && html`<div class="tile"><dt>Revision</dt><dd>${plain(header("X-Infer-Revision"))}</dd></div>`}</dl>
    ${best && best[0].value > 0 && html`<h3>Largest outputs</h3><${Bars} rows=${best} format=${(v) => number(v)} />`}
    ${a.text === null ? html`<p class="quiet">${bytes(a.size)} of ${plain(header("Content-Type"))}</p>` : html`<pre class="body" tabindex="0"><code>${plain(pretty) || "(empty)"}</code></pre>`}
    ${a.size > 100000 && html`<p class="quiet">The first 100 kB of ${bytes(a.size)}.</p>`}`;
}
