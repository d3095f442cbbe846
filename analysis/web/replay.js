"use strict";
// One replay for each [data-replay] element. Frame t shows the text after the first t calls.
(() => {
  const make = (name, attributes = {}, text = null) => {
    const node = name === "svg" || attributes.svg
      ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) if (key !== "svg") node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    return node;
  };
  const byStep = (share) => `hsl(${265 - 215 * share} 55% ${68 + 16 * share}%)`;
  const byConfidence = (prob) => {
    if (prob === null) return "hsl(0 0% 78%)";
    const share = Math.max(0, Math.min(1, (prob - 0.3) / 0.7));
    return `hsl(${20 + 160 * share} 60% ${66 + 16 * share}%)`;
  };
  const ramp = (colour) => `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map(colour).join(", ")})`;
  const visible = (text) => text.replace(/\n/g, "↵\n");

  // When each position was filled, and with which probability (null: a lookahead token, whose own is not recorded).
  function arrivals(run) {
    const found = new Map();
    run.steps.forEach((step, index) => {
      if (step.extra !== null) found.set(step.extra, { at: index + 1, prob: null });
      for (const [position, prob] of step.fill) found.set(position, { at: index + 1, prob });
    });
    return found;
  }

  class Side {
    constructor(run, frames) {
      this.run = run; this.frames = frames; this.arrival = arrivals(run);
      this.node = make("div", { class: "side", role: "group", "aria-label": run.title });
      this.node.append(make("h4", {}, run.title));
      this.status = this.node.appendChild(make("p", { class: "status" }));
      const box = this.node.appendChild(make("div", { class: "text", role: "group", "aria-label": "text so far" }));
      this.tokens = run.tokens.map((token) => box.appendChild(make("span", { class: "token" }, visible(token.text))));
      this.drawOrder();
      this.branches = this.node.appendChild(make("div", { class: "branches" }));
      this.verdict = this.node.appendChild(make("p", { class: "status" }));
    }
    // Position from left to right, call from top to bottom: a diagonal is left-to-right text.
    drawOrder() {
      const svg = make("svg", { class: "order", viewBox: "0 0 400 110", preserveAspectRatio: "none", role: "img",
        "aria-label": "filling order: position against call" });
      const n = Math.max(1, this.run.tokens.length - 1);
      this.dots = new Map();
      for (const [position, { at }] of this.arrival) {
        const dot = make("rect", { svg: true, x: 4 + 388 * position / n - 1.5, y: 4 + 98 * (at - 1) / Math.max(1, this.frames - 1), width: 3, height: 5 });
        this.dots.set(position, svg.appendChild(dot));
      }
      this.node.append(svg, make("p", { class: "status" }, "Filling order: position from left to right, call from top to bottom."));
    }
    show(frame, colourBy) {
      const at = Math.min(frame, this.run.steps.length);
      const step = at > 0 ? this.run.steps[at - 1] : null;
      const next = this.run.steps[at] ?? null;
      const tried = new Set((next?.branches ?? []).map((branch) => branch.position).filter((p) => p !== null));
      let filled = 0;
      this.tokens.forEach((node, position) => {
        const arrival = this.arrival.get(position);
        const here = arrival !== undefined && arrival.at <= at;
        const fresh = here && arrival.at === at && frame <= this.run.steps.length;
        node.className = ["token", here ? "filled" : "masked", fresh ? "fresh" : "", tried.has(position) && !here ? "tried" : "",
          this.run.tokens[position].behind ? "behind" : ""].join(" ").trim();
        if (here) node.removeAttribute("aria-hidden"); else node.setAttribute("aria-hidden", "true");
        const colour = here ? (colourBy === "step" ? byStep((arrival.at - 1) / Math.max(1, this.frames - 1)) : byConfidence(arrival.prob)) : "";
        node.style.background = colour;
        node.title = here ? `position ${position}, call ${arrival.at}` + (arrival.prob === null ? ", lookahead token" : `, probability ${arrival.prob.toFixed(3)}`) : "";
        const dot = this.dots.get(position);
        if (dot) { dot.style.fill = here ? colour : "none"; dot.style.stroke = here ? "rgb(0 0 0 / .35)" : "none"; dot.style.strokeWidth = "0.5"; }
        filled += here ? 1 : 0;
      });
      const calls = this.run.steps.slice(0, at).filter((one) => one.call).length;
      const rate = calls ? `, ${(filled / calls).toFixed(2)} a call` : "";
      const done = at === this.run.steps.length ? ", done" : "";
      this.status.textContent = `call ${calls} of ${this.run.calls}: ${filled} of ${this.tokens.length} positions${rate}${done}`;
      this.verdict.textContent = done ? this.run.verdict : "\u00a0";
      this.showBranches(step);
      return this.describe(step, at, frame, calls);
    }
    showBranches(step) {
      const branches = step?.branches ?? [];
      if (step && !step.call) return this.branches.replaceChildren(make("p", { class: "status" }, "A lookahead branch was complete: no further call."));
      if (branches.length < 2) return this.branches.replaceChildren(make("p", { class: "status" }, step ? "One branch: nothing to choose from." : "No call yet."));
      const table = make("table");
      table.append(make("caption", {}, branches[0].score === null ? "Rows of this call. Each assumed what is shown beyond the row before it; the call was followed as far as it confirmed them." : "Branches of this call. Each tried one more token; the best score won."));
      const head = table.appendChild(make("thead")).appendChild(make("tr"));
      for (const text of ["branch", "extra token", "score", ""]) head.append(make("th", { scope: "col" }, text));
      const body = table.appendChild(make("tbody"));
      const scores = branches.map((branch) => branch.score);
      const low = Math.min(...scores), span = Math.max(...scores) - low || 1;
      branches.forEach((branch, rank) => {
        const row = body.appendChild(make("tr", branch.won ? { class: "won" } : {}));
        row.append(make("th", { scope: "row" }, (rank === 0 ? "anchor" : String(rank)) + (branch.won ? " ✓ won" : "")));
        row.append(make("td", { class: "extra" }, branch.text === null ? "–" : `${visible(branch.text).replace("\n", "")} at ${branch.position}`));
        row.append(make("td", {}, branch.score === null ? "–" : branch.score.toFixed(3).replace("-", "−")));
        const meter = row.appendChild(make("td", { class: "meter", "aria-hidden": "true" }));
        meter.append(make("span", { style: `width:${8 + 92 * (branch.score - low) / span}%` }));
      });
      this.branches.replaceChildren(table);
    }
    describe(step, at, frame, calls) {
      if (!step) return `${this.run.title}: all masked.`;
      if (frame > this.run.steps.length) return `${this.run.title}: done after ${calls} calls.`;
      const places = [...(step.extra === null ? [] : [step.extra]), ...step.fill.map(([position]) => position)].sort((a, b) => a - b);
      const words = places.slice(0, 12).map((position) => this.run.tokens[position].text.trim() || "space").join(", ") + (places.length > 12 ? ", and more" : "");
      const winner = step.branches.findIndex((branch) => branch.won);
      return `${this.run.title}, call ${calls}: ${places.length} filled: ${words}.` + (winner > 0 ? ` Branch ${winner} won.` : "");
    }
  }

  function start(root, runs) {
    const frames = Math.max(...runs.map((run) => run.steps.length));
    const state = { frame: 0, timer: null, colourBy: "step" };
    const bar = root.appendChild(make("div", { class: "bar" }));
    const button = (text, label, action) => {
      const node = bar.appendChild(make("button", { type: "button", "aria-label": label }, text));
      node.addEventListener("click", action);
      return node;
    };
    const play = button("▶ Play", "Play", () => (state.timer === null ? run() : pause()));
    button("◀", "One step back", () => step(-1));
    button("▶|", "One step forward", () => step(1));
    button("↺", "Back to the start", () => go(0));
    const slider = bar.appendChild(make("input", { type: "range", min: 0, max: frames, value: 0, "aria-label": "Call" }));
    slider.addEventListener("input", () => { pause(); go(Number(slider.value)); });
    const choice = (label, options, action) => {
      const holder = bar.appendChild(make("label", {}, `${label} `));
      const select = holder.appendChild(make("select"));
      for (const [value, text] of options) select.append(make("option", { value }, text));
      select.addEventListener("change", () => action(select.value));
      return select;
    };
    choice("colour", [["step", "by call"], ["confidence", "by confidence"]], (value) => { state.colourBy = value; go(state.frame); });
    const speed = choice("speed", [["700", "slow"], ["350", "normal"], ["140", "fast"]], () => { if (state.timer !== null) { pause(); run(); } });
    speed.value = "350";
    const legend = bar.appendChild(make("span", { class: "legend" }));
    const live = root.appendChild(make("p", { class: "status", role: "status", "aria-live": "polite" }));
    const sides = root.appendChild(make("div", { class: "sides" }));
    const views = runs.map((one) => new Side(one, frames));
    for (const view of views) sides.append(view.node);
    root.append(make("p", { class: "keys" }, "Keys: space plays and pauses, ← and → step, Home and End jump. Outlined tokens were filled in this call; hatched places are tried by the next call's branches."));

    function go(frame) {
      state.frame = Math.max(0, Math.min(frames, frame));
      slider.value = state.frame;
      slider.setAttribute("aria-valuetext", `call ${state.frame} of ${frames}`);
      const texts = views.map((view) => view.show(state.frame, state.colourBy));
      if (state.timer === null) live.textContent = texts.join(" ");
      const steps = state.colourBy === "step";
      legend.replaceChildren(make("span", {}, steps ? "first call" : "probability 0.3"),
        make("span", { class: "ramp", style: `background:${steps ? ramp(byStep) : ramp((x) => byConfidence(0.3 + 0.7 * x))}` }),
        make("span", {}, steps ? "last" : "1 (grey: lookahead token)"));
      root.dataset.frame = state.frame;
    }
    function step(by) { pause(); go(state.frame + by); }
    function run() {
      if (state.frame >= frames) go(0);
      live.textContent = "Playing.";
      state.timer = setInterval(() => { if (state.frame >= frames) pause(); else go(state.frame + 1); }, Number(speed.value));
      label("❚❚ Pause", "Pause", "true");
    }
    function pause() {
      if (state.timer === null) return;
      clearInterval(state.timer);
      state.timer = null;
      label("▶ Play", "Play", "false");
      go(state.frame);
    }
    function label(text, name, playing) {
      play.textContent = text; play.setAttribute("aria-label", name); root.dataset.playing = playing;
    }
    const keys = {
      " ": () => (state.timer === null ? run() : pause()), ArrowRight: () => step(1), ArrowLeft: () => step(-1),
      Home: () => { pause(); go(0); }, End: () => { pause(); go(frames); },
    };
    (root.dataset.keys === "page" ? document : root).addEventListener("keydown", (event) => {
      const own = event.target.closest("input, select, summary, a, pre");
      const pressed = event.key === " " && event.target.closest("button");
      if (own || pressed || !keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    if (root.dataset.keys !== "page") root.tabIndex = 0;
    root.dataset.playing = "false";
    go(0);
  }

  window.startReplay = start;
  for (const root of document.querySelectorAll("[data-replay]")) {
    start(root, JSON.parse(root.querySelector("script[type='application/json']").textContent).runs);
  }
})();
