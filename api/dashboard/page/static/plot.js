"use strict";
// The plot of an experiment: uPlot with what it does not know of itself - zero, gates, firing.
(() => {
  const figure = document.querySelector("[data-plot]");
  if (!figure) return;
  const box = figure.querySelector("[data-canvas]");
  const readout = figure.querySelector("[data-readout]");
  const when = new Intl.DateTimeFormat("en-GB", {
    day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZone: "UTC",
  });
  let data = JSON.parse(figure.dataset.plot);
  let chart = null;

  const days = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
  const hours = new Intl.DateTimeFormat("en-GB", {
    hour: "2-digit", minute: "2-digit", timeZone: "UTC",
  });
  const moment = (at) => (at % 86400 === 0 ? days : hours).format(at * 1000);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const signed = (value, text) => (value > 0 ? "+" : "") + text.replace("-", "\u2212");
  const short = (value) => signed(value, String(Number(value.toPrecision(4))));
  const written = (value) => (data.signed === 4 ? short(value) : signed(value, value.toFixed(2)));

  function spans(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.fillStyle = colour("--held");
    for (const [begin, end] of data.held) {
      const left = plot.valToPos(begin, "x", true);
      const right = Math.max(plot.valToPos(end, "x", true), left + 3 * devicePixelRatio);
      const from = Math.max(left, bbox.left);
      ctx.fillRect(from, bbox.top, Math.min(right, bbox.left + bbox.width) - from, bbox.height);
    }
    ctx.restore();
  }

  function lineAt(plot, x, y, dash) {
    const { ctx, bbox } = plot;
    ctx.beginPath();
    ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
    if (x === null) {
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
    } else {
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
    }
    ctx.stroke();
  }

  function nearest(at) {
    let best = 0;
    data.at.forEach((moment, place) => {
      if (Math.abs(moment - at) < Math.abs(data.at[best] - at)) best = place;
    });
    return best;
  }

  function marks(plot) {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.strokeStyle = ctx.fillStyle = colour("--ink");
    ctx.lineWidth = ratio;
    lineAt(plot, null, plot.valToPos(0, "y", true), [4, 3]);
    if (data.fired !== null) {
      const x = plot.valToPos(data.fired, "x", true);
      const y = plot.valToPos(data.lift[nearest(data.fired)], "y", true);
      lineAt(plot, x, 0, [2, 2]);
      // Whole, also at the edge.
      ctx.restore();
      ctx.save();
      ctx.fillStyle = colour("--ink");
      ctx.translate(x, y);
      ctx.rotate(Math.PI / 4);
      ctx.fillRect(-5 * ratio, -5 * ratio, 10 * ratio, 10 * ratio);
      ctx.strokeStyle = colour("--card");
      ctx.lineWidth = 1.5 * ratio;
      ctx.strokeRect(-5 * ratio, -5 * ratio, 10 * ratio, 10 * ratio);
      ctx.setTransform(1, 0, 0, 1, 0, 0);
      const left = x > bbox.left + bbox.width / 2;
      ctx.textAlign = left ? "right" : "left";
      ctx.font = `600 ${12 * ratio}px ui-sans-serif, system-ui, sans-serif`;
      ctx.fillStyle = colour("--ink");
      const label = `fired ${when.format(data.fired * 1000)}`;
      ctx.fillText(label, x + (left ? -8 : 8) * ratio, bbox.top + 14 * ratio);
    }
    ctx.restore();
  }

  function tell(place) {
    const at = data.at[place];
    const gated = data.held.some(([begin, end]) => at >= begin && at <= end);
    readout.textContent =
      `${when.format(at * 1000)} UTC: ${written(data.lift[place])}, between ` +
      `${written(data.low[place])} and ${written(data.high[place])} ${data.unit}` +
      `${at === data.fired ? "; the test fired" : gated ? "; a check held the answer back" : ""}`;
  }

  function options() {
    const axis = {
      stroke: colour("--quiet"), font: "12px ui-sans-serif, system-ui, sans-serif",
      grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false },
    };
    // No finer than what is written at them.
    const steps = [
      ...[1, 2, 5, 10, 15, 30].map((count) => 60 * count),
      ...[1, 2, 3, 6, 12].map((count) => 3600 * count),
      ...[1, 2, 3, 4, 7, 14, 28].map((count) => 86400 * count),
    ];
    const edge = { stroke: "transparent", points: { show: false } };
    return {
      width: box.clientWidth - 8, height: box.clientHeight - 16,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { size: 7 }, y: false },
      padding: [10, 16, 0, 0],
      scales: { x: { time: true }, y: { range: () => data.range } },
      axes: [
        { ...axis, grid: { show: false }, space: 70, incrs: steps, values: (_, ticks) => ticks.map(moment) },
        { ...axis, size: 62, values: (_, ticks) => ticks.map(short) },
      ],
      series: [
        {},
        { ...edge }, { stroke: colour("--accent"), width: 2, points: { show: false } }, { ...edge },
      ],
      bands: [{ series: [3, 1], fill: colour("--band") }],
      hooks: {
        drawClear: [spans],
        draw: [marks],
        setCursor: [(plot) => tell(plot.cursor.idx ?? data.at.length - 1)],
      },
    };
  }

  function draw() {
    figure.hidden = data === null;
    if (data === null) return;
    chart?.destroy();
    chart = new uPlot(options(), [data.at, data.low, data.lift, data.high], box);
    figure.querySelector("[data-unit]").textContent = `, ${data.unit}`;
    figure.querySelector("[data-held]").hidden = data.held.length === 0;
    figure.querySelector("[data-fired]").hidden = data.fired === null;
    tell(data.at.length - 1);
  }

  box.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || !chart) return;
    event.preventDefault();
    const last = data.at.length - 1;
    const place = Math.min(Math.max((chart.cursor.idx ?? last) + step, 0), last);
    const left = chart.valToPos(data.at[place], "x");
    chart.setCursor({ left, top: chart.valToPos(data.lift[place], "y") });
  });
  new ResizeObserver(() => {
    chart?.setSize({ width: box.clientWidth - 8, height: box.clientHeight - 16 });
  }).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.plot = (fresh) => { data = fresh; draw(); };
  draw();
})();
