import { describeStore, type StoreHarness } from "./contract-suite.js";
import { ModelWorld } from "./model-store.js";

const world = (shared: boolean) => async (): Promise<StoreHarness> => {
  const model = new ModelWorld({ shared });
  return { handle: () => model.store(), check: () => model.check(), dispose: async () => {} };
};

describeStore("the model, for one broker", world(false), { shared: false });
describeStore("the model, for a group", world(true), { shared: true });
