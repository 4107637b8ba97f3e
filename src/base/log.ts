/** The part of pino that laboro uses, so that an embedding program may bring its own. */
export interface Log {
  info(fields: object, text: string): void;
  warn(fields: object, text: string): void;
  error(fields: object, text: string): void;
}

export const SILENT: Log = { info: () => {}, warn: () => {}, error: () => {} };
