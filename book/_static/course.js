// Small repairs and additions to the theme's pages: names for screen readers, tooltips of computed numbers, print.
(() => {
  "use strict";
  const each = (selector, change) => document.querySelectorAll(selector).forEach(change);

  // ---- Search without a server: the page that lists results cannot read other files.
  if (location.protocol === "file:" && window.DOCUMENTATION_OPTIONS) DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

  // ---- Names. What is seen on a control must be part of its name; icons are replaced late, hence the observer.
  function nameControls() {
    each(".search-button__button, .search-button, .theme-switch-button, .sidebar-toggle", button => {
      const seen = button.innerText.replace(/\s+/g, " ").trim();
      const name = button.dataset.courseName ??= button.getAttribute("aria-label") || button.title || button.dataset.bsTitle || "";
      const wanted = seen && !name.toLowerCase().includes(seen.toLowerCase()) ? `${name} ${seen}`.trim() : name;
      if (wanted && button.getAttribute("aria-label") !== wanted) button.setAttribute("aria-label", wanted);
    });
    each("details > summary[aria-label]", summary => summary.removeAttribute("aria-label"));
  }
  nameControls();
  new MutationObserver(nameControls).observe(document.body, {
    childList: true, subtree: true, attributes: true, attributeFilter: ["aria-label"],
  });

  // ---- Boxes that scroll sideways must be reachable by keyboard.
  function reachable() {
    each(".bd-article pre, .bd-article .table-scroll, .bd-article div.math, .bd-article .cell_output", box => {
      if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
      else if (box.getAttribute("tabindex") === "0") box.removeAttribute("tabindex");
    });
  }
  addEventListener("load", reachable);
  addEventListener("resize", reachable);

  // ---- How a number came about: shown on hover, focus and touch, kept inside the window, closed by Escape.
  const tip = Object.assign(document.createElement("div"), { id: "said-tip", className: "said-tip", hidden: true });
  tip.setAttribute("role", "tooltip");
  document.body.append(tip);
  let shownFor = null;
  const hide = () => {
    shownFor?.removeAttribute("aria-describedby");
    shownFor = null;
    tip.hidden = true;
  };
  const show = word => {
    hide();
    shownFor = word;
    tip.textContent = word.dataset.how;
    tip.hidden = false;
    word.setAttribute("aria-describedby", tip.id);
    const box = word.getBoundingClientRect(), own = tip.getBoundingClientRect(), edge = 8;
    const left = Math.min(Math.max(box.left + box.width / 2 - own.width / 2, edge), document.documentElement.clientWidth - own.width - edge);
    const above = box.top - own.height - 6;
    tip.style.left = `${left}px`;
    tip.style.top = `${above < edge ? box.bottom + 6 : above}px`;
  };
  each(".said[title]", word => {
    word.dataset.how = word.title;
    word.removeAttribute("title");
    word.tabIndex = 0;
    word.addEventListener("pointerenter", () => show(word));
    word.addEventListener("pointerleave", () => document.activeElement !== word && hide());
    word.addEventListener("focus", () => show(word));
    word.addEventListener("blur", hide);
    word.addEventListener("click", () => show(word));
  });
  addEventListener("keydown", event => event.key === "Escape" && hide());
  addEventListener("scroll", hide, { passive: true, capture: true });

  // ---- Paper is white, whatever the screen is.
  let mode;
  addEventListener("beforeprint", () => ((mode = document.documentElement.dataset.theme), (document.documentElement.dataset.theme = "light")));
  addEventListener("afterprint", () => mode && (document.documentElement.dataset.theme = mode));
})();
