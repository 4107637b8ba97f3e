/** `--array 1-100:2,500`: numbers, each the number and the entry of one task. */
import { badInput, type LaboroError } from "../../../base/errors.js";
import { arrayFault, type Strides } from "../../../model/task-numbers.js";

const PART = /^(\d[\d_]*)(?:-(\d[\d_]*)(?::(\d[\d_]*))?)?$/;
const LARGEST = 1_000_000_000;

export function parseArray(text: string): Strides {
  const strides = text.split(",").map((part) => {
    const found = PART.exec(part.trim());
    if (found === null) throw badArray(text, "numbers and ranges as 1-100, 1-100:2 or 7");
    const [first, last = first, step = "1"] = found.slice(1).map((digits) => digits?.replaceAll("_", ""));
    const stride = { first: Number(first), last: Number(last), step: Number(step) };
    if (stride.last < stride.first) throw badArray(part, "the smaller number first");
    if (stride.step < 1) throw badArray(part, "a step of at least 1");
    if (stride.last > LARGEST) throw badArray(part, `numbers up to ${LARGEST}`);
    return stride;
  });
  const fault = arrayFault(strides);
  if (fault !== undefined) throw badInput(`--array ${text}: ${fault}, and an array has each number once`);
  return strides;
}

const badArray = (got: string, expected: string): LaboroError => badInput(`--array: expected ${expected}, got ${got}`);
