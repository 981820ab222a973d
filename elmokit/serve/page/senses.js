// Senses: the occurrences of a word as a map that moves from layer to layer.
"use strict";

Elmokit.SAMPLE_SENTENCES = [
  "She sat on the bank of the river.", "The boat reached the bank before dark.", "Trees grew along the bank of the stream.",
  "They walked down the muddy bank to the water.", "The river broke its bank after the storm.",
  "He put his money in the bank.", "The bank raised its interest rates.", "She works for a bank in London.",
  "The bank refused to lend him more money.", "A bank account is needed for the loan.",
].join("\n");

// The sentences to search: pasted ones, or the server's corpus if there are none.
Elmokit.source = (now) => {
  const pasted = now.sentences.split("\n").map((line) => line.trim()).filter(Boolean);
  return pasted.length ? { sentences: pasted } : {};
};

// A form for a word and sentences, shared by Senses and Mix.
Elmokit.wordForm = function (set, button) {
  const { el } = Elmokit;
  const submit = () => set({ word: word.value.trim(), sentences: sentences.value, at: "" });
  const word = Elmokit.recorded ? Elmokit.textField("word", 1, Object.keys(Elmokit.recorded.senses), () => submit())
    : el("input", { type: "text", id: "word", autocomplete: "off", spellcheck: false, required: true });
  const sentences = el("textarea", { id: "sentences", rows: Elmokit.info.corpus ? 2 : 5, spellcheck: false });
  const corpus = Elmokit.info.corpus;
  const label = corpus ? `Sentences with the word, one per line (empty: the corpus of ${corpus.num_sentences.toLocaleString("en")} sentences)` : "Sentences with the word, one per line";
  const form = el("form.ask", { onsubmit: (event) => { event.preventDefault(); submit(); } },
    el("div.row", {}, el("div.grow", {}, el("label", { for: "word" }, "Word"), word), Elmokit.recorded ? null : el("button.go", {}, button)),
    Elmokit.recorded ? null : el("div", {}, el("label", { for: "sentences" }, label), sentences));
  form.show = (params) => { word.value = params.word; sentences.value = params.sentences; };
  return form;
};

Elmokit.wordDefaults = () => (Elmokit.info.corpus ? { word: "", sentences: "" } : { word: "bank", sentences: Elmokit.SAMPLE_SENTENCES });

