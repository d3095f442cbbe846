"use strict";
// The list of a run's samples and what opens when one is chosen. All texts are set as text and never parsed.
(() => {
  const data = JSON.parse(document.getElementById("samples").textContent);
  const NAMES = ["problem", "sample", "verdict", "answered", "gold", "calls", "tokens", "seconds", "ended", "its base"];
  const NUMBERS = new Set(["sample", "calls", "tokens", "seconds"]);
  const verdict = (value) => (value === true ? "right" : value === false ? "wrong" : value === null ? "not judged" : "");
  const make = (name, attributes = {}, text = null) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    return node;
  };
  const seen = (text) => String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (sign) => `\\u${sign.codePointAt(0).toString(16).padStart(4, "0")}`);
  const kinds = (row) => {
    const [, , mine, , , , , , , theirs] = row;
    const found = [verdict(mine).replace(" ", "_")];
    if (theirs === true && mine === false) found.push("lost");
    if (theirs === false && mine === true) found.push("won");
    return found.join(" ");
  };

  const columns = NAMES.map((_, index) => index).filter((index) => (index !== 1 || data.several) && (index !== 9 || data.base));
  const here = document.getElementById("samples-here");
  const controls = here.appendChild(make("div", { class: "controls", "data-for": "list" }));
  const filter = controls.appendChild(make("label", {}, "Filter "));
  filter.append(make("input", { type: "search", placeholder: "problem, answer ..." }));
  const choice = controls.appendChild(make("label", {}, "Show "));
  const select = choice.appendChild(make("select"));
  const offers = [["", "all"], ["right", "right"], ["wrong", "wrong"], ["not_judged", "not judged"]];
  if (data.base) offers.push(["lost", `only its base was right`], ["won", "only this run was right"]);
  for (const [value, text] of offers) {
    const n = value ? data.rows.filter((row) => kinds(row).split(" ").includes(value)).length : data.rows.length;
    if (n || !value) select.append(make("option", { value }, `${text} (${n})`));
  }
  controls.append(make("span", { class: "count", role: "status" }));
  const box = here.appendChild(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Samples" }));
  const table = box.appendChild(make("table", { id: "list", class: "list", "data-noun": "sample" }));
  table.append(make("caption", {}, "Samples in the order of the source; a problem opens its replay or its text"));
  const head = table.createTHead().insertRow();
  for (const index of columns) {
    const cell = head.appendChild(make("th", { scope: "col", ...(NUMBERS.has(NAMES[index]) ? {} : { class: "words" }) }));
    cell.append(make("button", { type: "button" }, NAMES[index]));
  }
  const body = table.createTBody();
  data.rows.forEach((row, at) => {
    const line = body.insertRow();
    line.dataset.kind = kinds(row);
    for (const index of columns) {
      if (index === 0) {
        const name = line.appendChild(make("th", { scope: "row", "data-label": "problem" }));
        name.dataset.v = at;
        const button = name.appendChild(make("button", { type: "button", class: "open" }));
        button.append(make("bdi", {}, seen(row[0])));
        button.addEventListener("click", () => open(at));
        continue;
      }
      const raw = index === 2 || index === 9 ? verdict(row[index]) : row[index];
      const text = raw === null || raw === "" ? "–" : typeof raw === "number" ? String(raw) : raw;
      const cell = line.appendChild(make("td", { "data-label": NAMES[index], ...(NUMBERS.has(NAMES[index]) ? {} : { class: "words" }) }));
      cell.append(make("bdi", {}, typeof text === "string" ? seen(text) : text));
      if (index === 2) cell.classList.add(String(text).replace(" ", "-"));
      cell.dataset.v = raw === null ? "" : String(raw);
    }
  });
  window.startTable(table);

  const files = new Map();
  window.replayData = (name, samples) => { files.get(name).samples = { ...files.get(name).samples, ...samples }; };
  function load(name, chunk) {
    if (!files.has(name)) files.set(name, { samples: {}, loaded: new Map() });
    const { loaded } = files.get(name);
    if (!loaded.has(chunk)) {
      loaded.set(chunk, new Promise((done) => {
        const script = make("script", { src: `${encodeURIComponent(name)}-${chunk}.js` });
        script.addEventListener("load", done); script.addEventListener("error", done);
        document.head.append(script);
      }));
    }
    return loaded.get(chunk);
  }

  const opened = document.getElementById("opened");
  async function open(at, move = true) {
    const row = data.rows[at], key = data.several ? JSON.stringify([row[0], row[1]]) : row[0];
    opened.hidden = false;
    const title = make("h2", { tabindex: "-1" });
    title.append("Problem ", make("bdi", {}, seen(row[0])), data.several ? `, sample ${row[1]}` : "");
    const said = make("p");
    said.append(`${verdict(row[2])}: answered `, make("bdi", {}, seen(row[3] ?? "nothing")), ", gold ", make("bdi", {}, seen(row[4] ?? "–")), data.base ? `; its base was ${verdict(row[9]) || "not asked"}` : "", ".");
    opened.replaceChildren(title, said);
    history.replaceState(null, "", `#sample=${encodeURIComponent(key)}`);
    if (move) { title.focus({ preventScroll: true }); opened.scrollIntoView({ block: "start" }); }
    if (at >= data.opened) {
      opened.append(make("p", { class: "note" }, `This report holds the replays of the first ${data.opened} samples. For this one: `),
        make("pre", {}, `python -m analysis replay ${data.run} --sample ${JSON.stringify(row[0])}`));
      return;
    }
    const wanted = [[data.name, at]];
    if (data.base && row[10] >= 0 && row[10] < data.opened) wanted.push([data.base.name, row[10]]);
    await Promise.all(wanted.map(([name, place]) => load(name, Math.floor(place / data.chunk))));
    if (opened.firstChild !== title) return;  // another one was opened meanwhile
    const found = wanted.map(([name, place]) => files.get(name)?.samples[place]).filter(Boolean);
    const traces = found.filter((one) => one.steps);
    const [mine] = found;
    if (!mine) return opened.append(make("p", { class: "note" }, "The file with this replay is not beside this page."));
    if (!mine.steps) {
      opened.append(make("p", { class: "note" }, mine.no_replay));
      for (const [name, text] of [["The prompt", mine.prompt], ["The answer", mine.completion], ["The error", mine.error]]) {
        if (text) opened.append(make("h3", {}, name), make("pre", { tabindex: "0" }, text));
      }
      return;
    }
    const root = make("section", { class: "replay", "data-keys": "inside", "aria-label": `Replay of ${row[0]}` });
    const prompt = root.appendChild(make("details"));
    prompt.append(make("summary", {}, "The prompt"), make("pre", { tabindex: "0" }, mine.prompt));
    opened.append(root);
    window.startReplay(root, traces);
  }
  const wanted = /^#sample=(.*)$/.exec(location.hash);
  if (wanted) {
    let key = null;
    try { key = decodeURIComponent(wanted[1]); } catch { /* no key of ours */ }
    const at = data.rows.findIndex((row) => JSON.stringify([row[0], row[1]]) === key || row[0] === key);
    if (at >= 0) open(at);
  }
})();
