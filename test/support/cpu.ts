/** Milliseconds of processor time that this process has used: unlike the clock, the same beside others that use the machine. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
