import { describeStore } from "../contract-suite.js";
import { postgresHarness } from "./harness.js";

describeStore("PostgreSQL", postgresHarness, { shared: true });
