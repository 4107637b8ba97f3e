import type { JobId } from "../model/ids.js";
import { type JobRecipe, RECIPES_REMEMBERED } from "../protocols/laboro/messages.js";

/** Recipes kept: twice the number that the broker relies on. */
const MAX_RECIPES = 2 * RECIPES_REMEMBERED;

/** A worker's recipes. Old ones without tasks are removed: the broker sends again what is not among its last. */
export class Recipes {
  readonly #recipes = new Map<JobId, JobRecipe>();
  readonly #jobsInUse: () => ReadonlySet<JobId>;
  readonly #forgotten: (job: JobId) => void;
  #most = MAX_RECIPES;

  /** `forgotten` is called for a job whose files are not valid any more. */
  constructor(jobsInUse: () => ReadonlySet<JobId>, forgotten: (job: JobId) => void) {
    this.#jobsInUse = jobsInUse;
    this.#forgotten = forgotten;
  }

  get(job: JobId): JobRecipe | undefined {
    return this.#recipes.get(job);
  }

  add(recipe: JobRecipe): void {
    const before = this.#recipes.get(recipe.job);
    // A job of another store has this number now, so the written script is not the right one.
    if (before !== undefined && before.acceptedBy !== recipe.acceptedBy) this.#forgotten(recipe.job);
    this.#recipes.delete(recipe.job);
    this.#recipes.set(recipe.job, recipe);
    if (this.#recipes.size > this.#most) this.#forgetOld();
  }

  /** The last ones stay: their tasks may be on their way. */
  #forgetOld(): void {
    const inUse = this.#jobsInUse();
    let removable = this.#recipes.size - RECIPES_REMEMBERED;
    for (const job of this.#recipes.keys()) {
      if (removable-- <= 0) break;
      if (inUse.has(job)) continue;
      this.#recipes.delete(job);
      this.#forgotten(job);
    }
    // If more jobs have tasks here, recipes are looked through again when as many more have come.
    this.#most = Math.max(MAX_RECIPES, 2 * this.#recipes.size);
  }
}
