// Types of submissions come from a schema. Its descriptions become comments in the declarations, which editors show.
import { readFileSync, writeFileSync } from "node:fs";
import { submission } from "../dist/model/job-input.js";

const file = new URL("../dist/model/job-input.d.ts", import.meta.url);
const lines = readFileSync(file, "utf8").split("\n");
const first = lines.findIndex((line) => line.startsWith("export declare const submission:"));
const end = lines.indexOf("}>;", first);
const { properties } = submission.json();
const withTexts = lines.slice(first, end).flatMap((line, at) => {
  const text = properties[/^ {4}(\w+): /.exec(line)?.[1]]?.description;
  const isBare = !lines[first + at - 1]?.endsWith("*/");
  return text !== undefined && isBare ? [`    /** ${text[0].toUpperCase()}${text.slice(1)}. */`, line] : [line];
});
writeFileSync(file, [...lines.slice(0, first), ...withTexts, ...lines.slice(end)].join("\n"));
