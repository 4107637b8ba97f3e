/** What a frame of the link may hold. Both ends check all of it: a sender before it sends, a receiver before it uses a value. */

/** Bytes of one frame. */
export const FRAME_LIMIT = 64 * 1024 * 1024;
export const MESSAGES_LIMIT = 65_535;
/** Values of any kind in one frame: a byte on the wire can cost fifty in memory. */
export const VALUES_LIMIT = 2 * 1024 * 1024;
/** Arrays and maps inside each other, the frame itself counted. */
export const DEPTH_LIMIT = 64;
/** Rows of one list: the tasks of a DONE, the entries of a TASKS. */
export const ROWS_LIMIT = 100_000;
/** Bytes of a name: of a worker, a service, a pool, a tag. */
export const NAME_LIMIT = 1024;
/** Names in one list, amounts in one map. */
export const NAMES_LIMIT = 1024;
/** Characters of a text for a person. A longer one is cut by its sender. */
export const TEXT_LIMIT = 16 * 1024;
/** Milliseconds between two HEARTBEATs: beyond a day a timer is a mistake. */
export const HEARTBEAT_LIMIT = 86_400_000;
