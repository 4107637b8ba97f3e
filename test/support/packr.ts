import { Packr } from "msgpackr";

/** Writes maps with the shortest head. */
export const packr = new Packr({ useRecords: false, variableMapSize: true });
