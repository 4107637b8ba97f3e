/** `LABORO_TEST_SCALE=10` makes random tests and soaks ten times as long. */
const SCALE = Number(process.env.LABORO_TEST_SCALE ?? 1);

/** How often to repeat what a usual run repeats `count` times. */
export const scaled = (count: number): number => Math.ceil(count * SCALE);

/** More than a usual run: random tests look for what has not been tried. */
export const isLongRun = SCALE > 1 || process.env.LABORO_FAULTS === "full";