Elmokit.views.senses = {
  title: "Senses",
  intro: "Every point is one occurrence of a word. In the token layer all of them are one point. Move through the layers and watch the senses part.",
  get defaults() { return { ...Elmokit.wordDefaults(), layer: "", at: "" }; },
  WIDTH: 640, HEIGHT: 480, MARGIN: 44,

  mount(root, params, set) {
    const { el } = Elmokit;
    const numLayers = Elmokit.info.num_layers;
    const form = Elmokit.wordForm(set, "Show the senses");
    const slider = Elmokit.layerSlider(numLayers, params.layer === "" ? numLayers - 1 : Number(params.layer), (layer) => set({ layer: String(layer) }));
    const play = el("button.quiet", { type: "button", onclick: () => this.play(slider, numLayers) }, "Play through the layers");
    const result = el("div"), code = Elmokit.codePanel();
    root.append(form, el("div.card", {}, slider, play), result, code);
    let drawn = null;
    return (now) => {
      form.show(now);
      if (!now.word) { result.replaceChildren(el("p.notice", {}, "Type a word with more than one meaning, such as bank, play or light.")); return; }
      const body = { word: now.word, ...Elmokit.source(now) };
      const where = body.sentences ? "sentences" : '"corpus.txt"';
      code.update(body.sentences
        ? `from elmokit import Embedder\nfrom elmokit.analysis.occurrences import find_in_contexts\nfrom elmokit.analysis.senses import embed_senses\n\nembedder = Embedder.from_pretrained(${Elmokit.pythonModel()})\nsentences = ${Elmokit.python(body.sentences)}\noccurrences = find_in_contexts(embedder, ${where}, ${Elmokit.python(now.word)})\nprint(embed_senses(embedder, ${Elmokit.python(now.word)}, occurrences))`
        : `from elmokit.analysis.index import CorpusIndex\n\nindex = CorpusIndex.open("index")  # written by: elmokit index\nprint(index.senses(${Elmokit.python(now.word)}))`, "/senses", body);
      Elmokit.fill(result, async () => {
        const answer = await Elmokit.call("/senses", body);
        return () => {
          const key = JSON.stringify(body);
          if (!drawn || drawn.key !== key || !result.contains(drawn.map)) {
            drawn = this.build(answer, key, set);
            result.replaceChildren(drawn.part);
          }
          this.move(drawn, now.layer === "" ? numLayers - 1 : Number(now.layer), now.at, set);
        };
      });
    };
  },

  async play(slider, numLayers) {
    const input = slider.querySelector("input");
    for (let layer = 0; layer < numLayers; layer += 1) {
      input.value = layer;
      input.dispatchEvent(new Event("input"));
      await new Promise((resolve) => setTimeout(resolve, 1300));
    }
  },

  // A dot per occurrence. Its color is its cluster in the top layer, so that it can be followed down.
  build(answer, key, set) {
    const { el, svg } = Elmokit;
    const top = answer.layers[answer.layers.length - 1];
    const map = svg("svg.map", { viewBox: `0 0 ${this.WIDTH} ${this.HEIGHT}`, role: "group", "aria-label": `Map of ${answer.occurrences.length} occurrences of ${answer.word}` });
    const dots = answer.occurrences.map((occurrence, index) => {
      const dot = svg("circle.dot", {
        r: answer.occurrences.length > 150 ? 5 : 8, tabindex: 0, role: "button", "aria-label": Elmokit.joinTokens(occurrence.tokens),
        onclick: () => set({ at: String(index) }),
        onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); set({ at: String(index) }); } },
      }, svg("title", {}, Elmokit.joinTokens(occurrence.tokens)));
      dot.style.fill = Elmokit.color(top.labels[index]);
      return dot;
    });
    const caption = el("figcaption.hint");
    map.append(...dots);
    const side = el("div");
    const reach = [0, 1].map((axis) => Math.max(1e-9, ...answer.layers.flatMap((layer) => layer.points.map((point) => Math.abs(point[axis])))));
    return { key, part: el("div.mapped", {}, el("figure", {}, map, caption), side), map, dots, caption, side, answer, top, reach };
  },

  move(drawn, number, at, set) {
    const layer = drawn.answer.layers[number];
    const scale = Math.min((this.WIDTH / 2 - this.MARGIN) / drawn.reach[0], (this.HEIGHT / 2 - this.MARGIN) / drawn.reach[1]);
    layer.points.forEach(([x, y], index) => {
      drawn.dots[index].style.transform = `translate(${(this.WIDTH / 2 + x * scale).toFixed(1)}px, ${(this.HEIGHT / 2 - y * scale).toFixed(1)}px)`;
      drawn.dots[index].classList.toggle("chosen", String(index) === at);
    });
    const [first, second] = layer.explained.map(Elmokit.percent);
    const groups = new Set(layer.labels).size;
    const shown = groups === 1 ? "one cluster" : `${groups} clusters`;
    drawn.caption.textContent = layer.explained[0] ? `${Elmokit.layerName(number)}: ${shown}; the axes show ${first} and ${second} of the variance` : `${Elmokit.layerName(number)}: the same vector everywhere`;
    Elmokit.announce(drawn.caption.textContent);
    const chosen = drawn.answer.occurrences[Number(at)];
    if (at !== "" && chosen) this.showNearest(drawn, Number(at), number, set);
    else this.showClusters(drawn, set);
  },

  item(drawn, index, set, similarity) {
    const { el } = Elmokit;
    return el("li", { "--k": Elmokit.color(drawn.top.labels[index]) }, el("button", { type: "button", onclick: () => set({ at: String(index) }) },
      similarity === undefined ? null : el("span.number", {}, similarity.toFixed(2)), Elmokit.context(drawn.answer.occurrences[index], 6)));
  },

  showClusters(drawn, set) {
    const { el } = Elmokit;
    const labels = drawn.top.labels, most = (members) => (members.length <= 7 ? 7 : 5);
    const parts = [...new Set(labels)].sort((a, b) => a - b).flatMap((label) => {
      const members = labels.flatMap((one, index) => (one === label ? [index] : []));
      return [el("h2", { "--k": Elmokit.color(label) }, el("span.swatch", { "aria-hidden": true }), `Cluster ${label + 1}: ${members.length} of ${labels.length}`),
        el("ul.contexts", {}, members.slice(0, most(members)).map((index) => this.item(drawn, index, set)),
          members.length > most(members) ? el("li.more", {}, `and ${members.length - most(members)} more`) : null)];
    });
    const total = drawn.answer.num_occurrences;
    if (total > labels.length) parts.push(el("p.hint", {}, `${labels.length} of ${total.toLocaleString("en")} occurrences, evenly spread over the corpus.`));
    drawn.side.replaceChildren(...parts);
  },

  showNearest(drawn, index, number, set) {
    const { el } = Elmokit;
    const nearest = drawn.answer.layers[number].nearest[index];
    drawn.side.replaceChildren(el("h2", {}, "Chosen occurrence"), el("ul.contexts", {}, el("li", { "--k": Elmokit.color(drawn.top.labels[index]) }, Elmokit.context(drawn.answer.occurrences[index], 20))),
      el("h2", {}, `Nearest in the ${Elmokit.layerInText(number)}`), el("ul.contexts", {}, nearest.map(([other, similarity]) => this.item(drawn, other, set, similarity))),
      el("button.quiet", { type: "button", onclick: () => set({ at: "" }) }, "Show the clusters"));
  },
};
