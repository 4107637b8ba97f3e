/** Recipes of tasks that do nothing. */

/** For jobs that never run, and for a few tasks that do. */
export const TRUE = { kind: "command", argv: ["true"] } as const;

/** For many tasks: a function of the worker, which needs `services: NOTHING`. */
export const CALL_NOTHING = { kind: "call", service: "nothing" } as const;

export const NOTHING = { nothing: () => undefined };

/** A line for /bin/sh. */
export const sh = (line: string) => ({ kind: "command", argv: ["/bin/sh", "-c", line] }) as const;
