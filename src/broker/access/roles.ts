/** What a token allows. */
export const ROLES = ["admin", "client", "worker", "read", "fuq"] as const;
/** What the holder of a token may do. */
export type Role = (typeof ROLES)[number];

/** The role that an operation requires; `any` is any known token. */
export type RequiredRole = "any" | "read" | "client" | "worker" | "admin";

const ALLOWED: Readonly<Record<RequiredRole, readonly Role[]>> = {
  any: ROLES,
  read: ["read", "client", "fuq", "admin"],
  client: ["client", "fuq", "admin"],
  worker: ["worker", "fuq", "admin"],
  admin: ["admin"],
};

export const roleAllows = (role: Role, needed: RequiredRole): boolean => ALLOWED[needed].includes(role);

export const isRole = (value: unknown): value is Role => ROLES.some((role) => role === value);
