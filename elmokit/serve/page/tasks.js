// Tasks: the answer of a loaded task model, drawn as people expect it.
"use strict";

Elmokit.views.tasks = {
  title: "Tasks",
  intro: "What a task model reads in your text.",
  get defaults() { return { task: Elmokit.info.tasks.length ? Elmokit.info.tasks[0].name : "", text: "", more: "" }; },
  // The two parts of a text that has a tab between them.
  PAIRS: { snli: ["Premise", "Hypothesis"], squad: ["Paragraph", "Question"] },
  SAMPLES: {
    ner: ["Ada Lovelace wrote to Charles Babbage in London.", ""],
    srl: ["She *sold* the boat to her brother in May .", ""],
    coref: ["Ada lost her hat. She found it in the garden.", ""],
    parse: ["The old man sat on the bank of the river.", ""],
    sst: ["A warm, funny and wonderfully acted film.", ""],
    snli: ["A man is playing a guitar on the street.", "A man is making music."],
    squad: ["Oslo is the capital of Norway. It was founded in 1040.", "What is the capital of Norway?"],
  },

  mount(root, params, set) {
    const { el } = Elmokit;
    const tasks = Elmokit.info.tasks;
    if (!tasks.length) {
      root.append(el("p.notice", {}, "No task model is loaded. Start the server with the one in the package, or with one that elmokit task train has made:"),
        el("pre", { tabindex: 0 }, "elmokit serve --task ner\nelmokit serve --task ner=runs/ner/model"));
      return () => {};
    }
    const select = el("select", { id: "task", onchange: () => set({ task: select.value, text: "", more: "" }) }, tasks.map((one) => el("option", { value: one.name }, one.name)));
    const text = el("textarea", { id: "text", rows: 3, spellcheck: false }), more = el("textarea", { id: "more", rows: 2, spellcheck: false });
    const textLabel = el("label", { for: "text" }), moreLabel = el("label", { for: "more" }), morePart = el("div", {}, moreLabel, more);
    const form = el("form.ask", { onsubmit: (event) => { event.preventDefault(); set({ text: text.value, more: more.value }); } },
      el("div", {}, el("label", { for: "task" }, "Task model"), select), el("div", {}, textLabel, text), morePart, el("div", {}, el("button.go", {}, "Predict")));
    const result = el("div"), code = Elmokit.codePanel();
    root.append(form, result, code);
    return (now) => {
      const loaded = tasks.find((one) => one.name === now.task) || tasks[0];
      const pair = this.PAIRS[loaded.task], sample = this.SAMPLES[loaded.task] || ["", ""];
      const [first, second] = now.text || now.more ? [now.text, now.more] : sample;
      select.value = loaded.name;
      textLabel.textContent = pair ? pair[0] : `Text: ${loaded.reads}`;
      moreLabel.textContent = pair ? pair[1] : "";
      morePart.hidden = !pair;
      text.value = first;
      more.value = second;
      if (!first.trim()) { result.replaceChildren(el("p.notice", {}, "Type a text to begin.")); return; }
      const input = pair ? `${first.replace(/\s+/g, " ")}\t${second.replace(/\s+/g, " ")}` : first;
      const body = { inputs: [input] };
      code.update(`from elmokit import load_task\n\nmodel = load_task("${loaded.name}")  # or the folder of --task ${loaded.name}=FOLDER\nprint(model.predict([${Elmokit.python(input)}])[0])`, `/tasks/${loaded.name}`, body);
      Elmokit.fill(result, async () => {
        const answers = await Elmokit.call(`/tasks/${loaded.name}`, body);
        const draw = this[`draw_${loaded.task}`] || (answers.every((one) => one.prediction.probabilities) ? this.drawClasses : this.drawPlain);
        return () => result.replaceChildren(...answers.map((one) => el("section.card", { "aria-label": one.shown }, draw.call(this, one.prediction, first, one))), Elmokit.drawMixes([loaded]) || "");
      });
    };
  },

  drawPlain: (_prediction, _text, answer) => Elmokit.el("pre", { tabindex: 0 }, answer.shown),

  // Tokens with labeled spans, which may be nested.
  drawSpans(tokens, spans) {
    const { el } = Elmokit;
    const build = (start, end, inside) => {
      const parts = [];
      let place = start;
      while (place < end) {
        const outer = inside.filter((span) => span.start === place).sort((a, b) => b.end - a.end)[0];
        if (parts.length && !Elmokit.isClosing(tokens[place])) parts.push(" ");
        if (!outer || outer.end > end) { parts.push(tokens[place]); place += 1; continue; }
        const rest = inside.filter((span) => span !== outer && span.start >= outer.start && span.end <= outer.end);
        parts.push(el("span.span", { "--k": Elmokit.color(outer.color) }, build(outer.start, outer.end, rest), el("sub", {}, outer.label)));
        place = outer.end;
      }
      return parts;
    };
    return el("p.prose", {}, build(0, tokens.length, spans));
  },

  draw_ner(prediction) {
    const kinds = [...new Set(prediction.entities.map((one) => one.type))].sort();
    const spans = prediction.entities.map((one) => ({ start: one.start, end: one.end, label: one.type, color: kinds.indexOf(one.type) }));
    return [this.drawSpans(prediction.tokens, spans), prediction.entities.length ? null : Elmokit.el("p.hint", {}, "No names found.")];
  },

  draw_coref(prediction) {
    const { el } = Elmokit;
    const parts = prediction.sentences.map((tokens, number) => this.drawSpans(tokens, prediction.clusters.flatMap((cluster, index) =>
      cluster.filter((one) => one.sentence === number).map((one) => ({ start: one.start, end: one.end, label: String(index + 1), color: index })))));
    return [...parts, el("p.hint", {}, prediction.clusters.length ? "Mentions with the same number and color refer to the same thing." : "No coreferent mentions found.")];
  },

  draw_squad(prediction, paragraph) {
    const { el } = Elmokit;
    const plain = paragraph.replace(/\s+/g, " ");
    return [el("p.prose", {}, plain.slice(0, prediction.start), el("mark", {}, plain.slice(prediction.start, prediction.end)), plain.slice(prediction.end)),
      el("p.facts", {}, el("span", {}, "Answer ", el("b", {}, prediction.answer)), el("span", {}, "Probability ", el("b", {}, Elmokit.percent(prediction.probability))))];
  },

  drawClasses(prediction) {
    const { el } = Elmokit;
    const ordered = Object.entries(prediction.probabilities).sort((a, b) => b[1] - a[1]);
    return [el("h2", {}, prediction.label), el("ol.ranking", {}, ordered.map(([name, share]) =>
      el("li", {}, el(`span.plain${name === prediction.label ? ".own" : ""}`, { "--w": `${100 * share}%` }, el("span", {}, name), el("span.number", {}, Elmokit.percent(share))))))];
  },

  draw_srl(prediction) { return Elmokit.drawArcs(prediction); },
  draw_parse(prediction) { return Elmokit.drawTree(prediction); },
};
