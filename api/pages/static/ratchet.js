// Everything that moves on the pages: live regions, buttons that speak to the API, filters, forms, charts.
// The server renders all markup; a live page fetches itself again when an event arrives and swaps the regions that changed.

import uPlot from "/assets/vendor/uplot/uPlot.esm.js";

const csrf = document.querySelector("meta[name=csrf]")?.content;
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// ---------------------------------------------------------------------------------------------------------- the API

async function call(path, { method = "POST", body, type = "application/json" } = {}) {
  const headers = { Accept: "application/json" };
  if (csrf) headers["X-CSRF-Token"] = csrf;
  if (method === "POST" && !path.endsWith("/check") && !path.endsWith("check-entry")) headers["Idempotency-Key"] = crypto.randomUUID?.() ?? String(Math.random());
  if (body !== undefined) headers["Content-Type"] = type;
  const response = await fetch(path, { method, headers, body });
  const text = await response.text();
  let document = {};
  try { document = text ? JSON.parse(text) : {}; } catch { document = { detail: text.slice(0, 200) }; }
  if (response.status === 401) location.href = `/login?next=${encodeURIComponent(location.pathname)}`;
  return { ok: response.ok, status: response.status, document };
}

let toastTimer;
function toast(text, bad = false) {
  const box = $(".toast");
  box.textContent = text;
  box.classList.toggle("bad", bad);
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { box.textContent = ""; }, bad ? 9000 : 4000);
}

function told(document) {
  const errors = (document.errors ?? []).map((e) => `${e.path}: ${e.message}`).join("; ");
  return [document.detail, errors, document.remedy].filter(Boolean).join(" - ");
}

// ---------------------------------------------------------------------------------------------- buttons (delegated)

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (copy) { copyText($(`#${copy.dataset.copy}`).textContent, copy); return; }
  const starter = event.target.closest("[data-starter]");
  if (starter) {
    const area = $("textarea[name=document]");
    area.value = $(`#${starter.dataset.starter}`).textContent;
    area.dispatchEvent(new Event("input", { bubbles: true }));
    area.focus();
    return;
  }
  const button = event.target.closest("[data-steer]");
  if (!button || button.disabled) return;
  if (button.dataset.confirm && !confirm(button.dataset.confirm)) return;
  const label = button.textContent;
  button.disabled = true;
  if (button.dataset.busy) button.textContent = button.dataset.busy;
  try {
    const { ok, document: answer } = await call(button.dataset.steer, { method: button.dataset.method ?? "POST", body: button.dataset.body });
    if (!ok) toast(told(answer), true);
    else { toast(answer.detail ?? (answer.state ? `${answer.name}: ${answer.state.replaceAll("_", " ")}` : "Done")); await refresh(true); }
  } catch (error) {
    toast(`The service does not answer: ${error.message}`, true);
  } finally {
    button.disabled = false;
    button.textContent = label;
  }
});

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

// --------------------------------------------------------------------------------------------------- live by events

const REFRESH_MIN_MS = 700;
let refreshing = false;
let again = false;
let lastRefresh = 0;
let timer;

async function refresh(now = false) {
  if (!now) {
    const wait = Math.max(0, lastRefresh + REFRESH_MIN_MS - Date.now());
    clearTimeout(timer);
    timer = setTimeout(() => refresh(true), wait);
    return;
  }
  if (refreshing) { again = true; return; }
  refreshing = true;
  const began = Date.now();
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (response.redirected && new URL(response.url).pathname === "/login") { location.href = response.url; return; }
    if (!response.ok) return;
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    const regions = $$("[data-live]");
    if (!regions.length) { location.reload(); return; }
    for (const region of regions) swap(region, fresh.querySelector(`[data-live="${region.dataset.live}"]`));
    applyFilters();
    drawCharts();
    tick();
    showStream();
  } catch { /* the event stream tells when the service is away, and it is asked again then */ } finally {
    refreshing = false;
    // A page that takes long to make is not asked for more often than it can be made.
    lastRefresh = Date.now() + 2 * (Date.now() - began);
    if (again) { again = false; refresh(); }
  }
}

