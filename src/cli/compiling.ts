/**
 * When V8 compiles a function for speed. A runner and its manager do little of their own, on a machine whose cores are the jobs': what
 * they would compile in their first second costs more than all that they do in it. Later is early enough.
 */
import { setFlagsFromString } from "node:v8";

/** Eight times what V8 has by itself: so much of a function runs before it is compiled. */
const BUDGET = 8 * 66 * 1024;
/** Up to here it is known that V8 has the flag; it complains of what it does not know. */
const KNOWN_NODE = 24;

export function compileLate(): void {
  if (Number.parseInt(process.versions.node, 10) <= KNOWN_NODE) setFlagsFromString(`--interrupt-budget=${BUDGET}`);
}
