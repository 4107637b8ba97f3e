/** A topic's rows as a Markdown table, followed by its targets. */
import { median, ratio } from "./figures.mjs";

const OURS = "laboro";

export function tableOf({ title, note, targets = [] }, rows) {
  const lines = rows.map((row) => {
    const ours = rows.find(({ about, who, figure }) => about === row.about && figure === row.figure && who === OURS);
    const beside = ours === undefined || row.who === OURS ? "" : ratio(ours, row).toFixed(2);
    return [row.about, row.who, row.figure, ...minMedianMax(row.values), beside];
  });
  const met = rows.flatMap((row) => verdicts(row, rows, targets));
  const head = ["", "who", "figure", "min", "median", "max", "laboro ÷ this"];
  const all = [head, ...lines];
  const widths = head.map((_, column) => Math.max(3, ...all.map((line) => line[column].length)));
  const numeric = (column) => column >= 3 && column <= 6;
  const format = (line) =>
    `| ${line.map((cell, i) => (numeric(i) ? cell.padStart(widths[i]) : cell.padEnd(widths[i]))).join(" | ")} |`;
  const rule = `|${widths.map((width, i) => (numeric(i) ? `${"-".repeat(width + 1)}:` : "-".repeat(width + 2))).join("|")}|`;
  return [
    `### ${title}`,
    ...(note === undefined ? [] : ["", note]),
    "",
    format(head),
    rule,
    ...lines.map(format),
    ...(met.length === 0 ? [] : ["", "Targets:", "", ...met.map((line) => `- ${line}`)]),
    "",
  ].join("\n");
}

const minMedianMax = (values) => [Math.min(...values), median(values), Math.max(...values)].map(plain);

function plain(value) {
  if (value >= 1_000) return Math.round(value).toLocaleString("en");
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

function verdicts(row, rows, targets) {
  const name = row.who === OURS ? row.about : `${row.about}, ${row.who}`;
  return targets
    .filter(({ who = OURS, figure }) => who === row.who && figure === row.figure)
    .filter(({ about }) => about === undefined || about === row.about)
    .flatMap((target) => verdict(target, row, rows))
    .map((text) => `${name}, ${row.figure}: ${text}`);
}

/**
 * A target is a bound on laboro's median, or on its ratio to another row: of a peer (`than`), or of another case of laboro (`beside`).
 * It is about the rows of `laboro`, unless it names another contestant (`who`).
 */
function verdict({ least, most, than, beside }, row, rows) {
  let value = median(row.values);
  let what = "";
  if (than !== undefined || beside !== undefined) {
    const other = rows.find(
      ({ about, who, figure }) => figure === row.figure && about === (beside ?? row.about) && who === (than ?? OURS),
    );
    if (other === undefined) return [];
    value = ratio(row, other);
    what = ` × ${than ?? beside}`;
  }
  const met = least === undefined ? value <= most : value >= least;
  const bound = least === undefined ? `≤ ${most}` : `≥ ${least}`;
  return [`${bound}${what}: ${met ? "met" : "missed"} (${plain(value)})`];
}
