// Prints the rows that `npm run test:faults` has kept as the table of docs/guide/operations.md.
import { readFileSync } from "node:fs";

const file = new URL("../test/output/faults.jsonl", import.meta.url);
const rows = readFileSync(file, "utf8")
  .trimEnd()
  .split("\n")
  .map((line) => JSON.parse(line))
  .sort((a, b) => (a.fault < b.fault ? -1 : 1));
console.log(
  "| fault | submissions lost | results lost | outputs lost or altered | recorded twice | started twice | seconds |",
);
console.log("|---|---|---|---|---|---|---|");
for (const { fault, submissionsLost, resultsLost, outputsLost, recordedTwice, startedTwice, pauseMs, note } of rows) {
  const counts = [submissionsLost, resultsLost, outputsLost, recordedTwice, startedTwice];
  const name = note === undefined ? fault : `${fault} (${note})`;
  console.log(`| ${[name, ...counts, pauseMs === undefined ? "–" : (pauseMs / 1000).toFixed(1)].join(" | ")} |`);
}
