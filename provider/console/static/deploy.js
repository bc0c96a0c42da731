// From a file to a function: upload, verdict, objective, deployment.

import { html, useEffect, useRef, useState, Confirm, Failure, LogSlider, functionLink } from "./parts.js";
import { Problem, call, query, unchanged, upload } from "./api.js";
import { keyOf, live, refresh, useLive } from "./live.js";
import { bytes, config, cores, duration, ms, nameOf, number, plain, rate } from "./format.js";

const names = /^[a-z]([-a-z0-9]*[a-z0-9])?$/;

export function Deploy() {
  const [name, setName] = useState(""), [file, setFile] = useState(null), [progress, setProgress] = useState(null), [result, setResult] = useState(null);
  const [failure, setFailure] = useState(null), [own, setOwn] = useState(false), [image, setImage] = useState("");
  const running = useRef(null);
  useEffect(() => () => running.current?.stop(), []);
  const take = async (chosen) => {
    if (!chosen) return;
    running.current?.stop();
    const to = nameOf(chosen.name);
    setName(to);
    setFile(chosen);
    setResult(null);
    setFailure(null);
    setProgress(0);
    const sent = upload(query("system/upload", { name: to }), chosen, setProgress);
    running.current = sent;
    try {
      const answer = await sent.done;
      if (running.current === sent) setResult(answer);
    } catch (e) {
      if (running.current === sent) setFailure(e);
    }
    if (running.current === sent) setProgress(null);
  };
  const ready = result ? result.check?.ok !== false : own && image.trim() !== "";
  return html`<div class="head"><h1>Deploy</h1></div>
    <ol class="steps">
      <li class="card"><h2>A model</h2>
        <${Drop} take=${take} disabled=${progress !== null} />
        ${file && html`<p><b>${plain(file.name)}</b> <span class="quiet">${bytes(file.size)}</span></p>`}
        ${progress !== null && html`<div class="row"><progress max="1" value=${progress} aria-label="Upload"></progress>
          <span role="status">${progress < 1 ? `${Math.floor(progress * 100)} % sent` : "Reading the model and predicting its times. A large one takes a minute …"}</span>
          <button type="button" class="small" onClick=${() => { running.current?.stop(); running.current = null; setProgress(null); setFile(null); }}>Stop</button></div>`}
        <${Failure} of=${failure} />
        <details open=${own} onToggle=${(e) => setOwn(e.target.open)}><summary>Or the name of an image that is there already</summary>
          <label class="field">Image<input value=${image} placeholder="resnet-50:latest" spellcheck="false" onInput=${(e) => {
          setImage(e.target.value);
          setName(nameOf(e.target.value.split("/").pop().split(":")[0]));
        }} /></label></details></li>
      ${result && html`<li class="card"><h2>Verdict</h2><${Verdict} check=${result.check} /></li>`}
      ${ready && html`<li class="card"><h2>Objective</h2><${Objective} key=${result?.image ?? "own"} name=${name} setName=${setName} image=${result?.image ?? image.trim()} check=${result?.check} /></li>`}
    </ol>`;
}

function Drop({ take, disabled }) {
  const [over, setOver] = useState(false);
  const drop = (e) => {
    e.preventDefault();
    setOver(false);
    if (!disabled) take(e.dataTransfer.files[0]);
  };
  return html`<label class=${over ? "drop over" : "drop"} onDragOver=${(e) => { e.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${drop}>
    <input type="file" class="sr" accept=".onnx,.zip,.tar" disabled=${disabled} onChange=${(e) => { take(e.target.files[0]); e.target.value = ""; }} />
    <span class="drop-sign" aria-hidden="true">⇧</span><b>Drop a file here, or choose one</b>
    <span class="quiet">An ONNX model, or a .zip or .tar of a bundle's folder</span></label>`;
}

const tensor = (t) => `${t.name} ${t.type ?? t.datatype ?? ""} [${(t.shape ?? []).map((d) => d < 0 ? "any" : d).join(", ")}]`;

function Verdict({ check: c }) {
  if (!c) return html`<p>The file was taken.</p>`;
  const sentences = c.sentences ?? (c.sentence ? [c.sentence] : []);
  return html`<div class=${`box ${c.ok === false ? "bad" : "good"}`} role="status"><span class="sign" aria-hidden="true">${c.ok === false ? "✕" : "✓"}</span>
      <div>${sentences.length ? sentences.map((s) => html`<p key=${s}>${plain(s)}</p>`) : html`<p>${c.ok === false ? "This model cannot be served as it is." : "This model can be served."}</p>`}</div></div>
    <dl class="pairs">${c.inputs?.length > 0 && html`<dt>Inputs</dt><dd>${c.inputs.map((t) => html`<div key=${t.name}><code>${plain(tensor(t))}</code></div>`)}</dd>`}
      ${c.outputs?.length > 0 && html`<dt>Outputs</dt><dd>${c.outputs.map((t) => html`<div key=${t.name}><code>${plain(tensor(t))}</code></div>`)}</dd>`}
      ${typeof c.reach === "string" && c.reach && html`<dt>Reach</dt><dd>${plain(c.reach)}</dd>`}</dl>`;
}

