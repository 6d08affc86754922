"use strict";
(() => {
  const FIELDS = ["node", "kind", "digest", "run", "seeds", "cost", "state"];
  const origins = JSON.parse(document.getElementById("origins").textContent);
  const said = document.getElementById("said");
  const tip = document.getElementById("tip");
  const root = document.documentElement;

  // Tables: what a cell holds, in full where it is shown rounded.
  const full = (cell) => cell.dataset.v ?? cell.textContent.trim();
  const texts = new WeakMap();
  const textOf = (row) => {
    if (!texts.has(row)) {
      texts.set(row, [...row.cells].map((cell) => cell.textContent).join("\n").toLowerCase());
    }
    return texts.get(row);
  };
  const places = new WeakMap();
  for (const body of document.querySelectorAll(".grid tbody")) {
    [...body.rows].forEach((row, place) => places.set(row, place));
    const first = body.rows[0]?.cells[0];
    if (first) first.tabIndex = 0;
  }

  const byNumber = (one, two) => {
    const [a, b] = [Number.parseFloat(one), Number.parseFloat(two)];
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return a - b;
  };
  const words = new Intl.Collator("en", { numeric: true });

  function sort(head) {
    const table = head.closest("table");
    const place = head.cellIndex;
    const order = { none: "ascending", ascending: "descending", descending: "none" }[head.ariaSort];
    for (const other of head.parentElement.cells) other.ariaSort = "none";
    head.ariaSort = order;
    const isNumber = head.classList.contains("number");
    const rows = [...table.tBodies[0].rows].map((row) => [row, full(row.cells[place])]);
    const sign = order === "descending" ? -1 : 1;
    const isLast = (value) => value === "" || (isNumber && Number.isNaN(Number.parseFloat(value)));
    rows.sort(([rowA, a], [rowB, b]) => {
      if (order === "none") return places.get(rowA) - places.get(rowB);
      // What has no value stays last, whichever way it is sorted.
      if (isLast(a) || isLast(b)) return isLast(a) - isLast(b) || places.get(rowA) - places.get(rowB);
      const found = isNumber ? byNumber(a, b) : words.compare(a, b);
      return sign * found || places.get(rowA) - places.get(rowB);
    });
    table.tBodies[0].append(...rows.map(([row]) => row));
    said.textContent = order === "none" ? "In the order of the study." : `Sorted by ${head.dataset.field}, ${order}.`;
  }

  function filter(input) {
    const grid = input.closest(".grid");
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...grid.querySelector("tbody").rows];
    let count = 0;
    for (const row of rows) {
      const text = textOf(row);
      row.hidden = !wanted.every((word) => text.includes(word));
      count += row.hidden ? 0 : 1;
    }
    grid.querySelector(".shown").textContent = wanted.length ? `${count} of ${rows.length} rows` : `${rows.length} rows`;
  }

  // Copies: the rows shown, in the order shown; columns that are the same in all rows too.
  function columns(grid) {
    const rows = [...grid.querySelectorAll("tbody tr")].filter((row) => !row.hidden);
    const heads = [...grid.querySelectorAll("thead th")];
    const same = [...grid.querySelectorAll(".same dd")];
    return {
      rows, heads,
      csv: [
        ...heads.map((head, place) => [head.dataset.field, rows.map((row) => full(row.cells[place]))]),
        ...same.map((one) => [one.dataset.field, rows.map(() => full(one))]),
      ],
    };
  }
  const bare = (cell) => {
    const copy = cell.cloneNode(true);
    for (const hidden of copy.querySelectorAll("[aria-hidden], .unseen")) hidden.remove();
    return copy.textContent.trim();
  };
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  function csv(grid) {
    const { rows, heads, csv: found } = columns(grid);
    const cells = found.map(([, values], place) =>
      values.map((value, at) => {
        const cell = place < heads.length ? rows[at].cells[place] : null;
        return quoted(cell?.querySelector(".state, .unseen") ? bare(cell) : value);
      }));
    const lines = rows.map((_, at) => cells.map((column) => column[at]).join(","));
    return [found.map(([field]) => quoted(field)).join(","), ...lines].join("\n") + "\n";
  }
  function latex(grid) {
    const { rows, heads } = columns(grid);
    const layout = heads.map(({ dataset, classList }) => ({
      field: dataset.field, units: dataset.units ?? "", isNumber: classList.contains("number"),
    }));
    return latexTable(layout, rows.map((row) => [...row.cells].map(bare)));
  }
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }
  async function copyFrom(button) {
    const grid = button.closest(".grid");
    const before = button.innerHTML;
    await copy(button.dataset.copy === "csv" ? csv(grid) : latex(grid));
    button.firstChild.textContent = "Copied";
    said.textContent = `Copied ${grid.dataset.name}.`;
    setTimeout(() => { button.firstChild.textContent = button.dataset.copy === "csv" ? "Copy CSV" : "Copy LaTeX"; }, 1500);
  }

  // Where a number is from.
  let described = null;
  const originOf = (element) => element.closest?.("#main [data-n]");
  function tell(target) {
    const about = target.closest?.("[data-about]");
    const cell = target.closest?.("tbody td, tbody th, .picture");
    const owner = cell && originOf(cell);
    if (!about && !owner) return hide();
    tip.replaceChildren();
    if (about) {
      tip.textContent = about.dataset.about;
    } else {
      const list = document.createElement("dl");
      const rows = FIELDS.map((field, at) => [field, origins[owner.dataset.n][at]]);
      if (cell.dataset.v) rows.unshift(["value", cell.dataset.v]);
      for (const [field, value] of rows.filter(([, value]) => value)) {
        const [term, text] = [document.createElement("dt"), document.createElement("dd")];
        term.textContent = field;
        text.textContent = value;
        list.append(term, text);
      }
      tip.append(list);
    }
    described?.removeAttribute("aria-describedby");
    described = about ?? cell;
    described.setAttribute("aria-describedby", "tip");
    tip.hidden = false;
    place(described.getBoundingClientRect());
    return undefined;
  }
  function place(box) {
    const [width, height] = [tip.offsetWidth, tip.offsetHeight];
    const below = box.bottom + 6 + height < window.innerHeight;
    tip.style.left = `${Math.max(4, Math.min(box.left, window.innerWidth - width - 4))}px`;
    tip.style.top = `${below ? box.bottom + 6 : Math.max(4, box.top - height - 6)}px`;
  }
  function hide() {
    tip.hidden = true;
    described?.removeAttribute("aria-describedby");
    described = null;
  }

  // Arrows go from cell to cell, so that a table is one stop for the tabulator.
  function step(event) {
    const cell = event.target.closest(".grid tbody td, .grid tbody th");
    if (!cell) return;
    const row = cell.parentElement;
    const shown = [...row.parentElement.rows].filter((one) => !one.hidden);
    const at = shown.indexOf(row);
    const to = {
      ArrowRight: () => cell.nextElementSibling, ArrowLeft: () => cell.previousElementSibling,
      ArrowDown: () => shown[at + 1]?.cells[cell.cellIndex], ArrowUp: () => shown[at - 1]?.cells[cell.cellIndex],
      Home: () => row.cells[0], End: () => row.cells[row.cells.length - 1],
    }[event.key]?.();
    if (!to) return;
    event.preventDefault();
    cell.removeAttribute("tabindex");
    to.tabIndex = 0;
    to.focus();
  }

  // Tables wider than their box say so until their last column is in sight.
  function measure(box) {
    const left = box.scrollWidth - box.clientWidth - box.scrollLeft;
    box.classList.toggle("more", left > 1);
    box.classList.toggle("past", box.scrollLeft > 1);
    const first = box.querySelector("thead th");
    box.style.scrollPaddingLeft = `${first?.offsetWidth ?? 0}px`;
    const more = box.closest(".grid")?.querySelector(".more-columns");
    if (more) more.hidden = left <= 1;
  }
  const sizes = new ResizeObserver((seen) => {
    for (const { target } of seen) measure(target.closest(".scroll"));
  });
  for (const box of document.querySelectorAll(".scroll")) {
    sizes.observe(box);
    sizes.observe(box.firstElementChild);
    box.addEventListener("scroll", () => measure(box), { passive: true });
  }

  const dialog = document.getElementById("enlarged");
  function enlarge(button) {
    const [image, shown] = [button.querySelector("img"), dialog.querySelector("img")];
    shown.src = image.src;
    shown.alt = image.alt;
    dialog.querySelector("p").textContent = button.closest("figure").querySelector("figcaption").textContent;
    hide();
    dialog.showModal();
  }
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  const theme = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const tellTheme = () => { theme.ariaPressed = String(isDark()); };
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; tellTheme(); });
  system.addEventListener("change", tellTheme);
  tellTheme();

  document.addEventListener("click", (event) => {
    const head = event.target.closest(".grid thead button");
    if (head) sort(head.closest("th"));
    const button = event.target.closest("[data-copy]");
    if (button) copyFrom(button);
    const picture = event.target.closest(".picture");
    if (picture) enlarge(picture);
  });
  document.addEventListener("input", (event) => { if (event.target.matches(".bar input")) filter(event.target); });
  // A pause, so that nothing flickers under a passing pointer, and the tip can be reached.
  let waiting = 0;
  document.addEventListener("pointerover", (event) => {
    clearTimeout(waiting);
    if (!tip.contains(event.target)) waiting = setTimeout(() => tell(event.target), 250);
  });
  document.addEventListener("pointerleave", () => { clearTimeout(waiting); hide(); });
  document.addEventListener("focusin", (event) => tell(event.target));
  document.addEventListener("scroll", hide, { capture: true, passive: true });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    step(event);
  });
})();
