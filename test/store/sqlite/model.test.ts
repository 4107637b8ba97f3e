import { it } from "vitest";
import { scaled } from "../../support/scale.js";
import { sameAsModel } from "../same-as-model.js";
import { sqliteHarness } from "./harness.js";

it("answers and remembers as the model does, whatever a broker does, also after it is opened again", async () => {
  await sameAsModel(sqliteHarness, scaled(8));
});
