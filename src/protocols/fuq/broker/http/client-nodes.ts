/** The requests of fuq's client about workers: those that speak fuq, at any listener. */
import type { Core, KnownWorker } from "../../../../broker/core.js";
import type { JsonFields } from "./json-http.js";
import type { NodeInfo, Nodes } from "./nodes.js";

/** Those that are connected, or with `cookie_list` all whose cookie is good. The original's empty list is null. */
export async function nodesList(core: Core, nodes: Nodes, given: JsonFields): Promise<object[] | null> {
  const session = await nodes.session();
  const known = new Map((await nodes.all()).map(({ id, info }) => [id, info]));
  const connected = core.workers("fuq").filter(({ connected }) => connected);
  const entries = given.flag("cookie_list")
    ? Array.from(known.values(), (info) => entryOf(info, session))
    : connected.map((worker) => entryOf(known.get(worker.profile.id) ?? infoOf(worker), session));
  return entries.length === 0 ? null : entries;
}

const entryOf = ({ node, pid, uniqueName, tags, nproc }: NodeInfo, session: string) => ({
  node,
  pid,
  session,
  unique_name: uniqueName,
  ...(tags.length === 0 ? {} : { tags }),
  nproc,
});

/** A worker at another listener has reported only its slots. */
const infoOf = ({ profile: { name, tags, total, address = name } }: KnownWorker): NodeInfo => ({
  node: address,
  pid: 0,
  uniqueName: name,
  tags,
  nproc: total.slots,
});

/** They end what they run, and go. A name that is not known is no mistake: it may be gone already. */
export async function nodesShutdown(core: Core, nodes: Nodes, given: JsonFields): Promise<object> {
  const names = new Set(given.texts("uniq_names"));
  for (const name of names) {
    const node = await nodes.findByName(name);
    // A disconnected one is stopped when it reconnects.
    if (node !== undefined) node.stopping = true;
  }
  stop(core, (name) => names.has(name));
  return {};
}

/**
 * All workers that speak fuq are stopped. The broker goes on: it may have work of others, and who has fuq's password is not its
 * operator.
 */
export async function shutdown(core: Core, nodes: Nodes): Promise<object> {
  for (const node of await nodes.all()) node.stopping = true;
  stop(core, () => true);
  return {};
}

function stop(core: Core, isMeant: (name: string) => boolean): void {
  for (const { profile } of core.workers("fuq").filter(({ profile }) => isMeant(profile.name))) {
    core.workerDrains(profile.id);
    core.portOf(profile.id)?.stop();
  }
}
