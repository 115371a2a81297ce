// Small repairs and additions to the theme's pages: names for screen readers, tooltips of computed numbers, print.
(() => {
  "use strict";
  const each = (selector, change) => document.querySelectorAll(selector).forEach(change);

  // ---- Search. Extracts of the pages come from their text alone, and need a server: a file may not read another.
  if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  if (typeof Search !== "undefined") {
    const textOf = Search.htmlToText;
    Search.htmlToText = (html, anchor) => {
      const page = new DOMParser().parseFromString(html, "text/html");
      page.querySelector("main")?.replaceChildren(...page.querySelectorAll("article.bd-article"));
      return textOf(page.documentElement.outerHTML, anchor).replace(/\\[()[\]]/g, ""); // no delimiters of maths
    };
  }

  // ---- Names. What is seen on a control must be part of its name. Icons are drawn late, hence the observer.
  function nameControls() {
    each(".search-button__button, .search-button, .theme-switch-button, .sidebar-toggle", button => {
      const seen = button.innerText.replace(/\s+/g, " ").trim();
      const name = (button.dataset.name ??= button.getAttribute("aria-label") || button.title || button.dataset.bsTitle || "");
      const wanted = name.toLowerCase().includes(seen.toLowerCase()) ? name : `${name} ${seen}`.trim();
      if (wanted && button.getAttribute("aria-label") !== wanted) button.setAttribute("aria-label", wanted);
    });
  }
  nameControls();
  new MutationObserver(nameControls).observe(document.body, {
    childList: true, subtree: true, attributes: true, attributeFilter: ["aria-label"],
  });
  each(".sidebar-primary-item:has(> .navbar-brand)", home => {
    home.setAttribute("role", "navigation");
    home.setAttribute("aria-label", "Home");
  });

  // ---- What is too wide scrolls in its own box, and the keyboard can reach that box.
  function findWide() {
    each(".bd-article mjx-container", formula => {
      // A formula on a line of its own shares it with its number, so its own box tells how much room there is.
      const room = formula.getAttribute("display") ? formula : formula.parentElement;
      mark(formula, formula.firstElementChild.offsetWidth > room.clientWidth + 1);
    });
    each(".bd-article pre, .bd-article .course-table-box, .bd-article .text_html, .pst-scrollable-table-container", box => mark(box, box.scrollWidth > box.clientWidth + 1));
  }
  function mark(box, wide) {
    box.classList.toggle("wide", wide);
    if (wide) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
  addEventListener("load", () => (findWide(), window.MathJax?.startup?.promise.then(findWide)));
  addEventListener("resize", findWide);
  addEventListener("toggle", findWide, { capture: true });

  // ---- What stands folded under a solution is its check, and says so.
  each(".solution + .cell details.hide > summary > p", label => {
    label.textContent = label.classList.contains("collapsed") ? "Show the check" : "Hide the check";
  });

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
