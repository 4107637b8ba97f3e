/** Milliseconds since 1970, with fractions. Never goes backwards within one process. */
export const now = (): number => performance.timeOrigin + performance.now();
