// Charts as SVG. They stretch with the page, and their labels are text beside them. Colours and strokes
// are in style.css.

import { html, useState, useMemo, memo } from "./parts.js";
import { clock, count, ms, number } from "./format.js";

const path = (points) => {
  let d = "", pen = "M";
  for (const [x, y] of points) {
    if (y === null) {
      pen = "M";
      continue;
    }
    d += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  }
  return d;
};

/** A line without axes for a table. label says what a screen reader reads. */
export const Sparkline = memo(({ values, label }) => {
  if (!values?.some((v) => v > 0)) return html`<span class="spark flat" role="img" aria-label=${`${label}: none`}></span>`;
  const top = Math.max(...values) * 1.1 || 1, last = values.length - 1;
  const points = values.map((v, i) => [(i / last) * 100, v === null ? null : 23 - (v / top) * 22]);
  return html`<svg class="spark" role="img" aria-label=${label} viewBox="0 0 100 24" preserveAspectRatio="none">
    <path class="line" d=${path(points)} vector-effect="non-scaling-stroke" /></svg>`;
});

/** The next round number: 1, 1.5, 2, 3, 4 … */
export function ceiling(n) {
  if (!(n > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((m) => m * power >= n) * power;
}

/**
 * A chart over time. areas are stacked; lines are not. Each is {label, values, tone}. limit is a line at
 * one value with a label. A line that is faint may leave the chart at the top, so that it does not flatten the rest.
 */
export const TimeChart = memo(({ title, at, areas = [], lines = [], limit, format = number }) => {
  const [cursor, move] = useState(null);
  const drawn = useMemo(() => {
    const n = at.length, sums = Array(n).fill(0);
    const stacked = areas.map((a) => {
      const bottom = [...sums];
      a.values.forEach((v, i) => { sums[i] += v ?? 0; });
      return { ...a, bottom, top: [...sums] };
    });
    const highestOf = (some) => Math.max(0, ...some.flatMap((l) => l.values.filter(Number.isFinite)));
    const firm = Math.max(...sums, highestOf(lines.filter((l) => !l.faint)), limit ? limit.value : 0);
    const faint = highestOf(lines.filter((l) => l.faint)), highest = firm > 0 ? Math.max(firm, Math.min(faint, 2 * firm)) : faint;
    const top = ceiling(highest * 1.05);
    const x = (i) => n > 1 ? (i / (n - 1)) * 600 : 300, y = (v) => v === null || v === undefined ? null : 150 - (v / top) * 150;
    return {
      top,
      areas: stacked.map((a) => ({ tone: a.tone, d: n && `${path(a.top.map((v, i) => [x(i), y(v)]))}${path(a.bottom.map((v, i) => [x(i), y(v)]).reverse()).replace("M", "L")}Z` })).filter((a) => a.d),
      lines: lines.map((l) => ({ tone: l.tone, d: path(l.values.map((v, i) => [x(i), y(v)])) })),
      limit: limit && y(limit.value),
    };
  }, [at, areas, lines, limit?.value]);
  const pick = (e) => {
    const box = e.currentTarget.getBoundingClientRect();
    move(Math.max(0, Math.min(at.length - 1, Math.round(((e.clientX - box.left) / box.width) * (at.length - 1)))));
  };
  const key = (e) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (!step) return;
    e.preventDefault();
    move((c) => Math.max(0, Math.min(at.length - 1, (c ?? at.length) + step)));
  };
  const i = cursor ?? at.length - 1, all = [...areas, ...lines].map((s) => ({ ...s, now: s.values[Math.min(i, s.values.length - 1)] }));
  const spoken = all.map((s) => `${s.label} ${format(s.now)}`).join(", ");
  return html`<figure class="chart">
    <figcaption><span class="chart-title">${title}</span> <span class="quiet">${at.length ? cursor === null ? "now" : `at ${clock(at[i])}` : ""}</span></figcaption>
    <ul class="legend">${all.map((s) => html`<li key=${s.label}><i class=${`swatch ${s.tone}`} aria-hidden="true"></i>${s.label} <b>${format(s.now)}</b></li>`)}</ul>
    <div class="plot" tabindex="0" role="group" aria-label=${`${title}: ${spoken}. Arrow keys move through time.`}
      onPointerMove=${pick} onPointerLeave=${() => move(null)} onKeyDown=${key} onBlur=${() => move(null)}>
      <span class="axis-top">${format(drawn.top)}</span>
      <svg viewBox="0 0 600 150" preserveAspectRatio="none" aria-hidden="true">
        <path class="grid" d="M0 .5H600M0 75H600M0 149.5H600" vector-effect="non-scaling-stroke" />
        ${drawn.areas.map((a) => html`<path class=${`area ${a.tone}`} d=${a.d} />`)}
        ${drawn.lines.map((l) => html`<path class=${`line ${l.tone}`} d=${l.d} vector-effect="non-scaling-stroke" />`)}
        ${limit && html`<path class="limit" d=${`M0 ${drawn.limit}H600`} vector-effect="non-scaling-stroke" />`}
        ${cursor !== null && at.length > 1 && html`<path class="cursor" d=${`M${(cursor / (at.length - 1)) * 600} 0V150`} vector-effect="non-scaling-stroke" />`}
      </svg>
      ${limit && html`<span class="limit-label" style=${{ top: `${(drawn.limit / 150) * 100}%` }}>${limit.label}</span>`}
    </div>
    <div class="axis"><span>${at.length ? clock(at[0]) : ""}</span><span>${at.length ? clock(at.at(-1)) : ""}</span></div>
    <span class="sr" role="status">${cursor === null ? "" : `${clock(at[i])}: ${spoken}`}</span>
  </figure>`;
});

/** At most five of the bars' bounds with their places from 0 to 1. The bars are equally wide, and their bounds are not. */
function ticks(bars) {
  const every = Math.ceil(bars.length / 5);
  return bars.flatMap((b, i) => i % every ? [] : [[i / bars.length, ms(b.lower)]]);
}

/** A histogram of latencies with the objective's line. bounds are upper bounds in ms; the last may be null for all above. */
export const Histogram = memo(({ bounds, counts, objective }) => {
  const shown = useMemo(() => {
    const first = counts.findIndex((c) => c > 0), last = counts.findLastIndex((c) => c > 0);
    if (first < 0) return null;
    let from = Math.max(0, first - 1), to = Math.min(counts.length - 1, last + 1);
    if (objective) {
      const at = bounds.findIndex((b) => b !== null && b >= objective);
      if (at >= 0) [from, to] = [Math.min(from, at), Math.max(to, Math.min(at + 1, counts.length - 1))];
    }
    const total = counts.reduce((a, b) => a + b, 0);
    const bars = counts.slice(from, to + 1).map((c, i) => {
      const upper = bounds[from + i] ?? Infinity, lower = from + i > 0 ? bounds[from + i - 1] : 0;
      return { count: c, upper, lower, late: objective > 0 && lower >= objective };
    });
    let mark = null;
    if (objective) {
      const i = bars.findIndex((b) => b.upper >= objective), b = bars[i];
      if (b) mark = (i + (Number.isFinite(b.upper) ? (objective - b.lower) / (b.upper - b.lower) : 0)) / bars.length;
    }
    const late = bars.reduce((n, b) => n + (b.late ? b.count : 0), 0);
    return { bars, mark, total, late, top: Math.max(...bars.map((b) => b.count)) };
  }, [bounds, counts, objective]);
  if (!shown) return html`<p class="empty">No request yet. The distribution of latencies appears with the first ones.</p>`;
  const { bars, mark, total, late, top } = shown;
  const spoken = `${count(total, "request")}${objective ? `; ${number(late)} in bars above the objective of ${ms(objective)}` : ""}`;
  return html`<figure class="histogram">
    <div class="bars" role="img" aria-label=${spoken}>
      ${bars.map((b) => html`<span class=${b.late ? "bar late" : "bar"} title=${`${ms(b.lower)} to ${Number.isFinite(b.upper) ? ms(b.upper) : "∞"}: ${number(b.count)}`}>
        <i style=${{ height: `${b.count ? Math.max(1.5, (b.count / top) * 100) : 0}%` }}></i></span>`)}
      ${mark !== null && html`<span class="goal-line" style=${{ left: `${mark * 100}%` }}><em class=${mark > 0.6 ? "before" : ""}>objective ${ms(objective)}</em></span>`}
    </div>
    <div class="axis ticks" aria-hidden="true">${ticks(bars).map(([at, text]) => html`<span style=${{ left: `${at * 100}%` }}>${text}</span>`)}</div>
    <figcaption class="quiet">${spoken}</figcaption>
  </figure>`;
});

/** Horizontal bars with a label and a figure each: {label, value, note}. */
export const Bars = memo(({ rows, format = number }) => {
  const top = Math.max(...rows.map((r) => r.value), 1e-9);
  return html`<ul class="hbars">${rows.map((r) => html`<li key=${r.label}>
    <span class="what">${r.label}</span><span class="track" aria-hidden="true"><i style=${{ width: `${(r.value / top) * 100}%` }}></i></span>
    <span class="figure">${format(r.value)}${r.note ? html` <span class="quiet">${r.note}</span>` : ""}</span></li>`)}</ul>`;
});

/** Two latencies against an objective: a bar to p50, one to p99, a mark at the objective. */
export const Bullet = memo(({ p50, p99, objective }) => {
  if (p99 === null || p99 === undefined) return html`<span class="bullet none" aria-hidden="true"></span>`;
  const top = Math.max(objective * 1.4 || 0, p99 * 1.1);
  const wide = (v) => ({ width: `${Math.min(100, (v / top) * 100)}%` });
  return html`<span class=${objective && p99 > objective ? "bullet over" : "bullet"} aria-hidden="true">
    <i class="p99" style=${wide(p99)}></i><i class="p50" style=${wide(p50 ?? 0)}></i>
    ${objective > 0 && html`<i class="goal" style=${{ left: `${(objective / top) * 100}%` }}></i>`}</span>`;
});
