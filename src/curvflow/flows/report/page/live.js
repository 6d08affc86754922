"use strict";
(() => {
  const own = document.body.dataset.version;
  const newer = document.getElementById("newer");
  const isBusy = () =>
    document.getElementById("enlarged").open ||
    [...document.querySelectorAll(".bar input")].some((input) => input.value) ||
    document.querySelector('[aria-sort="ascending"], [aria-sort="descending"], details[open]') !== null;
  async function look() {
    let version = own;
    try {
      version = await (await fetch("/version", { cache: "no-store" })).text();
    } catch {
      // The server has ended; the page stays as it is.
      return;
    }
    if (version !== own) {
      if (!isBusy()) return location.reload();
      newer.hidden = false;
    }
    setTimeout(look, 1000);
  }
  newer.querySelector("button").addEventListener("click", () => location.reload());
  setTimeout(look, 1000);
})();