function swap(old, fresh) {
  if (!fresh) return;
  if (old.className !== fresh.className) old.className = fresh.className;
  if (old.innerHTML === fresh.innerHTML) return;
  const folds = new Map($$("details[id]", old).map((d) => [d.id, d.open]));
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const mark = focused && (focused.id ? `#${CSS.escape(focused.id)}` : focused.dataset.steer ? `[data-steer="${focused.dataset.steer}"]` : focused.getAttribute("href") ? `a[href="${focused.getAttribute("href")}"]` : null);
  const scrolls = $$(".log,.feed", old).map((e) => e.scrollTop);
  old.innerHTML = fresh.innerHTML;
  for (const [id, open] of folds) { const d = old.querySelector(`#${CSS.escape(id)}`); if (d) d.open = open; }
  const follows = $("#live-log", old);
  if (follows) followLog();
  $$(".log,.feed", old).forEach((e, i) => { e.scrollTop = scrolls[i] ?? 0; });
  if (mark) old.querySelector(mark)?.focus();
}

let streamState = "";

function showStream(state = streamState) {
  streamState = state;
  for (const e of $$("[data-live-state]")) { e.dataset.state = state; e.textContent = state === "off" ? "connecting..." : "live"; }
}

function listen() {
  const source = $("[data-events]");
  if (!source) return;
  const stream = new EventSource(`${source.dataset.events}?after=${source.dataset.after}`);
  stream.onopen = () => showStream("on");
  stream.onerror = () => showStream("off");
  const arrived = () => ("reload" in source.dataset && !$("[data-live]") ? reloadSoon() : refresh());
  for (const kind of ["study", "trial", "phase", "stage", "note", "warning", "stopped", "home", "guard", "verdict", "verdict_final"]) stream.addEventListener(kind, arrived);
  stream.onmessage = arrived;
  addEventListener("pagehide", () => stream.close());
}

// The log of a server that runs grows without events; its end is read again while somebody looks.
const LOG_EVERY_MS = 2000;

async function followLog() {
  const box = $("#live-log");
  if (!box || document.hidden) return;
  const path = box.dataset.log;
  const response = await fetch(path).catch(() => null);
  if (!response?.ok) return;
  const text = await response.text();
  const now = $("#live-log");
  if (!now || now.dataset.log !== path) return;
  const atEnd = !now.dataset.seen || now.scrollTop + now.clientHeight >= now.scrollHeight - 24;
  now.dataset.seen = "yes";
  if (now.textContent !== text) now.textContent = text;
  if (atEnd) now.scrollTop = now.scrollHeight;
}

function tick() {
  for (const e of $$("[data-since]")) {
    const s = Math.max(0, Math.round((Date.now() - Date.parse(e.dataset.since)) / 1000));
    e.textContent = s < 60 ? `${s} s` : `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s`;
  }
}

let reloadTimer;
function reloadSoon() { clearTimeout(reloadTimer); reloadTimer = setTimeout(() => location.reload(), 800); }

// ---------------------------------------------------------------------------------------------------------- filters

function applyFilters() {
  const form = $("[data-filters]");
  if (!form) return;
  const want = Object.fromEntries(new FormData(form));
  const text = (want.text ?? "").toLowerCase();
  let shown = 0;
  const rows = $$(`#${form.dataset.filters} tbody tr[data-state]`);
  for (const row of rows) {
    const hit = (!want.state || row.dataset.state === want.state) && (!want.kind || row.dataset.kind === want.kind) && (!text || row.textContent.toLowerCase().includes(text));
    row.hidden = !hit;
    shown += hit;
  }
  $("[data-filter-count]", form).textContent = rows.length && shown < rows.length ? `${shown} of ${rows.length}` : "";
}
$("[data-filters]")?.addEventListener("input", applyFilters);
$("[data-filters]")?.addEventListener("submit", (event) => event.preventDefault());

