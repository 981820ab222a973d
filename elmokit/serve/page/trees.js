// Drawings with lines: arcs of semantic roles, and constituency trees.
"use strict";

Elmokit.textWidth = (() => {
  const context = document.createElement("canvas").getContext("2d");
  return (text, font = "15px Palatino, Georgia, serif") => { context.font = font; return context.measureText(text).width; };
})();

Elmokit.placeTokens = function (tokens, gap = 14) {
  let x = gap;
  return tokens.map((token) => {
    const width = Elmokit.textWidth(token) + 2, place = { start: x, middle: x + width / 2, end: x + width };
    x += width + gap;
    return place;
  });
};

Elmokit.drawArcs = function (prediction) {
  const { el, svg } = Elmokit;
  const places = Elmokit.placeTokens(prediction.tokens, 18);
  const spans = [...prediction.arguments].sort((a, b) => (a.end - a.start) - (b.end - b.start));
  const from = places[prediction.predicate.index].middle, step = 34, base = 30 + step * Math.max(1, spans.length);
  const distance = (one) => Math.abs((places[one.start].middle + places[one.end - 1].middle) / 2 - from);
  const roles = [...new Set(spans.map((one) => one.role))].sort();
  const arcs = [...spans].sort((a, b) => distance(a) - distance(b)).flatMap((one, rank) => {
    const to = (places[one.start].middle + places[one.end - 1].middle) / 2, top = base - 24 - step * (rank + 1) + step / 2, color = Elmokit.color(roles.indexOf(one.role));
    const start = from + (to < from ? -4 : 4);
    return [svg("path", { "--k": color, d: `M${start},${base - 18} C${start},${top} ${to},${top} ${to},${base - 18}` }),
      svg("path", { "--k": color, d: `M${to - 4},${base - 24} L${to},${base - 17} L${to + 4},${base - 24}` }),
      svg("line", { "--k": color, x1: places[one.start].start, x2: places[one.end - 1].end, y1: base + 8, y2: base + 8, "stroke-width": 3 }),
      svg("text.label", { x: (places[one.start].start + places[one.end - 1].end) / 2, y: base + 24, "text-anchor": "middle" }, one.role)];
  });
  const words = prediction.tokens.map((token, index) => svg("text", { x: places[index].middle, y: base, "text-anchor": "middle", "font-weight": index === prediction.predicate.index ? 700 : 400 }, token));
  const width = places[places.length - 1].end + 18;
  const label = `${prediction.predicate.token}: ${prediction.arguments.map((one) => `${one.role} ${one.tokens.join(" ")}`).join("; ") || "no arguments"}`;
  return el("div.scroll", { tabindex: 0, role: "region", "aria-label": "Roles" }, svg("svg.drawing", { width, height: base + 34, viewBox: `0 0 ${width} ${base + 34}`, role: "img", "aria-label": label }, arcs, words));
};

// Read a tree in Penn Treebank brackets: {label, children} with strings as leaves.
Elmokit.readBrackets = function (text) {
  const parts = text.match(/\(|\)|[^\s()]+/g);
  let place = 0;
  const read = () => {
    place += 1;
    const node = { label: parts[place] === "(" ? "" : parts[place++], children: [] };
    while (parts[place] !== ")") node.children.push(parts[place] === "(" ? read() : parts[place++]);
    place += 1;
    return node;
  };
  return read();
};

Elmokit.drawTree = function (prediction) {
  const { el, svg } = Elmokit;
  const places = Elmokit.placeTokens(prediction.tokens, 22), step = 42;
  const depth = (node) => (typeof node === "string" ? 0 : 1 + Math.max(...node.children.map(depth)));
  const tree = Elmokit.readBrackets(prediction.tree), height = depth(tree), marks = [];
  let leaf = 0;
  const place = (node, level) => {
    if (typeof node === "string") {
      const x = places[leaf].middle, y = 24 + step * height;
      leaf += 1;
      marks.push(svg("text", { x, y, "text-anchor": "middle" }, prediction.tokens[leaf - 1]));
      return { x, y: y - 15 };
    }
    const y = 24 + step * level, below = node.children.map((child) => place(child, level + 1));
    const x = (below[0].x + below[below.length - 1].x) / 2;
    for (const child of below) marks.push(svg("line", { x1: x, y1: y + 5, x2: child.x, y2: child.y }));
    if (node.label) marks.push(svg("text.label", { x, y, "text-anchor": "middle" }, node.label));
    return { x, y: y - 12 };
  };
  place(tree, 0);
  const width = places[places.length - 1].end + 22, bottom = 44 + step * height;
  return el("div.scroll", { tabindex: 0, role: "region", "aria-label": "Constituency tree" },
    svg("svg.drawing", { width, height: bottom, viewBox: `0 0 ${width} ${bottom}`, role: "img", "aria-label": prediction.tree }, marks));
};
