import { describeStore } from "../contract-suite.js";
import { sqliteHarness } from "./harness.js";

describeStore("SQLite", sqliteHarness, { shared: false });
