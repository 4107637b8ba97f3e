import type { Operation } from "../batch-context.js";
import type { Database } from "../database.js";

const HOLD = "UPDATE job SET held = ? WHERE id = ?";

export function prepareHold(db: Database): Operation<"hold"> {
  const hold = db.prepare(HOLD);
  return ({ op, job, held }) => ({ op, found: hold.run(held ? 1 : 0, job).changes > 0 });
}
