// Live charts: each <div class="chart"> holds a static picture, an empty place for the live chart, and its Vega-Lite
// specification. The live chart takes the picture's place on the screen; paper and browsers without JavaScript keep
// the picture.
(() => {
  "use strict";

  const root = document.documentElement;
  const mode = () => (root.dataset.theme === "dark" ? "dark" : "light");
  const element = (tag, attributes = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), attributes);
    node.append(...children);
    return node;
  };
  // Numbers as in the prose: commas between groups of three digits.
  const format = value =>
    typeof value === "number" ? value.toLocaleString("en-US", { maximumSignificantDigits: 6 }) : String(value);

  // Take the parameters bound to inputs out of a specification, those of nested views included.
  function takeControls(view, found = []) {
    for (const param of view.params ?? []) {
      if (param.bind?.input) {
        const label = (param.bind.name ?? param.name).replace(/[\s:]+$/, "");
        found.push({ ...param.bind, name: param.name, value: param.value, label });
        delete param.bind;
      }
    }
    for (const key of ["layer", "hconcat", "vconcat", "concat"]) (view[key] ?? []).forEach(child => takeControls(child, found));
    if (view.spec) takeControls(view.spec, found);
    return found;
  }

  // One row of the panel. `change` is called with the new value.
  function row(control, id, change) {
    const shown = element("output", { htmlFor: id, className: "chart-control-value" });
    const show = value => {
      shown.textContent = format(value);
      input.setAttribute("aria-valuetext", shown.textContent);
    };
    let input;
    if (control.input === "range") {
      input = element("input", { type: "range", id, name: control.name });
      Object.assign(input, { min: control.min ?? 0, max: control.max ?? 100, step: control.step ?? "any", value: control.value });
      input.addEventListener("input", () => (show(input.valueAsNumber), change(input.valueAsNumber)));
      show(control.value);
    } else if (control.input === "checkbox") {
      input = element("input", { type: "checkbox", id, name: control.name, checked: Boolean(control.value) });
      input.addEventListener("change", () => change(input.checked));
    } else {
      input = element("select", { id, name: control.name });
      control.options.forEach((option, i) =>
        input.append(new Option(control.labels?.[i] ?? format(option), i, false, option === control.value)));
      input.addEventListener("change", () => change(control.options[input.value]));
    }
    const label = element("label", { htmlFor: id, className: "chart-control-label" }, control.label);
    return element("div", { className: `chart-control chart-control-${control.input}` }, label, input, shown);
  }

  async function draw(chart, index) {
    const place = chart.querySelector(".chart-live");
    const spec = JSON.parse(chart.querySelector(".chart-spec").textContent);
    const controls = takeControls(spec);
    const values = {}; // what the reader has set: it outlives a change of theme
    const spoken = element("p", { className: "chart-spoken" });
    spoken.setAttribute("role", "status");
    let view, embedded, frame, pause;

    // The numbers written into the chart, for those who hear the page.
    const speak = () => {
      const texts = [...place.querySelectorAll(".mark-text.role-mark text")].map(text => text.textContent.trim());
      spoken.textContent = [...new Set(texts)].filter(Boolean).join("; "); // a label and its halo say the same
    };
    const update = () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(async () => {
        for (const [name, value] of Object.entries(values)) view.signal(name, value);
        await view.runAsync();
        clearTimeout(pause);
        pause = setTimeout(speak, 600);
      });
    };
    const embed = async () => {
      const narrow = place.clientWidth < 520 ? { legend: { columns: 2 } } : {};
      const config = { ...chartThemes[mode()] };
      config.legend = { ...config.legend, ...narrow.legend };
      embedded?.finalize();
      embedded = await vegaEmbed(place, structuredClone(spec), {
        mode: "vega-lite", renderer: "svg", actions: false, config, tooltip: { theme: mode() },
      });
      view = embedded.view;
      place.querySelector("svg").setAttribute("aria-hidden", "true"); // its description is the name of `place`
      for (const [name, value] of Object.entries(values)) view.signal(name, value);
      await view.runAsync();
    };

    if (controls.length) {
      const panel = element("form", { className: "chart-controls" });
      panel.setAttribute("aria-label", "Chart controls");
      panel.addEventListener("submit", event => event.preventDefault());
      controls.forEach((control, i) =>
        panel.append(row(control, `chart-${index}-${i}`, value => ((values[control.name] = value), update()))));
      place.before(panel);
      place.after(spoken);
    }
    place.hidden = false;
    try {
      await embed();
      chart.classList.add("chart-ready");
    } catch (error) {
      place.hidden = true;
      chart.classList.add("chart-failed");
      console.error(error);
      return;
    }
    new MutationObserver(embed).observe(root, { attributes: true, attributeFilter: ["data-theme"] });
    // Vega listens to the window alone; a side bar that opens changes the width too.
    let width = place.clientWidth;
    new ResizeObserver(() => {
      if (place.clientWidth && Math.abs(place.clientWidth - width) > 1) {
        width = place.clientWidth;
        dispatchEvent(new Event("resize"));
      }
    }).observe(place);
  }

  document.querySelectorAll(".chart").forEach(draw);
})();
