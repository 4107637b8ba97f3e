import { badMessage, type LaboroError } from "../../base/errors.js";

/** What the peer sent is not ZMTP 3. */
export const zmtpError = (what: string): LaboroError => badMessage(`not ZMTP 3: ${what}`);
