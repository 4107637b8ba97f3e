/**
 * Delays V8's optimizing compiler. A runner and its manager do little work of their own and share the cores with the jobs: compiling in
 * the first second costs them more than everything else that they do in it.
 */
import { setFlagsFromString } from "node:v8";

/** Eight times V8's default: how much of a function runs before it is optimized. */
const BUDGET = 8 * 66 * 1024;
/** The V8 of Node 20 and 21. Later versions compile in smaller steps and print a warning about the flag. */
const V8 = /^11\./;

export function delayOptimization(): void {
  if (V8.test(process.versions.v8)) setFlagsFromString(`--interrupt-budget=${BUDGET}`);
}
