// Mix: weights of the layers, and what the nearest contexts become.
"use strict";

Elmokit.views.mix = {
  title: "Mix",
  intro: "A task model reads one weighted mean of the layers. Drag the weights and see which contexts become the nearest.",
  get defaults() { return { ...Elmokit.wordDefaults(), weights: "", at: "" }; },

  mount(root, params, set) {
    const { el } = Elmokit;
    const numLayers = Elmokit.info.num_layers;
    const form = Elmokit.wordForm(set, "Find neighbors");
    const controls = el("div.card"), result = el("div"), code = Elmokit.codePanel();
    root.append(form, el("div.beside", {}, controls), result, code);
    const sliders = this.buildControls(controls, numLayers, set);
    return (now) => {
      form.show(now);
      const weights = this.read(now.weights, numLayers);
      sliders.forEach(({ input, output }, layer) => {
        if (document.activeElement !== input) input.value = weights[layer];
        output.textContent = Elmokit.percent(weights[layer]);
      });
      if (!now.word) { result.replaceChildren(el("p.notice", {}, "Type a word to see its nearest contexts.")); return; }
      const source = { word: now.word, ...Elmokit.source(now) };
      const body = { ...source, weights, k: 10, occurrence: Number(now.at || 0) };
      code.update(this.python(now, source, weights), "/neighbors", body);
      Elmokit.fill(result, async () => {
        const answer = await Elmokit.call("/neighbors", body);
        return () => this.draw(result, answer, now, set);
      });
    };
  },

  python(now, source, weights) {
    const word = Elmokit.python(now.word), at = Number(now.at || 0);
    const read = source.sentences
      ? `embedder = Embedder.from_pretrained(${Elmokit.pythonModel()})\nsentences = ${Elmokit.python(source.sentences)}\nfound = [(one, layers) for one in embedder.embed(sentences) for token, layers in zip(one.tokens, one.layers.swapaxes(0, 1)) if token == ${word}]\ncontexts, layers = [one.tokens for one, _ in found], np.stack([one for _, one in found])`
      : `index = CorpusIndex.open("index")  # written by: elmokit index\nfound = index.occurrences(${word})\ncontexts = [one.tokens for one in found]\nlayers = np.stack([index.raw_vectors(found, layer=layer) for layer in range(${weights.length})], axis=1)`;
    const needed = source.sentences ? "from elmokit import Embedder" : "from elmokit.analysis.index import CorpusIndex";
    return `import numpy as np\n\n${needed}\n\n${read}\nmixed = np.einsum("l,nld->nd", ${Elmokit.python(weights)}, layers)\nmixed /= np.linalg.norm(mixed, axis=1, keepdims=True)\ncosines = mixed @ mixed[${at}]\nfor row in np.argsort(-cosines)[1:11]:\n    print(f"{cosines[row]:.3f}", *contexts[row])`;
  },

  read(text, numLayers) {
    const numbers = text.split(",").map(Number);
    const total = numbers.reduce((sum, one) => sum + one, 0);
    const usable = text && numbers.length === numLayers && numbers.every((one) => one >= 0) && total > 0;
    return (usable ? numbers.map((one) => one / total) : Array(numLayers).fill(1 / numLayers)).map((one) => Number(one.toFixed(3)));
  },

  buildControls(controls, numLayers, set) {
    const { el } = Elmokit;
    const sliders = [];
    const grid = el("div.weights", { role: "group", "aria-label": "Weights of the layers" });
    for (let layer = 0; layer < numLayers; layer += 1) {
      const output = el("output.number", { for: `w${layer}` });
      const input = el("input", { type: "range", id: `w${layer}`, min: 0, max: 1, step: 0.01, value: 0.33, oninput: () => set({ weights: sliders.map((one) => one.input.value).join(",") }) });
      sliders.push({ input, output });
      grid.append(el("label", { for: `w${layer}` }, Elmokit.layerName(layer)), input, output);
    }
    const presets = [["Equal", Array(numLayers).fill(1)]];
    for (let layer = 0; layer < numLayers; layer += 1) presets.push([Elmokit.layerName(layer), Array.from({ length: numLayers }, (_, one) => (one === layer ? 1 : 0))]);
    const choose = (weights) => {
      sliders.forEach(({ input }, layer) => { input.value = weights[layer]; });
      set({ weights: weights.map((one) => one.toFixed(4)).join(",") });
    };
    controls.append(grid, el("p.examples", {}, "Set to:", presets.map(([name, weights]) => el("button.quiet", { type: "button", onclick: () => choose(weights) }, name))));
    const fitting = Elmokit.info.tasks.map((task) => ({ ...task, mixes: task.mixes.filter((mix) => mix.weights.length === numLayers) }));
    controls.after(Elmokit.drawMixes(fitting, choose) || "");
    if (!Elmokit.info.tasks.length) controls.append(el("p.hint", {}, "Weights that a task model has trained appear here when the server is started with --task NAME=FOLDER."));
    return sliders;
  },

  draw(result, answer, now, set) {
    const { el } = Elmokit;
    const before = new Map([...result.querySelectorAll("li[data-key]")].map((item) => [item.dataset.key, item.getBoundingClientRect().top]));
    const select = el("select", { id: "at", onchange: () => set({ at: select.value }) }, answer.occurrences.map((one, index) => el("option", { value: index, selected: index === Number(now.at || 0) }, Elmokit.joinTokens(one.tokens).slice(0, 110))));
    const items = answer.neighbors.map((one) => el("li", { "data-key": `${one.line}:${one.position}`, "--k": "var(--bar)" }, el("span.number", {}, one.similarity.toFixed(3)), Elmokit.context(one, 12)));
    result.replaceChildren(el("div.card", {}, el("label", { for: "at" }, `Neighbors of this occurrence of “${answer.word}”`), select),
      el("div.card", {}, el("h2", {}, "Nearest contexts"), items.length ? el("ol.contexts", {}, items) : el("p.hint", {}, "There is no other occurrence.")));
    for (const item of items) { // from where it was to where it is
      const old = before.get(item.dataset.key);
      if (old === undefined) continue;
      item.style.transition = "none";
      item.style.transform = `translateY(${old - item.getBoundingClientRect().top}px)`;
      requestAnimationFrame(() => { item.style.transition = ""; item.style.transform = ""; });
    }
  },
};
