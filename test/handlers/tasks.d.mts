export function throwOdd(what: string): string;
