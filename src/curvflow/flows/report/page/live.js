"use strict";
(() => {
  const own = document.body.dataset.version;
  const newer = document.getElementById("newer");
  const stale = document.getElementById("stale");
  const isBusy = () =>
    document.getElementById("enlarged").open ||
    [...document.querySelectorAll(".bar input")].some((input) => input.value) ||
    document.querySelector('[aria-sort="ascending"], [aria-sort="descending"], details[open]') !== null;
  async function look() {
    let state = null;
    try {
      state = await (await fetch("/state", { cache: "no-store" })).json();
    } catch {
      // The server has ended; the page stays as it is.
      return;
    }
    stale.hidden = !state.stale;
    stale.textContent = state.stale && `Not up to date: ${state.stale}`;
    if (state.version !== own) {
      if (!isBusy()) return location.reload();
      newer.hidden = false;
    }
    setTimeout(look, 1000);
  }
  newer.querySelector("button").addEventListener("click", () => location.reload());
  look();
})();
