import { describeStore } from "../contract-suite.js";
import { databaseOfFile } from "./harness.js";

describeStore("PostgreSQL", databaseOfFile(), { shared: true });
