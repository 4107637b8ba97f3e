/**
 * When V8 compiles a function for speed. A runner and its manager do little of their own, on a machine whose cores are the jobs': what
 * they would compile in their first second costs more than all that they do in it. Later is early enough.
 */
import { setFlagsFromString } from "node:v8";

/** Eight times what V8 has by itself: so much of a function runs before it is compiled. */
const BUDGET = 8 * 66 * 1024;
/** The V8 of Node 20 and 21. Later ones compile in smaller steps, and complain of a flag that they do not know. */
const V8 = /^11\./;

export function delayOptimization(): void {
  if (V8.test(process.versions.v8)) setFlagsFromString(`--interrupt-budget=${BUDGET}`);
}
