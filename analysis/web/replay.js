"use strict";
// One replay for each [data-replay] element. By call, frame t shows the text after the first t calls of each run; by the
// clock, what each run had filled when t milliseconds were over.
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
  const SLOWER = [1, 5, 20, 100];  // factors of the clock; the first that makes it last long enough to be seen is taken
  const SEEN_SECONDS = 6;
  const seconds = (value) => `${value < 1 ? value.toFixed(3) : value.toFixed(2)} s`;
  const place = (rank) => ["first", "second", "third", "fourth"][rank] ?? `${rank + 1}th`;

  // By position: when it was filled, with what and with which probability (null: a lookahead token, whose own is not
  // recorded, or an edit), and when it changed; text null: its token was taken back.
  function arrivals(run) {
    const found = new Map();
    const add = (position, event) => found.set(position, [...(found.get(position) ?? []), event]);
    run.steps.forEach((step, index) => {
      const at = index + 1;
      if (step.extra !== null) add(step.extra, { at, prob: null, text: run.tokens[step.extra].text });
      for (const [position, prob] of step.fill) add(position, { at, prob, text: run.tokens[position].text });
      for (const [position, before, behind] of step.edits ?? []) {
        found.get(position).at(-1).text = before;
        add(position, { at, prob: null, text: behind, edited: true });
      }
    });
    return found;
  }

  class Side {
    constructor(run, frames, scale) {
      this.run = run; this.frames = frames; this.scale = scale; this.arrival = arrivals(run);
      this.finish = run.steps.at(-1)?.done ?? null;
      this.node = make("div", { class: "side", role: "group", "aria-label": run.title });
      this.node.append(make("h3", {}, run.title));
      const track = this.node.appendChild(make("div", { class: "track", "aria-hidden": "true" }));
      this.runner = track.appendChild(make("span"));
      this.status = this.node.appendChild(make("p", { class: "status" }));
      this.node.append(make("p", { class: "verdict" }, run.verdict));
      const box = this.node.appendChild(make("div", { class: "text", role: "group", "aria-label": "text so far" }));
      this.tokens = run.tokens.map((token) => box.appendChild(make("span", { class: "token" }, visible(token.text))));
      this.drawOrder();
      this.branches = this.node.appendChild(make("div", { class: "branches" }));
    }
    // How many steps were over at this frame.
    at(frame, byClock) {
      if (!byClock) return Math.min(frame, this.run.steps.length);
      return this.run.steps.filter((step) => step.done * 1000 <= frame + 1e-6).length;
    }
    // Position from left to right, call from top to bottom: a diagonal is left-to-right text.
    drawOrder() {
      const svg = make("svg", { class: "order", viewBox: "0 0 400 110", preserveAspectRatio: "none", role: "img",
        "aria-label": "filling order: position against call" });
      const n = Math.max(1, this.run.tokens.length - 1);
      this.dots = new Map();
      for (const [position, events] of this.arrival) {
        const { at } = events.at(-1);
        const dot = make("rect", { svg: true, x: 4 + 388 * position / n - 1.5, y: 4 + 98 * (at - 1) / Math.max(1, this.frames - 1), width: 3, height: 5 });
        this.dots.set(position, svg.appendChild(dot));
      }
      this.node.append(svg, make("p", { class: "status" }, "Filling order: position from left to right, call from top to bottom."));
    }
    show(frame, colourBy, byClock, rank) {
      const at = this.at(frame, byClock);
      const step = at > 0 ? this.run.steps[at - 1] : null;
      const next = this.run.steps[at] ?? null;
      const tried = new Set((next?.branches ?? []).map((branch) => branch.position).filter((p) => p !== null));
      let filled = 0;
      this.tokens.forEach((node, position) => {
        const arrival = this.arrival.get(position)?.findLast((event) => event.at <= at);
        const here = arrival !== undefined && arrival.text !== null;
        const words = visible(here ? arrival.text : this.run.tokens[position].text);
        if (node.textContent !== words) node.textContent = words;
        const fresh = here && arrival.at === at && (byClock ? at < this.run.steps.length : frame <= this.run.steps.length);
        node.className = ["token", here ? "filled" : "masked", fresh ? "fresh" : "", tried.has(position) && !here ? "tried" : "",
          this.run.tokens[position].behind ? "behind" : ""].join(" ").trim();
        if (here) node.removeAttribute("aria-hidden"); else node.setAttribute("aria-hidden", "true");
        const colour = here ? (colourBy === "step" ? byStep((arrival.at - 1) / Math.max(1, this.frames - 1)) : byConfidence(arrival.prob)) : "";
        node.style.background = colour;
        node.title = here ? `position ${position}, call ${arrival.at}` + (arrival.edited ? ", edited" : arrival.prob === null ? ", lookahead token" : `, probability ${arrival.prob.toFixed(3)}`) : "";
        const dot = this.dots.get(position);
        if (dot) { dot.style.fill = here ? colour : "none"; dot.style.stroke = here ? "rgb(0 0 0 / .35)" : "none"; dot.style.strokeWidth = "0.5"; }
        filled += here ? 1 : 0;
      });
      const calls = this.run.steps.slice(0, at).filter((one) => one.call).length;
      const rate = calls ? `, ${(filled / calls).toFixed(2)} a call` : "";
      const isDone = at === this.run.steps.length;
      const end = byClock ? ` after ${seconds(this.finish)}` : "";
      const done = isDone ? `, done${end}${rank === null ? "" : `, ${place(rank)}`}` : "";
      this.status.textContent = `call ${calls} of ${this.run.calls}: ${filled} of ${this.tokens.length} positions${rate}${done}`;
      this.runner.style.width = `${100 * filled / Math.max(1, this.tokens.length)}%`;
      this.node.classList.toggle("done", isDone);
      this.showBranches(step);
      return this.describe(step, byClock ? isDone : frame > this.run.steps.length, calls);
    }
    showBranches(step) {
      const branches = step?.branches ?? [];
      if (step && !step.call) return this.branches.replaceChildren(make("p", { class: "status" }, "A lookahead branch was complete: no further call."));
      if (branches.length < 2) return this.branches.replaceChildren(make("p", { class: "status" }, step ? "One branch: nothing to choose from." : "No call yet."));
      const table = make("table");
      table.append(make("caption", {}, branches[0].score === null ? "Rows of this call. Each assumed what is shown beyond the row before it; the call was followed as far as it confirmed them." : "Branches of this call. Each tried one more token; the best score won."));
      const head = table.appendChild(make("thead")).appendChild(make("tr"));
      const [low, high] = this.scale;
      const isScored = branches[0].score !== null;
      const bars = `bars: ${low.toFixed(1).replace("-", "−")} to ${high.toFixed(1)}`;
      for (const text of ["branch", "extra token", ...(isScored ? ["score", bars] : [])]) head.append(make("th", { scope: "col" }, text));
      const body = table.appendChild(make("tbody"));
      branches.forEach((branch, rank) => {
        const row = body.appendChild(make("tr", branch.won ? { class: "won" } : {}));
        row.append(make("th", { scope: "row" }, (rank === 0 ? "anchor" : String(rank)) + (branch.won ? " ✓ won" : "")));
        row.append(make("td", { class: "extra" }, branch.text === null ? "–" : `${visible(branch.text).replace("\n", "")} at ${branch.position}`));
        if (!isScored) return;
        row.append(make("td", {}, branch.score.toFixed(3).replace("-", "−")));
        const meter = row.appendChild(make("td", { class: "meter", "aria-hidden": "true" }));
        meter.append(make("span", { style: `width:${100 * (branch.score - low) / (high - low || 1)}%` }));
      });
      this.branches.replaceChildren(table);
    }
    describe(step, isOver, calls) {
      if (!step) return `${this.run.title}: all masked.`;
      if (isOver) return `${this.run.title}: done after ${calls} calls.`;
      const places = [...(step.extra === null ? [] : [step.extra]), ...step.fill.map(([position]) => position)].sort((a, b) => a - b);
      const words = places.slice(0, 12).map((position) => this.run.tokens[position].text.trim() || "space").join(", ") + (places.length > 12 ? ", and more" : "");
      const winner = step.branches.findIndex((branch) => branch.won);
      return `${this.run.title}, call ${calls}: ${places.length} filled: ${words}.` + (step.edits?.length ? ` ${step.edits.length} edited or taken back.` : "") + (winner > 0 ? ` Branch ${winner} won.` : "");
    }
  }

  // In which order the runs were done; two that took the same time share a place.
  function finishing(runs, isTimed) {
    if (!isTimed || runs.length < 2) return runs.map(() => null);
    const ends = runs.map((run) => run.steps.at(-1).done);
    return ends.map((end) => ends.filter((other) => other < end).length);
  }

  // One scale for the scores of all calls and runs: bars of two calls can be compared.
  function scaleOf(runs) {
    const scores = runs.flatMap((run) => run.steps.flatMap((step) => (step.branches.length > 1 ? step.branches.map((branch) => branch.score) : [])));
    const known = scores.filter((score) => score !== null);
    return known.length ? [Math.min(0, ...known), Math.max(0, ...known)] : [0, 1];
  }

  function start(root, runs) {
    const frames = Math.max(...runs.map((run) => run.steps.length));
    const isTimed = runs.every((run) => run.steps.every((step) => step.done !== null));
    const duration = isTimed ? Math.ceil(1000 * Math.max(...runs.map((run) => run.steps.at(-1).done))) : 0;
    const ranks = finishing(runs, isTimed);
    const state = { frame: 0, timer: null, colourBy: "step", byClock: false };
    const last = () => (state.byClock ? duration : frames);
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
    const ways = [["call", "by call"], ...(isTimed ? [["clock", "by the clock"]] : [])];
    choice("pace", ways, (value) => setWay(value === "clock")).title = isTimed ? "" : "not all of these runs have a time for each call";
    choice("colour", [["step", "by call"], ["confidence", "by confidence"]], (value) => { state.colourBy = value; go(state.frame); });
    const speed = choice("speed", [], () => { if (state.timer !== null) { pause(); run(); } });
    const legend = bar.appendChild(make("span", { class: "legend" }));
    const live = root.appendChild(make("p", { class: "status", role: "status", "aria-live": "polite" }));
    const sides = root.appendChild(make("div", { class: "sides" }));
    const scale = scaleOf(runs);
    const views = runs.map((one) => new Side(one, frames, scale));
    for (const view of views) sides.append(view.node);
    root.append(make("p", { class: "keys" }, "Keys: space plays and pauses, ← and → step, Home and End jump. Outlined tokens were filled in this call; hatched places are tried by the next call's branches; dotted ones stand behind the end of the answer."));

    function setWay(byClock) {
      pause();
      state.byClock = byClock;
      const fit = SLOWER.find((factor) => duration * factor >= 1000 * SEEN_SECONDS) ?? SLOWER.at(-1);
      const options = byClock
        ? SLOWER.map((factor) => [String(factor), factor === 1 ? "real time" : `${factor} times slower`])
        : [["700", "slow"], ["350", "normal"], ["140", "fast"]];
      speed.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
      speed.value = byClock ? String(fit) : "350";
      slider.max = last();
      slider.setAttribute("aria-label", byClock ? "Milliseconds" : "Call");
      go(byClock ? 0 : 1);
    }
    function go(frame) {
      state.frame = Math.max(0, Math.min(last(), frame));
      slider.value = state.frame;
      slider.setAttribute("aria-valuetext", state.byClock ? `${Math.round(state.frame)} of ${duration} ms` : `call ${state.frame} of ${frames}`);
      const texts = views.map((view, index) => view.show(state.frame, state.colourBy, state.byClock, state.byClock ? ranks[index] : null));
      if (state.timer === null) live.textContent = texts.join(" ");
      const steps = state.colourBy === "step";
      const clock = state.byClock ? `${seconds(state.frame / 1000)} · ` : "";
      legend.replaceChildren(make("span", { class: "clock" }, clock), make("span", {}, steps ? "first call" : "probability 0.3"),
        make("span", { class: "ramp", style: `background:${steps ? ramp(byStep) : ramp((x) => byConfidence(0.3 + 0.7 * x))}` }),
        make("span", {}, steps ? "last" : "1 (grey: lookahead token or edit)"));
      root.dataset.frame = Math.round(state.frame);
    }
    // By the clock: to the end of the next or the last call of any run.
    function step(by) {
      pause();
      if (!state.byClock) return go(state.frame + by);
      const ends = runs.flatMap((one) => one.steps.map((own) => 1000 * own.done)).sort((a, b) => a - b);
      go(by > 0 ? ends.find((end) => end > state.frame + 1e-6) ?? duration : ends.findLast((end) => end < state.frame - 1e-6) ?? 0);
    }
    function run() {
      if (state.frame >= last()) go(0);
      live.textContent = "Playing.";
      label("❚❚ Pause", "Pause", "true");
      if (!state.byClock) {
        state.timer = setInterval(() => { if (state.frame >= frames) pause(); else go(state.frame + 1); }, Number(speed.value));
        return;
      }
      const began = performance.now(), from = state.frame, factor = Number(speed.value);
      state.timer = setInterval(() => {
        go(from + (performance.now() - began) / factor);
        if (state.frame >= duration) pause();
      }, 30);
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
      Home: () => { pause(); go(0); }, End: () => { pause(); go(last()); },
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
    setWay(false);
  }

  window.startReplay = start;
  for (const root of document.querySelectorAll("[data-replay]")) {
    start(root, JSON.parse(root.querySelector("script[type='application/json']").textContent).runs);
  }
})();
