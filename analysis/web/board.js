"use strict";
// Tables that sort by their heads and filter by a text. Rows beyond the first ones wait behind a button.
(() => {
  const FIRST = 10;
  const letters = new Intl.Collator("en", { numeric: true });
  const key = (row, column) => row.cells[column].dataset.v ?? row.cells[column].textContent.trim();
  const compare = (a, b) => {
    const numbers = [a, b].map(Number);
    return numbers.some(Number.isNaN) ? letters.compare(a, b) : numbers[0] - numbers[1];
  };

  const plain = (text) => text.toLowerCase().replace(/\s*=\s*/g, "=");  // "k = 8" is one word

  function start(table) {
    const body = table.tBodies[0], controls = document.querySelector(`[data-for="${table.id}"]`);
    const input = controls?.querySelector("input[type=search]"), count = controls?.querySelector(".count");
    const select = controls?.querySelector("select");
    const state = { all: false };
    const more = table.parentElement.insertAdjacentElement("afterend", document.createElement("button"));
    more.type = "button"; more.className = "more";
    more.addEventListener("click", () => { state.all = true; show(); });

    function show() {
      const words = plain(input?.value ?? "").split(/\s+/).filter(Boolean);
      const kind = select?.value ?? "";
      const rows = [...body.rows];
      const found = rows.filter((row) => {
        const text = plain(row.textContent);
        return words.every((word) => text.includes(word)) && (!kind || row.dataset.kind.split(" ").includes(kind));
      });
      const shown = new Set(state.all ? found : found.slice(0, FIRST));
      for (const row of rows) row.hidden = !shown.has(row);
      more.hidden = shown.size === found.length;
      more.textContent = `Show all ${found.length}`;
      const noun = `${table.dataset.noun ?? "run"}${rows.length === 1 ? "" : "s"}`;
      if (count) count.textContent = `${found.length === rows.length ? "" : `${found.length} of `}${rows.length} ${noun}`;
    }

    function sort(head) {
      const column = head.cellIndex, now = head.getAttribute("aria-sort");
      const high = now ? now === "ascending" : head.dataset.first === "high";
      for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", high ? "descending" : "ascending");
      const known = [], unknown = [];
      for (const row of body.rows) (key(row, column) === "" ? unknown : known).push(row);
      known.sort((a, b) => (high ? -1 : 1) * compare(key(a, column), key(b, column)));
      body.append(...known, ...unknown);  // what is not known stands last, whichever way
      show();
    }

    for (const head of table.tHead.rows[0].cells) head.querySelector("button")?.addEventListener("click", () => sort(head));
    input?.addEventListener("input", show);
    select?.addEventListener("change", show);
    show();
    table.refresh = show;
  }

  // A link into something folded opens it.
  function unfold() {
    let node = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    if (!node) return;
    const target = node;
    node.querySelector(":scope > details")?.setAttribute("open", "");
    for (; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    target.scrollIntoView();
  }
  window.addEventListener("hashchange", unfold);
  if (!location.hash.startsWith("#sample=")) unfold();

  window.startTable = start;
  for (const table of document.querySelectorAll("table[data-sortable]")) start(table);
  // Paper has no buttons: what is folded or waits is printed.
  window.addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details:not([open])")) { fold.open = true; fold.dataset.printed = ""; }
    for (const row of document.querySelectorAll("tr[hidden]")) { row.hidden = false; row.dataset.printed = ""; } });
  window.addEventListener("afterprint", () => {
    for (const fold of document.querySelectorAll("details[data-printed]")) { fold.open = false; delete fold.dataset.printed; }
    for (const row of document.querySelectorAll("tr[data-printed]")) { row.hidden = true; delete row.dataset.printed; } });
})();
