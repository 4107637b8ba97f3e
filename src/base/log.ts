/** The part of pino that laboro uses, so that an embedding program can pass its own logger. */
export interface Log {
  /** What happens in the usual course. */
  info(fields: object, text: string): void;
  /** What somebody should look at. */
  warn(fields: object, text: string): void;
  /** What does not work. */
  error(fields: object, text: string): void;
}

export const SILENT: Log = { info: () => {}, warn: () => {}, error: () => {} };
