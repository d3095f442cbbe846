// Every visible text whose contrast with what is behind it is below 4.5: [text, ratio, colour, background].
() => {
  const numbers = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const parse = (colour) => {
    const [r, g, b, a = 1] = colour.startsWith("color(") ? numbers(colour).map((part, index) => (index < 3 ? 255 * part : part)) : numbers(colour);
    return { rgb: [r, g, b], a };
  };
  const over = (front, back) => front.rgb.map((part, index) => front.a * part + (1 - front.a) * back[index]);
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((part) => { const x = part / 255; return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    const layers = [];
    for (let one = node; one; one = one.parentElement) {
      const style = getComputedStyle(one);
      layers.push(parse(style.backgroundColor));
    }
    return layers.reverse().reduce((back, layer) => (layer.a ? over(layer, back) : back), [255, 255, 255]);
  };
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), node = walker.currentNode.parentElement;
    if (!text || node.closest("script, style, noscript, .masked, option") || !node.checkVisibility({ visibilityProperty: true })) continue;
    const style = getComputedStyle(node);
    let opacity = 1;
    for (let one = node; one; one = one.parentElement) opacity *= Number(getComputedStyle(one).opacity);
    const back = behind(node), colour = parse(node.closest("svg") ? style.fill : style.color);
    const front = over({ rgb: colour.rgb, a: colour.a * opacity }, back);
    const [low, high] = [luminance(front), luminance(back)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (!(ratio >= 4.5)) found.set(`${style.color}${node.className}`, [text.slice(0, 40), Math.round(100 * ratio) / 100, node.closest("svg") ? style.fill : style.color, String(back.map(Math.round))]);
  }
  return [...found.values()];
}
