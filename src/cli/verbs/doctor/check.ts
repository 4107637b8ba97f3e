/** One check and its result. */
export interface Check {
  readonly state: "ok" | "warn" | "FAIL";
  readonly message: string;
  /** What to do about it. */
  readonly remedy?: string;
}

export const ok = (message: string): Check => ({ state: "ok", message });
export const warn = (message: string, remedy: string): Check => ({ state: "warn", message, remedy });
/** Some messages already say what to do. */
export const fail = (message: string, remedy?: string): Check => ({
  state: "FAIL",
  message,
  ...(remedy === undefined ? {} : { remedy }),
});

export const messageOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));
