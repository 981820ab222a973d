// Addresses and views. An address is #view?name=value&…; values that equal the view's defaults are left out.
"use strict";

Elmokit.readAddress = function () {
  const [name, query] = location.hash.slice(1).split("?");
  const view = Elmokit.views[name] ? name : Object.keys(Elmokit.views)[0];
  const params = { ...Elmokit.views[view].defaults };
  for (const [key, value] of new URLSearchParams(query || "")) if (key in params) params[key] = value;
  return { view, params };
};

Elmokit.writeAddress = function (view, params) {
  const defaults = Elmokit.views[view].defaults;
  const changed = Object.entries(params).filter(([key, value]) => value !== defaults[key]);
  const query = new URLSearchParams(changed).toString();
  history.replaceState(null, "", `#${view}${query ? `?${query}` : ""}`);
};

Elmokit.show = function () {
  const { view, params } = Elmokit.readAddress();
  const root = document.getElementById("main"), chosen = Elmokit.views[view];
  document.title = `${chosen.title} · elmokit`;
  for (const link of document.querySelectorAll("#views a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  root.replaceChildren(Elmokit.el("h1", {}, chosen.title), Elmokit.el("p.intro", {}, chosen.intro));
  let now = params;
  const set = (changes) => {
    now = { ...now, ...changes };
    Elmokit.writeAddress(view, now);
    update(now);
  };
  const update = chosen.mount(root, now, set);
  update(now);
};

Elmokit.start = async function () {
  const root = document.getElementById("main");
  try {
    Elmokit.info = await Elmokit.call("/info");
  } catch (error) {
    root.replaceChildren(Elmokit.el("p.notice.bad", { role: "alert" }, error.message));
    return;
  }
  if (!Elmokit.info.can_score) delete Elmokit.views.sentence;
  if (Elmokit.recorded) {
    for (const name of Object.keys(Elmokit.views)) if (!Elmokit.recorded.views[name]) delete Elmokit.views[name];
    for (const [name, params] of Object.entries(Elmokit.recorded.views)) Object.defineProperty(Elmokit.views[name], "defaults", { value: { ...Elmokit.views[name].defaults, ...params } });
  }
  document.getElementById("model").textContent = Elmokit.info.model_id;
  document.getElementById("views").append(...Object.entries(Elmokit.views).map(([name, view]) =>
    Elmokit.el("li", {}, Elmokit.el("a", { href: `#${name}`, "data-view": name }, view.title))));
  addEventListener("hashchange", () => { if (location.hash !== "#main") Elmokit.show(); });
  Elmokit.show();
};

Elmokit.start();
