/** Addresses and names that can only mean this machine. */
export function isLoopback(host: string): boolean {
  const plain = host.toLowerCase().replace(/^\[|\]$/g, "");
  if (plain === "localhost" || plain.endsWith(".localhost") || plain === "::1") return true;
  return /^(::ffff:)?127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(plain);
}

/** A host as it stands in a URL. */
export const inUrl = (host: string): string => (host.includes(":") ? `[${host}]` : host);