// ------------------------------------------------------------------------------------------------------------ forms

function showProblems(box, document, good) {
  box.replaceChildren();
  const errors = document.errors ?? [];
  if (!errors.length && document.detail) errors.push({ path: "", message: document.detail, hint: document.remedy });
  if (!errors.length) { const p = element("p", "valid", good); box.append(p); return; }
  const list = element("ul", "problems");
  for (const e of errors) {
    const item = element("li");
    if (e.path) item.append(element("code", "", e.path), " ");
    item.append(e.message + (e.value !== null && e.value !== undefined ? ` (got ${JSON.stringify(e.value)})` : ""));
    if (e.hint) item.append(element("div", "hint", e.hint));
    list.append(item);
  }
  box.append(element("p", "sr", `${errors.length} problems`), list);
}

function element(name, kind = "", text = "") {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text) made.textContent = text;
  return made;
}

for (const form of $$("form[data-post]")) {
  const area = $("textarea[name=document]", form);
  const box = $("[data-problems]", form);
  if (area && form.dataset.check) {
    let wait;
    let turn = 0;
    const check = async () => {
      const mine = ++turn;
      const { ok, document: answer } = await call(form.dataset.check, { body: area.value, type: "application/yaml" });
      if (mine !== turn) return;
      showProblems(box, answer, "This can be used.");
      for (const button of $$(".actions button", form)) button.disabled = !(ok && answer.valid);
    };
    area.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(check, 350); });
    area.addEventListener("keydown", (event) => {
      // Tab moves on as everywhere; two spaces are what YAML wants, and Enter keeps the indentation.
      if (event.key !== "Enter") return;
      const start = area.value.lastIndexOf("\n", area.selectionStart - 1) + 1;
      const indent = area.value.slice(start, area.selectionStart).match(/^ */)[0];
      if (!indent) return;
      event.preventDefault();
      area.setRangeText(`\n${indent}`, area.selectionStart, area.selectionEnd, "end");
      area.dispatchEvent(new Event("input", { bubbles: true }));
    });
    check();
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const start = event.submitter?.name === "start" ? `?start=${event.submitter.value}` : "";
    const sent = area ? { body: area.value, type: "application/yaml" } : { body: JSON.stringify(fieldsOf(form)) };
    const { ok, document: answer } = await call(form.dataset.post + start, sent);
    if (!ok) { showProblems(box, answer, ""); return; }
    if ("showKey" in form.dataset) { showKey(box, answer.key); return; }
    location.href = form.dataset.then.replace("{id}", answer.id ?? "");
    if (location.pathname === form.dataset.then) location.reload();
  });
}

function fieldsOf(form) {
  const fields = {};
  for (const input of $$("[name]", form)) {
    if (input.value === "") continue;
    fields[input.name] = "list" in input.dataset ? [input.value] : "number" in input.dataset ? Number(input.value) : input.value;
  }
  return fields;
}

function showKey(box, key) {
  const shown = element("div", "note");
  const copyable = element("div", "copyable");
  const text = element("pre", "", key);
  text.id = "new-key";
  const button = element("button", "", "Copy");
  button.type = "button";
  button.dataset.copy = "new-key";
  const bar = element("div", "bar");
  bar.append(element("h3", "", "The key"), button);
  copyable.append(bar, text);
  shown.append(element("p", "", "This key is shown this once. Keep it now; then reload the page."), copyable);
  box.replaceChildren(shown);
}

const zone = $("[data-local-zone]");
if (zone) zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone || zone.value;

// ----------------------------------------------------------------------------------------------------------- charts

const charts = new Map();
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function drawCharts() {
  const source = $("#chart-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  for (const box of $$("[data-chart]")) {
    charts.get(box)?.destroy();
    box.replaceChildren();
    const made = BUILD[box.dataset.chart](box, data);
    if (made) charts.set(box, made);
    else { charts.delete(box); box.append(element("p", "meta", EMPTY[box.dataset.chart])); }
  }
}

