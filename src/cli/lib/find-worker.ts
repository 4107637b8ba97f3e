/** Finds a worker by its id, or by its name. */

import { badInput, LaboroError } from "../../base/errors.js";
import type { Client } from "../../client/client.js";
import { suggestion } from "./suggest.js";
import type { WorkerView } from "./views.js";

export async function findWorker(client: Client, name: string): Promise<WorkerView> {
  const { workers } = await client.ask("workers", {});
  const found = workers.filter((worker) => worker.id === name);
  if (found.length === 0) found.push(...workers.filter((worker) => worker.name === name));
  // A worker that came back with another id may still be listed as disconnected.
  const connectedOnly = found.length > 1 ? found.filter(({ connected }) => connected) : found;
  const [only, ...more] = connectedOnly;
  if (only !== undefined && more.length === 0) return only;
  if (found.length > 1) {
    const ids = found.map(({ id }) => id).join(", ");
    throw badInput(`${found.length} workers are called ${name}: say which by its id, one of ${ids}`);
  }
  const names = workers.map((worker) => worker.name);
  const hint = suggestion(name, names) || (names.length === 0 ? "; no worker is known" : "; laboro workers lists them");
  throw new LaboroError("LABORO_NO_SUCH_WORKER", `there is no worker ${name}${hint}`);
}
