/** Milliseconds since 1970, with fractions, and never backwards while this process lives. */
export const now = (): number => performance.timeOrigin + performance.now();