const EMPTY = {
  progress: "The first measurement appears here.",
  accept: "Only servers with speculative decoding have an accept length.",
  step: "Only servers with speculative decoding have a step time.",
  samples: "No requests were recorded.",
  series: "Nothing was counted.",
};

const BUILD = {
  progress(box, { points, band }) {
    const measured = points.filter((p) => p.y !== null);
    if (!measured.length) return null;
    let best = null;
    const line = measured.map((p) => { if (p.state === "complete" && p.arm !== "baseline") best = Math.max(best ?? 0, p.y); return best; });
    const failed = points.filter((p) => p.state === "infeasible").map((p) => p.x);
    const ys = [...measured.filter((p) => p.state === "complete").map((p) => p.y), ...(band ?? [])];
    const range = spread(ys.length ? ys : measured.map((p) => p.y));
    return plot(box, [measured.map((p) => p.x), line, measured.map((p) => Math.min(Math.max(p.y, range[0]), range[1]))], {
      x: { label: "start", whole: true, range: [-0.6, Math.max(...points.map((p) => p.x), 1) + 0.6] },
      y: { label: "output tok/s", range },
      series: [
        { stroke: css("--accent"), width: 2.5, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
        { stroke: "transparent", paths: () => null, points: { show: false } },
      ],
      under: (u) => paintBand(u, band),
      over: (u) => { paintDots(u, measured, (p) => p.x, (p) => Math.min(Math.max(p.y, range[0]), range[1])); paintFailures(u, failed); },
      tip: nearest(measured, (p) => p.x, (p) => p.y),
    });
  },
  accept: (box, data) => scatter(box, data.points.filter((p) => p.y !== null && p.accept > 1.0005), (p) => p.accept, "accept length"),
  step: (box, data) => scatter(box, data.points.filter((p) => p.y !== null && p.step), (p) => p.step, "ms per step"),
  samples(box, { samples }) {
    const dots = samples.map((s) => ({ x: s.start_s, y: s.tok_s ?? 0, kind: s.error ? "failed" : "explore", state: "complete", title: `${s.prompt}: ${s.error ?? `${(s.tok_s ?? 0).toFixed(1)} tok/s, ${s.output_tokens} tokens`}` }));
    return dots.length ? scatter(box, dots, (p) => p.x, "seconds since the measurement began") : null;
  },
  series(box, { series }) {
    const lines = series[box.dataset.at].lines.map((l) => ({ ...l, y: l.y.map((v) => v ?? null) }));
    const xs = [...new Set(lines.flatMap((l) => l.x))].sort((a, b) => a - b);
    const values = lines.flatMap((l) => l.y).filter((v) => v !== null);
    if (!values.length) return null;
    const rows = lines.map((l) => { const at = new Map(l.x.map((x, i) => [x, l.y[i]])); return xs.map((x) => at.get(x)); });
    return plot(box, [xs, ...rows], {
      x: { range: [xs[0], Math.max(xs.at(-1), xs[0] + 1)] },
      y: { range: spread(values) },
      series: lines.map((_, i) => ({ stroke: css(LINES[i % LINES.length]), width: 1.5, points: { show: false } })),
      tip: () => null,
    });
  },
};

function scatter(box, points, x, label) {
  if (!points.length) return null;
  const sorted = [...points].sort((a, b) => x(a) - x(b));
  return plot(box, [sorted.map(x), sorted.map((p) => p.y)], {
    x: { label, range: spread(sorted.map(x)) },
    y: { label: "output tok/s", range: spread(sorted.map((p) => p.y)) },
    series: [{ stroke: "transparent", paths: () => null, points: { show: false } }],
    over: (u) => paintDots(u, sorted, x, (p) => p.y),
    tip: nearest(sorted, x, (p) => p.y),
  });
}

function plot(box, data, { x, y, series, under, over, tip }) {
  const axis = (label, whole) => ({
    ...(label ? { label, labelSize: 22 } : {}), labelFont: "12px system-ui", font: "12px system-ui", stroke: css("--soft"),
    grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, ...(whole ? { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] } : {}),
  });
  const made = new uPlot({
    width: box.clientWidth, height: box.clientHeight, legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { show: false }, x: false, y: false },
    scales: { x: { time: false, range: () => x.range }, y: { range: () => y.range } },
    axes: [{ ...axis(x.label, x.whole), grid: { show: false } }, { ...axis(y.label), size: 54 }],
    series: [{}, ...series],
    hooks: { drawAxes: under ? [under] : [], draw: over ? [over] : [], setCursor: [(u) => showTip(box, u, tip)] },
  }, data, box);
  return made;
}

