// Layers: the cosine of every token with every other, layer by layer.
"use strict";

Elmokit.views.layers = {
  title: "Layers",
  intro: "How alike are the tokens of two sentences? In the token layer a word looks the same everywhere. Move up, and its context shows.",
  defaults: { a: "She sat on the bank of the river.", b: "He put his money in the bank.", layer: "", pair: "" },

  mount(root, params, set) {
    const { el } = Elmokit;
    const numLayers = Elmokit.info.num_layers;
    const texts = Object.keys((Elmokit.recorded || {}).sentences || {});
    const choose = () => set({ a: first.value, b: second.value, pair: "" });
    const first = Elmokit.textField("a", 2, texts, choose), second = Elmokit.textField("b", 2, ["", ...texts], choose);
    const form = el("form.ask", { onsubmit: (event) => { event.preventDefault(); choose(); } },
      el("div.two", {}, el("div", {}, el("label", { for: "a" }, "First sentence"), first),
        el("div", {}, el("label", { for: "b" }, "Second sentence (empty: compare the first with itself)"), second)),
      Elmokit.recorded ? null : el("div", {}, el("button.go", {}, "Compare")));
    const chosen = params.layer === "" ? numLayers - 1 : Number(params.layer);
    const slider = Elmokit.layerSlider(numLayers, chosen, (layer) => set({ layer: String(layer) }));
    const result = el("div"), code = Elmokit.codePanel();
    root.append(form, el("div.card", {}, slider), result, code);
    let drawn = null;
    return (now) => {
      first.value = now.a;
      second.value = now.b;
      const chosenTexts = [now.a, now.b].filter((text) => text.trim());
      if (!chosenTexts.length) { result.replaceChildren(el("p.notice", {}, "Type a sentence to begin.")); return; }
      const body = { inputs: chosenTexts, encoding_format: "base64" };
      code.update(`from elmokit import Embedder\n\nembedder = Embedder.from_pretrained(${Elmokit.pythonModel()})\nfor sentence in embedder.embed(${Elmokit.python(chosenTexts)}):\n    print(sentence.tokens, sentence.layers.shape)`, "/layers", body);
      Elmokit.fill(result, async () => {
        const answer = await Elmokit.call("/layers", body);
        return () => {
          const key = JSON.stringify(chosenTexts);
          if (!drawn || drawn.key !== key || !result.contains(drawn.table)) {
            drawn = this.build(answer, key, set);
            result.replaceChildren(drawn.card);
          }
          this.color(drawn, now.layer === "" ? numLayers - 1 : Number(now.layer), now.pair);
        };
      });
    };
  },

  // Cosines of all pairs per layer, and the table that shows one layer of them.
  build(answer, key, set) {
    const { el } = Elmokit;
    const [rows, columns] = [answer[0], answer[answer.length - 1]];
    const unit = (sentence) => {
      const [numLayers, numTokens, width] = sentence.shape, values = Elmokit.decodeFloats(sentence.layers).slice();
      for (let row = 0; row < numLayers * numTokens; row += 1) {
        const part = values.subarray(row * width, (row + 1) * width);
        const length = Math.sqrt(part.reduce((sum, value) => sum + value * value, 0)) || 1;
        part.forEach((value, place) => { part[place] = value / length; });
      }
      return (layer, token) => values.subarray((layer * numTokens + token) * width, (layer * numTokens + token + 1) * width);
    };
    const [vectorA, vectorB] = [unit(rows), unit(columns)];
    const cosine = (layer, i, j) => {
      const [x, y] = [vectorA(layer, i), vectorB(layer, j)];
      return x.reduce((sum, value, place) => sum + value * y[place], 0);
    };
    const cells = [];
    const table = el("table.heat", {}, el("caption.unseen", {}, "Cosine of every token with every other"),
      el("thead", {}, el("tr", {}, el("td"), columns.tokens.map((token) => el("th", { scope: "col" }, el("span", {}, token))))),
      el("tbody", {}, rows.tokens.map((token, i) => el("tr", {}, el("th", { scope: "row" }, token), columns.tokens.map((_, j) => {
        const button = el("button", { type: "button", onclick: () => set({ pair: `${i}-${j}` }) });
        cells.push({ button, i, j });
        return el("td", {}, button);
      })))));
    const detail = el("div");
    const card = el("div", {}, el("div.card", {}, el("div.scroll", { tabindex: 0, role: "region", "aria-label": "Similarity map" }, table),
      el("div.scale", {}, "cosine 0", el("i", { "aria-hidden": true }), "1")), detail);
    return { key, card, table, cells, cosine, detail, rows, columns, numLayers: rows.shape[0] };
  },

  color(drawn, layer, pair) {
    const { el } = Elmokit;
    for (const { button, i, j } of drawn.cells) {
      const value = drawn.cosine(layer, i, j);
      Elmokit.heat(button, value);
      button.textContent = value.toFixed(2).replace(/^-0.00$/, "0.00").replace("0.", ".").replace("-", "−");
      button.setAttribute("aria-label", `${drawn.rows.tokens[i]}, ${drawn.columns.tokens[j]}: ${value.toFixed(2)}`);
      button.setAttribute("aria-pressed", String(pair === `${i}-${j}`));
    }
    const [i, j] = pair.split("-").map(Number);
    if (!pair || !(drawn.rows.tokens[i] && drawn.columns.tokens[j])) {
      drawn.detail.replaceChildren(el("p.hint", {}, "Choose a cell to follow one pair through the layers."));
      return;
    }
    const rows = [...Array(drawn.numLayers).keys()].flatMap((number) => {
      const value = drawn.cosine(number, i, j);
      return [el("span", {}, Elmokit.layerName(number)), el("i", { "--w": `${Math.max(0, 100 * value)}%`, "aria-hidden": true }), el("span.number", {}, value.toFixed(3))];
    });
    drawn.detail.replaceChildren(el("section.card", {}, el("h2", {}, `“${drawn.rows.tokens[i]}” and “${drawn.columns.tokens[j]}”`), el("div.pair", {}, rows)));
  },
};
