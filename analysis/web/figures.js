"use strict";
// Words of the point under the pointer, under a finger, or chosen by the arrow keys. Words are text and are never parsed.
(() => {
  const tip = document.createElement("div");
  tip.className = "tip"; tip.setAttribute("role", "status"); tip.hidden = true;
  document.body.append(tip);
  let chosen = null;

  function show(point) {
    chosen?.classList.remove("chosen");
    chosen = point;
    tip.hidden = !point;
    if (!point) return;
    point.classList.add("chosen");
    const [first, ...rest] = point.dataset.tip.split("\n");
    const strong = document.createElement("strong");
    strong.textContent = first; strong.dir = "auto";
    tip.replaceChildren(strong, ...rest.map((line) => { const node = document.createElement("div"); node.textContent = line; node.dir = "auto"; return node; }));
    const at = point.getBoundingClientRect(), box = tip.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left + at.width / 2 - box.width / 2, document.documentElement.clientWidth - box.width - 8));
    const above = at.top - box.height - 8;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${(above > 0 ? above : at.bottom + 8) + scrollY}px`;
  }

  for (const group of document.querySelectorAll("[data-tips]")) {
    const points = [...group.querySelectorAll("[data-tip]")];
    group.addEventListener("pointerover", (event) => show(event.target.closest("[data-tip]")));
    group.addEventListener("pointerleave", () => show(null));
    group.addEventListener("pointerdown", (event) => show(event.target.closest("[data-tip]")));
    group.addEventListener("blur", () => show(null));
    group.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") return show(null);
      if (!by || !points.length || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const now = points.indexOf(chosen);
      show(points[now < 0 ? (by > 0 ? 0 : points.length - 1) : (now + by + points.length) % points.length]);
    });
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") show(null); });
})();
