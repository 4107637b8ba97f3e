/** One thing that was looked at. */
export interface Check {
  readonly state: "ok" | "warn" | "FAIL";
  readonly what: string;
  /** What to do about it. */
  readonly remedy?: string;
}

export const ok = (what: string): Check => ({ state: "ok", what });
export const warn = (what: string, remedy: string): Check => ({ state: "warn", what, remedy });
/** Some failures say themselves what to do. */
export const fail = (what: string, remedy?: string): Check => ({
  state: "FAIL",
  what,
  ...(remedy === undefined ? {} : { remedy }),
});

export const messageOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));
