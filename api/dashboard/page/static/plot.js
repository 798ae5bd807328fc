"use strict";
// The picture of an experiment: the interval over time, units and ramp below it, and a lane for
// the gates and each guardrail. Its words and numbers are those of the picture that Dagster shows.
(() => {
  const figure = document.querySelector("[data-plot]");
  if (!figure) return;
  const part = (name) => figure.querySelector(`[data-${name}]`);
  const [box, traffic, lanes, readout] = ["canvas", "traffic", "lanes", "readout"].map(part);
  const buttons = ["in", "out", "whole"].map((name) => part(`zoom="${name}"`));
  const FONT = "ui-sans-serif, system-ui, sans-serif";
  // Below this width there is no room beside the plot.
  const NARROW = 640;
  // No zoom shows less.
  const LEAST_SECONDS = 1800;
  // No finer than what is written at them.
  const STEPS = [
    ...[1, 2, 5, 10, 15, 30].map((count) => 60 * count),
    ...[1, 2, 3, 6, 12].map((count) => 3600 * count),
    ...[1, 2, 3, 4, 7, 14, 28].map((count) => 86400 * count),
  ];
  let data = JSON.parse(figure.dataset.plot);
  let chart = null;
  let strip = null;
  // The span of time that is shown; null for all of it.
  let shown = null;

  // Times are the reader's own; the zone is said where a whole time is.
  const format = (options) => new Intl.DateTimeFormat("en-GB", options);
  const day = { day: "numeric", month: "short" };
  const hour = { hour: "2-digit", minute: "2-digit" };
  const when = format({ ...day, ...hour });
  const zoned = format({ ...day, ...hour, timeZoneName: "short" });
  const [days, hours] = [format(day), format(hour)];
  function moment(at) {
    const time = new Date(at * 1000);
    return (time.getHours() + time.getMinutes() === 0 ? days : hours).format(time);
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const signed = (value, text) => (value > 0 ? "+" : "") + text.replace("-", "\u2212");
  const short = (value) => signed(value, String(Number(value.toPrecision(4))));
  const written = (value) => (data.signed === 4 ? short(value) : signed(value, value.toFixed(2)));
  const counted = (value) => value.toLocaleString("en");
  function weighed(value) {
    return value > 1e6 ? "over 1,000,000" : value.toLocaleString("en", { maximumSignificantDigits: 3 });
  }
  // A rate cannot fall below zero.
  const possible = (value) => {
    return data.signed === 4 || !data.control ? value : Math.max(value, -data.control);
  };
  function relative(value) {
    if (!data.control) return "";
    const percent = (100 * value) / data.control;
    return `${signed(percent, percent.toFixed(Math.abs(percent) < 10 ? 1 : 0))}\u202f%`;
  }

  const last = () => data.at.length - 1;
  const whole = () => [Math.min(data.at[0], data.units?.at[0] ?? Infinity), data.at[last()]];
  const span = () => shown ?? whole();
  const isNarrow = () => box.clientWidth < NARROW;
  const margins = () => (isNarrow() ? { left: 52, right: 14 } : { left: 92, right: 156 });

  function extent() {
    if (!shown) return data.range;
    const [begin, end] = shown;
    const inside = data.at.map((at, place) => place).filter((place) => {
      return data.at[place] >= begin && data.at[place] <= end;
    });
    if (inside.length === 0) return data.range;
    const low = Math.min(...inside.map((place) => data.low[place]));
    const high = Math.max(...inside.map((place) => data.high[place]));
    const margin = 0.06 * (high - low) || 0.01;
    return [low - margin, high + margin];
  }

  function nearest(times, at) {
    let best = 0;
    times.forEach((time, place) => {
      if (Math.abs(time - at) < Math.abs(times[best] - at)) best = place;
    });
    return best;
  }

  // --- Shapes on a canvas --------------------------------------------------------------------

  function inside(plot, draw) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    draw(ctx, bbox, devicePixelRatio);
    ctx.restore();
  }

  function stroke(ctx, from, to, dash) {
    ctx.beginPath();
    ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
    ctx.moveTo(...from);
    ctx.lineTo(...to);
    ctx.stroke();
  }

  function write(ctx, text, x, y, { align = "left", weight = 400, tone = "--quiet" } = {}) {
    ctx.save();
    ctx.font = `${weight} ${12 * devicePixelRatio}px ${FONT}`;
    ctx.textAlign = align;
    ctx.textBaseline = "middle";
    ctx.fillStyle = colour(tone);
    ctx.fillText(text, x, y);
    ctx.restore();
  }

  function held(plot) {
    inside(plot, (ctx, bbox, ratio) => {
      ctx.fillStyle = colour("--held");
      for (const [begin, end] of data.held) {
        const left = plot.valToPos(begin, "x", true);
        const right = Math.max(plot.valToPos(end, "x", true), left + 3 * ratio);
        ctx.fillRect(left, bbox.top, right - left, bbox.height);
      }
    });
  }

  function marks(plot) {
    inside(plot, (ctx, bbox, ratio) => {
      ctx.strokeStyle = colour("--ink");
      ctx.lineWidth = ratio;
      const zero = plot.valToPos(0, "y", true);
      stroke(ctx, [bbox.left, zero], [bbox.left + bbox.width, zero], [4, 3]);
      data.marks.forEach((mark, row) => {
        const x = plot.valToPos(mark.at, "x", true);
        const fires = mark.words.startsWith("fired");
        stroke(ctx, [x, bbox.top], [x, bbox.top + bbox.height], fires ? [2, 2] : []);
        const isLate = x > bbox.left + bbox.width / 2;
        const place = [x + (isLate ? -7 : 7) * ratio, bbox.top + (10 + 16 * row) * ratio];
        const words = `${mark.words} ${when.format(mark.at * 1000)}`;
        write(ctx, words, ...place, { align: isLate ? "right" : "left", weight: 600, tone: "--ink" });
      });
    });
    // Whole, also at the edge.
    for (const mark of data.marks) diamond(plot, mark);
    if (!isNarrow()) ends(plot);
  }

  function diamond(plot, { at, lift }) {
    const [low, high] = extent();
    const [begin, end] = span();
    if (lift === null || lift < low || lift > high || at < begin || at > end) return;
    const { ctx } = plot;
    const size = 5 * devicePixelRatio;
    ctx.save();
    ctx.translate(plot.valToPos(at, "x", true), plot.valToPos(lift, "y", true));
    ctx.rotate(Math.PI / 4);
    ctx.fillStyle = colour("--ink");
    ctx.fillRect(-size, -size, 2 * size, 2 * size);
    ctx.strokeStyle = colour("--card");
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.strokeRect(-size, -size, 2 * size, 2 * size);
    ctx.restore();
  }

  // The last look that is shown, beside its ends; apart, so that none covers another.
  function ends(plot) {
    const { ctx, bbox } = plot;
    const [low, high] = extent();
    const at = nearest(data.at, span()[1]);
    const gap = 16 * devicePixelRatio;
    const values = [data.high[at], data.lift[at], data.low[at]].map(possible);
    const [top, middle, bottom] = values.map((value) => {
      return plot.valToPos(Math.min(Math.max(value, low), high), "y", true);
    });
    const centre = Math.min(Math.max(middle, bbox.top + gap), bbox.top + bbox.height - gap);
    const heights = [Math.min(top, centre - gap), centre, Math.max(bottom, centre + gap)];
    values.forEach((value, row) => {
      const words = `${written(value)}${relative(value) && ` (${relative(value)})`}`;
      const x = bbox.left + bbox.width + 8 * devicePixelRatio;
      const style = row === 1 ? { weight: 600, tone: "--ink" } : {};
      write(ctx, words, x, heights[row], style);
    });
  }

  function ramp(plot) {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    const [begin, end] = span();
    // The step before what is shown holds at its left edge.
    const before = data.steps.filter(([at]) => at <= begin).slice(-1);
    const steps = [...before, ...data.steps.filter(([at]) => at > begin && at <= end)];
    ctx.save();
    ctx.strokeStyle = colour("--quiet");
    ctx.lineWidth = ratio;
    let free = -Infinity;
    for (const [at, share] of steps) {
      const x = plot.valToPos(Math.max(at, begin), "x", true);
      if (at > begin) stroke(ctx, [x, bbox.top - 14 * ratio], [x, bbox.top + bbox.height], [1, 3]);
      // Where steps come fast, those that have room say their share.
      if (x < free) continue;
      write(ctx, `share ${share}`, x + 4 * ratio, bbox.top - 8 * ratio);
      free = x + 76 * ratio;
    }
    ctx.restore();
    if (isNarrow()) return;
    const x = bbox.left + bbox.width + 8 * ratio;
    const place = nearest(data.units.at, span()[1]);
    const arms = ["control", "treatment"].sort((a, b) => data.units[b][place] - data.units[a][place]);
    arms.forEach((arm, row) => {
      const y = bbox.top + bbox.height - (22 - 16 * row) * ratio;
      const tone = arm === "treatment" ? "--accent" : "--quiet";
      write(ctx, `${counted(data.units[arm][place])} ${arm}`, x, y, { tone });
    });
    const name = `${data.unit_of_traffic}s`;
    write(ctx, name, bbox.left - 8 * ratio, bbox.top + bbox.height / 2, { align: "right" });
  }

  // --- Words ---------------------------------------------------------------------------------

  function tell(place) {
    const at = data.at[place];
    const percent = relative(data.lift[place]);
    const gated = data.held.some(([begin, end]) => at >= begin && at <= end);
    const units = data.units && nearest(data.units.at, at);
    const says = [
      `${zoned.format(at * 1000)}: ${written(data.lift[place])}${percent && ` (${percent})`}, ` +
        `between ${written(possible(data.low[place]))} and ${written(data.high[place])} ${data.unit}`,
      `e-value ${weighed(data.reached[place] * data.fires)}, the test fires at ${weighed(data.fires)}`,
    ];
    if (units !== null) {
      const [control, treatment] = [data.units.control[units], data.units.treatment[units]];
      says.push(`${counted(control)} control and ${counted(treatment)} treatment ${data.unit_of_traffic}s`);
    }
    const note = at === data.fired ? "the test fired" : gated ? "a check held the answer back" : "";
    readout.textContent = [...says, note].filter(Boolean).join("; ");
  }

  function element(name, className, text = "") {
    const made = document.createElement(name);
    made.className = className;
    made.textContent = text;
    return made;
  }

  function lay() {
    const { left, right } = margins();
    const [begin, end] = span();
    const place = (at) => Math.min(Math.max((at - begin) / (end - begin), 0), 1);
    lanes.style.setProperty("--left", `${left}px`);
    lanes.style.setProperty("--right", `${right}px`);
    lanes.classList.toggle("narrow", isNarrow());
    lanes.replaceChildren(...data.lanes.map((lane) => {
      const row = element("li", lane.tone);
      const name = element("span", "name", lane.name);
      name.title = lane.name;
      const bar = element("span", "bar");
      for (const [from, to] of lane.spans) {
        if (to < begin || from > end) continue;
        const piece = element("i", "");
        piece.style.left = `${100 * Math.min(place(from), 0.99)}%`;
        piece.style.width = `max(4px, ${100 * (place(to) - place(from))}%)`;
        bar.append(piece);
      }
      const since = lane.since === null ? "" : ` ${when.format(lane.since * 1000)}`;
      row.append(name, bar, element("span", "state", `${lane.state}${since}`));
      return row;
    }));
  }

  // --- Zoom ----------------------------------------------------------------------------------

  function zoom(begin, end) {
    const [first, final] = whole();
    const size = Math.min(Math.max(end - begin, LEAST_SECONDS), final - first);
    const from = Math.min(Math.max(begin, first), final - size);
    shown = size >= final - first ? null : [from, from + size];
    chart.setScale("x", { min: span()[0], max: span()[1] });
    strip?.setScale("x", { min: span()[0], max: span()[1] });
    buttons[1].disabled = buttons[2].disabled = shown === null;
    lay();
  }

  function zoomBy(factor) {
    const [begin, end] = span();
    const centre = chart.cursor.idx === null || chart.cursor.idx === undefined
      ? (begin + end) / 2 : data.at[chart.cursor.idx];
    const size = factor * (end - begin);
    zoom(centre - size / 2, centre + size / 2);
  }

  function select(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    zoom(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  }

  // --- Charts --------------------------------------------------------------------------------

  function shared() {
    const { left, right } = margins();
    return {
      left, right,
      legend: { show: false },
      scales: { x: { time: true, range: () => span() } },
      axis: {
        stroke: colour("--quiet"), font: `12px ${FONT}`,
        grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false },
      },
    };
  }

  function evidence() {
    const { left, right, legend, scales, axis } = shared();
    const edge = { stroke: "transparent", points: { show: false } };
    const estimate = { stroke: colour("--accent"), width: 2, points: { show: false } };
    const times = { space: 70, incrs: STEPS, values: (_, ticks) => ticks.map(moment) };
    return {
      legend, width: box.clientWidth, height: box.clientHeight,
      cursor: {
        drag: { x: true, y: false, setScale: false }, points: { size: 7 }, y: false,
        bind: { dblclick: () => () => zoom(...whole()) },
      },
      padding: [10, right, 0, 0],
      scales: { ...scales, y: { range: () => extent() } },
      axes: [
        { ...axis, ...times, size: 30, grid: { show: false } },
        { ...axis, size: left, values: (_, ticks) => ticks.map(short) },
      ],
      series: [{}, { ...edge }, estimate, { ...edge }],
      bands: [{ series: [3, 1], fill: colour("--band") }],
      hooks: {
        drawClear: [held], draw: [marks], setSelect: [select],
        setCursor: [(plot) => tell(plot.cursor.idx ?? last())],
      },
    };
  }

  function units() {
    const { left, right, legend, scales, axis } = shared();
    const stepped = uPlot.paths.stepped({ align: 1 });
    const arm = (tone) => {
      return { stroke: colour(tone), width: 1.5, points: { show: false }, paths: stepped };
    };
    return {
      legend, width: traffic.clientWidth, height: traffic.clientHeight,
      cursor: { show: false },
      padding: [18, right, 4, 0],
      scales: { ...scales, y: { range: (_, __, most) => [0, 1.05 * (most || 1)] } },
      axes: [{ show: false }, { ...axis, size: left, grid: { show: false }, values: () => [] }],
      series: [{}, arm("--quiet"), arm("--accent")],
      hooks: { drawClear: [ramp] },
    };
  }

  function draw() {
    figure.hidden = data === null;
    if (data === null) return;
    if (shown && shown[1] > data.at[last()]) shown = null;
    chart?.destroy();
    strip?.destroy();
    strip = null;
    chart = new uPlot(evidence(), [data.at, data.low, data.lift, data.high], box);
    traffic.hidden = data.units === null;
    if (data.units) {
      const { at, control, treatment } = data.units;
      strip = new uPlot(units(), [at, control, treatment], traffic);
    }
    part("unit").textContent = `, ${data.unit}`;
    part("held").hidden = data.held.length === 0;
    part("fired").hidden = data.fired === null;
    part("says").textContent = `${data.says.join("; ")}.`;
    buttons[1].disabled = buttons[2].disabled = shown === null;
    lay();
    tell(last());
  }

  box.addEventListener("keydown", (event) => {
    if (!chart) return;
    const turn = { "+": () => zoomBy(0.5), "-": () => zoomBy(2), 0: () => zoom(...whole()) };
    if (turn[event.key]) return turn[event.key]();
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const place = Math.min(Math.max((chart.cursor.idx ?? last()) + step, 0), last());
    const left = chart.valToPos(data.at[place], "x");
    chart.setCursor({ left, top: chart.valToPos(data.lift[place], "y") });
  });
  buttons[0].addEventListener("click", () => zoomBy(0.5));
  buttons[1].addEventListener("click", () => zoomBy(2));
  buttons[2].addEventListener("click", () => zoom(...whole()));
  new ResizeObserver(() => {
    if (data !== null) draw();
  }).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.plot = (fresh) => { data = fresh; draw(); };
  draw();
})();
