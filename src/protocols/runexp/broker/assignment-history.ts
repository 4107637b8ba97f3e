/**
 * Which task was assigned to which host: a result that comes late, over another connection, counts only from one of them. A host is what a
 * runner says it is (`-h`); two runners of one name are one host here.
 */
const MAX_HOSTS = 1_000;
const MAX_TASKS = 100_000;

export class AssignmentHistory {
  readonly #hosts = new Map<string, Set<string>>();

  add(host: string, task: string): void {
    const tasks = this.#hosts.get(host) ?? new Set();
    // The last used is last; the oldest is removed first.
    this.#hosts.delete(host);
    this.#hosts.set(host, tasks);
    tasks.delete(task);
    tasks.add(task);
    dropOldest(tasks, MAX_TASKS);
    dropOldest(this.#hosts, MAX_HOSTS);
  }

  has(host: string, task: string): boolean {
    return this.#hosts.get(host)?.has(task) ?? false;
  }
}

function dropOldest(entries: Map<string, unknown> | Set<string>, most: number): void {
  const [oldest] = entries.keys();
  if (entries.size > most && oldest !== undefined) entries.delete(oldest);
}
