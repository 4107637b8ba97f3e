/** The last bytes of a program's standard error: the error text for its client. */
const MAX_BYTES = 2 * 1024;

export class StderrTail {
  #bytes: Buffer = Buffer.alloc(0);

  push(bytes: Uint8Array): void {
    const all = Buffer.concat([this.#bytes, bytes.subarray(-MAX_BYTES)]);
    this.#bytes = all.subarray(-MAX_BYTES);
  }

  get text(): string {
    // The first bytes may be the end of a cut UTF-8 character.
    let from = 0;
    while (from < 3 && ((this.#bytes[from] ?? 0) & 0xc0) === 0x80) from++;
    return this.#bytes.subarray(from).toString().trim();
  }
}

export interface ProgramEnd {
  readonly code?: number | null | undefined;
  readonly signal?: string | null | undefined;
  readonly error?: string | undefined;
}

export function describeEnd(service: string, { code, signal, error }: ProgramEnd): string {
  if (typeof error === "string") return `the program of ${service}: ${error}`;
  return typeof signal === "string"
    ? `the program of ${service} was ended by ${signal}`
    : `the program of ${service} ended with code ${code ?? 0}`;
}