function spread(values) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const pad = (high - low || Math.abs(high) * 0.1 || 1) * 0.1;
  return [low - pad, high + pad];
}

const LINES = ["--accent", "--good", "--warn", "--bad", "--soft"];
const COLOURS = { baseline: "--soft", confirm: "--good", explore: "--accent", failed: "--bad", self_test: "--soft" };

function paintDots(u, points, x, y) {
  const { ctx } = u;
  const size = 4.2 * devicePixelRatio;
  ctx.save();
  for (const p of points) {
    const colour = p.state === "pruned" ? css("--soft") : css(COLOURS[p.kind] ?? "--accent");
    ctx.beginPath();
    ctx.arc(u.valToPos(x(p), "x", true), u.valToPos(y(p), "y", true), size, 0, 2 * Math.PI);
    ctx.lineWidth = 1.6 * devicePixelRatio;
    ctx.strokeStyle = p.best ? css("--ink") : colour;
    ctx.fillStyle = colour;
    if (p.state !== "pruned") ctx.fill();
    if (p.state === "pruned" || p.best) ctx.stroke();
  }
  ctx.restore();
}

function paintFailures(u, xs) {
  const { ctx } = u;
  const r = 3.4 * devicePixelRatio;
  const y = u.bbox.top + u.bbox.height - 2.4 * r;
  ctx.save();
  ctx.strokeStyle = css("--bad");
  ctx.lineWidth = 2 * devicePixelRatio;
  for (const value of xs) {
    const x = u.valToPos(value, "x", true);
    ctx.beginPath();
    ctx.moveTo(x - r, y - r); ctx.lineTo(x + r, y + r); ctx.moveTo(x + r, y - r); ctx.lineTo(x - r, y + r);
    ctx.stroke();
  }
  ctx.restore();
}

function paintBand(u, band) {
  if (!band) return;
  const { ctx, bbox } = u;
  const top = u.valToPos(band[1], "y", true);
  const low = u.valToPos(band[0], "y", true);
  ctx.save();
  ctx.fillStyle = css("--band");
  ctx.fillRect(bbox.left, top, bbox.width, Math.max(low - top, 2));
  ctx.restore();
}

function nearest(points, x, y) {
  return (u) => {
    let best = null;
    let distance = 22;
    for (const p of points) {
      const d = Math.hypot(u.valToPos(x(p), "x") - u.cursor.left, u.valToPos(y(p), "y") - u.cursor.top);
      if (d < distance) { distance = d; best = p; }
    }
    return best;
  };
}

function showTip(box, u, find) {
  let tip = $(".tip", box);
  const point = u.cursor.left >= 0 ? find(u) : null;
  if (!point) { tip?.remove(); return; }
  if (!tip) { tip = element("div", "tip"); box.append(tip); }
  tip.textContent = point.title;
  tip.style.left = `${Math.min(u.cursor.left + 62, box.clientWidth - tip.offsetWidth - 4)}px`;
  tip.style.top = `${Math.max(u.cursor.top - tip.offsetHeight - 8, 0)}px`;
}

let resizeTimer;
addEventListener("resize", () => { clearTimeout(resizeTimer); resizeTimer = setTimeout(drawCharts, 150); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);

drawCharts();
applyFilters();
listen();
tick();
followLog();
setInterval(tick, 1000);
setInterval(followLog, LOG_EVERY_MS);
