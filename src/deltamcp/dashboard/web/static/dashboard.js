// Keeps pages up to date, loads more of long lists, and draws the chart. Every page works without it.

const live = new Map();

// What the gateway says has changed

function listen() {
  const address = document.body.dataset.events;
  if (!address) return;
  const events = new EventSource(address);
  events.addEventListener("state", () => refresh(200));
  events.addEventListener("calls", () => refresh(200));
  addEventListener("pagehide", () => events.close());
  setInterval(() => document.visibilityState === "visible" && refresh(0), 10_000);  // durations go on, too
}

let timer = 0, loaded = -Infinity;

function refresh(wait) {
  const calls = document.getElementById("calls");
  if (timer || !(calls || document.querySelector("[data-live]"))) return;
  timer = setTimeout(load, Math.max(wait, loaded + (calls ? 2000 : 3000) - performance.now()));
}

async function load() {
  timer = 0;
  loaded = performance.now();
  const reply = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
  if (!reply?.ok) return;
  const page = new DOMParser().parseFromString(await reply.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(part.id);
    const text = fresh?.innerHTML ?? "";
    const isUsed = part.contains(document.activeElement) || part.querySelector("details[open]");
    if (!fresh || isUsed || live.get(part.id) === text) continue;
    live.set(part.id, text);
    part.replaceChildren(...fresh.childNodes);
  }
  addCalls(page);
}

// Calls as they come

function addCalls(page) {
  const body = document.querySelector("#calls tbody");
  if (!body || new URLSearchParams(location.search).has("before")) return;
  const rows = [...page.querySelectorAll("#calls tbody tr")];
  const known = new Map([...body.rows].map((row) => [row.dataset.seq, row]));
  const newest = Number(body.rows[0]?.dataset.seq ?? 0);
  const fresh = rows.filter((row) => Number(row.dataset.seq) > newest);
  for (const row of rows) {  // tokens are counted a second after a call
    const shown = known.get(row.dataset.seq);
    if (shown && !shown.querySelector("details[open]") && shown.innerHTML !== row.innerHTML) shown.innerHTML = row.innerHTML;
  }
  if (!fresh.length) return;
  for (const row of fresh) row.classList.add("fresh");
  if (fresh.length === rows.length) {  // more came than a page has: older ones are behind its link
    for (const part of document.querySelectorAll(".later")) part.remove();
    body.replaceChildren(...fresh);
    document.querySelector(".more")?.remove();
    const more = page.querySelector(".more");
    if (more) document.getElementById("main").append(more);
    watchMore();
  } else {
    body.prepend(...fresh);
  }
  body.closest(".scroll").parentElement.querySelector(":scope > .empty")?.remove();
  refresh(2000);
}

// Long lists

function watchMore() {
  const link = document.querySelector("[data-more]");
  if (!link) return;
  const watch = new IntersectionObserver(async ([seen]) => {
    if (!seen.isIntersecting) return;
    watch.disconnect();
    await addMore(link);
  }, { rootMargin: "800px" });
  watch.observe(link);
}

async function addMore(link) {
  const reply = await fetch(link.href).catch(() => null);
  if (!reply?.ok) return;
  const page = new DOMParser().parseFromString(await reply.text(), "text/html");
  const table = page.getElementById(link.dataset.more);
  if (!table) return;
  table.removeAttribute("id");
  table.caption?.remove();
  const part = document.createElement("div");  // a table of its own: a longer one would be laid out anew each time
  part.className = "later";
  part.append(table);
  link.closest(".more").before(part);
  const next = page.querySelector("[data-more]");
  if (!next) return link.closest(".more").remove();
  link.href = next.getAttribute("href");
  watchMore();
}

// The chart

async function draw(place) {
  const [{ default: uPlot }, reply] = await Promise.all([import("/static/uplot.esm.js"), fetch(place.dataset.chart)]);
  if (!reply.ok) return;
  const days = await reply.json();
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const times = days.day.map((day) => Date.parse(`${day}T12:00:00`) / 1000);
  const day = (at) => new Date(at * 1000).toLocaleDateString("en", { month: "short", day: "numeric" });
  const step = Math.max(1, Math.ceil(times.length / Math.max(2, Math.floor(place.clientWidth / 90))));
  const short = new Intl.NumberFormat("en", { notation: "compact" });
  const readout = place.closest("figure").querySelector(".readout");
  const said = readout.textContent;
  const tell = ({ cursor: { idx } }) => {
    const [before, after, own] = idx == null ? [] : [days.before[idx], days.after[idx], days.own[idx]].map((count) => count.toLocaleString("en"));
    readout.textContent = idx == null ? said : `${days.day[idx]}: ${before} without, ${after} with, ${own} of that for the gateway itself`;
  };
  const make = () => {
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const line = (label, name) => ({
      label, stroke: colour(name), width: 2, fill: `color-mix(in srgb, ${colour(name)} 12%, transparent)`,
      points: { show: times.length < 32, size: 5 },
    });
    return new uPlot({
      width: place.clientWidth - 26, height: 220, legend: { show: false }, cursor: { y: false, drag: { setScale: false } },
      hooks: { setCursor: [tell] },
      scales: {
        x: { range: (chart, low, high) => [low - 43200, high + 43200] },
        y: { range: (chart, low, high) => [0, Math.max(high * 1.1, 1)] },
      },
      axes: [
        { ...axis, size: 32, grid: { show: false }, splits: () => times.filter((at, place) => place % step === 0), values: (chart, marks) => marks.map(day) },
        { ...axis, size: 56, values: (chart, marks) => marks.map((mark) => short.format(mark)) },
      ],
      series: [{}, line("without", "--now"), line("with", "--behind"), { label: "own", stroke: colour("--soft"), width: 1.5, dash: [4, 4], points: { show: false } }],
    }, [times, days.before, days.after, days.own], place);
  };
  let chart = make();
  new ResizeObserver(() => chart.setSize({ width: place.clientWidth - 26, height: 220 })).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { chart.destroy(); chart = make(); });
}

listen();
watchMore();
for (const place of document.querySelectorAll("[data-chart]")) draw(place);
