/** Property tests draw from the seed of all random tests; one that fails prints it. */
import fc from "fast-check";
import { SEED } from "./random.js";

fc.configureGlobal({ seed: SEED });
