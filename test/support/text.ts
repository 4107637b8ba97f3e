/** Bytes as UTF-8. */
export const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString();
