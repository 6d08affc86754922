"use strict";
// A table for LaTeX and booktabs, of what people read. What pdfTeX has no sign for is a
// formula; letters of other scripts stay as they are.
const latexTable = (() => {
  const LOWER = "alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi o pi rho varsigma sigma tau upsilon varphi chi psi omega";
  const UPPER = "A B Gamma Delta E Z H Theta I K Lambda M N Xi O Pi P - Sigma T Upsilon Phi X Psi Omega";
  const greek = (first, names) => names.split(" ").map((name, at) => [
    String.fromCodePoint(first + at), name.length > 1 ? `$\\${name}$` : `$${name}$`,
  ]);
  const SIGNS = Object.fromEntries([
    ...greek(0x391, UPPER), ...greek(0x3b1, LOWER),
    ...Object.entries({
      "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", "$": "\\$", "&": "\\&", "#": "\\#",
      "%": "\\%", "_": "\\_", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}",
      "<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}", "`": "\\textasciigrave{}",
      "±": "$\\pm$", "−": "$-$", "×": "$\\times$", "·": "$\\cdot$", "≤": "$\\le$", "≥": "$\\ge$",
      "≈": "$\\approx$", "≠": "$\\ne$", "∞": "$\\infty$", "∇": "$\\nabla$", "∂": "$\\partial$",
      "√": "$\\surd$", "∈": "$\\in$", "→": "$\\to$", "←": "$\\gets$", "‖": "$\\|$", "ϕ": "$\\phi$",
      "ϵ": "$\\epsilon$", "ℓ": "$\\ell$", "∑": "$\\sum$", "µ": "$\\mu$", "–": "--", "—": "---",
      "…": "\\dots{}", "\u00a0": "~",
    }),
  ]);
  const SMALL = /[⁰¹²³⁴-⁹⁻]+|[₀-₉₋]+/g;
  const DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻₀₁₂₃₄₅₆₇₈₉₋";
  const plain = (digits) => [...digits].map((one) => "0123456789-"[DIGITS.indexOf(one) % 11]).join("");
  const moved = (digits) => `$${DIGITS.indexOf(digits[0]) < 11 ? "^" : "_"}{${plain(digits)}}$`;
  const signs = (text) => [...text].map((sign) => SIGNS[sign] ?? sign).join("");
  function escaped(text) {
    const escaped = signs(text.replace(/\s+/g, " ")).replace(SMALL, moved);
    // Behind the end of a row or a rule these would be an argument of it.
    return /^[[*]/.test(escaped) ? `{}${escaped}` : escaped;
  }
  const words = (text) => escaped(text).replace(/\\textasciicircum\{\}(-?\d+)/g, "$^{$1}$");
  function number(text) {
    const found = /^([-+]?)(\d[\d.,]*)(?:e([-+]?\d+))?$/.exec(text);
    if (!found) return escaped(text);
    const [, sign, digits, power] = found;
    if (power !== undefined) return `$${sign}${digits} \\times 10^{${Number(power)}}$`;
    return sign ? `$${sign}${digits}$` : digits;
  }
  const line = (cells) => `  ${cells.join(" & ")} \\\\`;

  // `columns` have field, units and isNumber; `rows` a text per column.
  return (columns, rows) => [
    `\\begin{tabular}{${columns.map((one) => (one.isNumber ? "r" : "l")).join("")}}`,
    "  \\toprule",
    line(columns.map((one) => escaped(one.field))),
    ...(columns.some((one) => one.units) ? [line(columns.map((one) => words(one.units)))] : []),
    "  \\midrule",
    ...rows.map((row) => line(row.map((text, at) => (columns[at].isNumber ? number(text) : words(text))))),
    "  \\bottomrule",
    "\\end{tabular}",
  ].join("\n") + "\n";
})();
