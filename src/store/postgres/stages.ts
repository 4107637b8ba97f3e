/**
 * A batch divided into stages. Within a stage the writes of one kind are one statement, and the kinds go in the order in which `Stage` lists
 * them. A write joins the last stage if that changes nothing about what it means; otherwise it begins the next.
 *
 * Most batches of a busy broker are one stage: results of some claims, tasks that go back, new claims.
 */
import type { JobId, ParcelId } from "../../model/ids.js";
import type { Write } from "../../model/store.js";

export type Op<Name extends Write["op"]> = Extract<Write, { op: Name }>;

/** A write with its place in the batch. */
export interface Placed<Name extends Write["op"]> {
  readonly at: number;
  readonly write: Op<Name>;
}

/** Done one after the other, each alone in its stage; neighbours that give back go together. */
export type Solo = Exclude<Write["op"], "output" | "submit" | "settle" | "replace" | "claim" | "lease">;

export interface Stage {
  readonly submits: Placed<"submit">[];
  readonly settles: Placed<"settle">[];
  readonly replaces: Placed<"replace">[];
  readonly claims: Placed<"claim">[];
  readonly leases: Placed<"lease">[];
  readonly solo: Placed<Solo>[];
}

/** `apart`: every write in a stage of its own. */
export function stagesOf(writes: readonly Write[], apart: boolean): Stage[] {
  const stages: Draft[] = [];
  writes.forEach((write, at) => {
    // Bytes go before all else (operations/output.ts).
    if (write.op === "output") return;
    const last = stages.at(-1);
    if (last !== undefined && !apart && last.admits(write)) last.add(at, write);
    else stages.push(new Draft(at, write));
  });
  return stages;
}

class Draft implements Stage {
  readonly submits: Placed<"submit">[] = [];
  readonly settles: Placed<"settle">[] = [];
  readonly replaces: Placed<"replace">[] = [];
  readonly claims: Placed<"claim">[] = [];
  readonly leases: Placed<"lease">[] = [];
  readonly solo: Placed<Solo>[] = [];
  /** Parcels that are put in the place of others. */
  readonly #pieces = new Set<ParcelId>();
  readonly #replaced = new Set<ParcelId>();
  /** Parcels that claims make, and those that they take from, with the task that follows what is taken. */
  readonly #claimed = new Set<ParcelId>();
  readonly #takenFrom = new Map<ParcelId, number>();
  readonly #emptied = new Set<ParcelId>();
  readonly #leased = new Set<JobId>();

  constructor(at: number, write: Exclude<Write, Op<"output">>) {
    this.add(at, write);
  }

  admits(write: Exclude<Write, Op<"output">>): boolean {
    if (this.solo.length > 0) return write.op === "release" && this.solo.every((one) => one.write.op === "release");
    switch (write.op) {
      case "submit":
        return true;
      case "settle": {
        const { parcel } = write;
        return (
          !this.#isNew(parcel) &&
          !this.#replaced.has(parcel) &&
          !this.#emptied.has(parcel) &&
          !this.#takenFrom.has(parcel)
        );
      }
      case "replace": {
        const names = [write.parcel, ...write.pieces.map(({ id }) => id)];
        if (this.leases.length > 0) return false;
        return names.every((id) => !this.#isNew(id) && !this.#replaced.has(id) && !this.#takenFrom.has(id));
      }
      case "claim": {
        const { from, parcel, first } = write;
        // A lease may be what makes `from` this broker's.
        if (this.leases.length > 0 || this.#claimed.has(from) || this.#isNew(parcel)) return false;
        // Only what follows on can be added up to one cut.
        return (this.#takenFrom.get(from) ?? first) === first;
      }
      case "lease":
        return !this.#leased.has(write.job);
      default:
        return false;
    }
  }

  add(at: number, write: Exclude<Write, Op<"output">>): void {
    switch (write.op) {
      case "submit":
        this.submits.push({ at, write });
        break;
      case "settle":
        this.settles.push({ at, write });
        if (write.empty) this.#emptied.add(write.parcel);
        break;
      case "replace":
        this.replaces.push({ at, write });
        this.#replaced.add(write.parcel);
        for (const { id } of write.pieces) this.#pieces.add(id);
        break;
      case "claim":
        this.claims.push({ at, write });
        this.#claimed.add(write.parcel);
        this.#takenFrom.set(write.from, write.last + 1);
        break;
      case "lease":
        this.leases.push({ at, write });
        this.#leased.add(write.job);
        break;
      default:
        this.solo.push({ at, write });
    }
  }

  #isNew(parcel: ParcelId): boolean {
    return this.#pieces.has(parcel) || this.#claimed.has(parcel);
  }
}