/** The cheapest config of a check that about meets an objective, null if there is none. */
function cheapest({ configs, smallest_slo_ms: smallest }, slo) {
  const fastest = Math.min(...configs.map((c) => c.exec_ms)), reserve = Math.max(1, (smallest || fastest) / fastest);
  // A request may come while a batch runs, so that a batch may take half of the objective.
  const fitting = configs.filter((c) => c.exec_ms * reserve * (c.batch > 1 ? 2 : 1) <= slo && c.rate_per_s > 0);
  return fitting.length ? fitting.reduce((a, b) => b.core_ms_per_request < a.core_ms_per_request ? b : a) : null;
}

function Objective({ name, setName, image, check }) {
  const [slo, setSLO] = useState(Math.max(200, Math.ceil((check?.smallest_slo_ms ?? 0) * 3))), [asking, setAsking] = useState(""), [failure, setFailure] = useState(null), [busy, setBusy] = useState(false);
  // exists is the revision that the user sees, undefined if there is no such function.
  const valid = names.test(name) && name.length <= 63, exists = useLive((state) => state.functions?.get(keyOf(state.namespace || state.defaultNamespace, name))?.revision?.asked);
  const deploy = async (seen) => {
    const deployment = { service: name, image, namespace: live.namespace || undefined, annotations: { "com.openfaas.slo.latency": duration(slo) } };
    await call("system/functions", { method: "POST", json: deployment, headers: unchanged(seen) });
    await refresh();
    location.hash = functionLink(live.namespace || live.defaultNamespace, name);
  };
  const submit = async (e) => {
    e.preventDefault();
    if (exists) {
      setAsking(exists);
      return;
    }
    setBusy(true);
    setFailure(null);
    try {
      await deploy("");
    } catch (e2) {
      refresh(); // The function may have appeared meanwhile.
      setFailure(e2 instanceof Problem ? e2 : { message: String(e2.message) });
      setBusy(false);
    }
  };
  return html`<form onSubmit=${submit}>
    <label class="field">Name of the function<input required value=${name} spellcheck="false" aria-invalid=${name && !valid ? "true" : "false"} onInput=${(e) => setName(e.target.value)} />
      ${name && !valid && html`<span class="wrong">Small letters, digits and hyphens; it begins with a letter and has at most 63.</span>`}</label>
    <${LogSlider} id="objective" label="Answer 99 % within" value=${slo} min=${1} max=${10000} format=${ms} change=${setSLO} />
    <${Price} check=${check} slo=${slo} />
    <${Failure} of=${failure} />
    <div class="row"><button class="primary" disabled=${!valid || busy}>${busy ? "Deploying …" : exists ? "Deploy a new revision" : "Deploy"}</button>
      ${exists && html`<span class="quiet">There is a function ${plain(name)} already. It keeps serving until the new revision carries the load.</span>`}</div>
    ${asking && html`<${Confirm} title="Replace the function?" label="Deploy" act=${() => deploy(asking)} close=${() => setAsking("")}>
      <p><b>${plain(name)}</b> gets a new revision with the image <code>${plain(image)}</code> and an objective of ${ms(slo)}. Its other annotations are replaced, too.</p><//>`}
  </form>`;
}

/** What an objective costs, from the configs that the check lists. */
function Price({ check, slo }) {
  if (!check?.configs?.length) return html`<p class="quiet">A longer objective is cheaper: larger batches cost less per request. See “What if” on the function's page once it is deployed.</p>`;
  const best = cheapest(check, slo);
  if (!best) return html`<p class="box warn"><span class="sign" aria-hidden="true">▲</span> <span>No size of an instance answers within ${ms(slo)} here; the smallest objective is about ${ms(check.smallest_slo_ms)}. Move the slider to the right.</span></p>`;
  return html`<div class="box good"><span class="sign" aria-hidden="true">✓</span><div><p>An instance <b>${config(best)}</b> carries about ${rate(best.rate_per_s)} for ${cores(best.cpu_millicores)}: ${number(best.core_ms_per_request)} core·ms a request. These figures are estimated, for the model alone without HTTP.
    A longer objective is cheaper, because larger batches are.</p></div></div>`;
}
