/** Numbers that an operator or a test may change. Times are milliseconds. */
export interface Settings {
  /** How long a disconnected worker that can resume keeps its tasks. */
  readonly graceMs: number;
  /** The same after its own side closed the connection: its process has ended, or it comes back at once. */
  readonly closedGraceMs: number;
  /** Requests that may wait for one service. */
  readonly maxWaitingRequests: number;
  /** The most tasks in one lease. */
  readonly maxLeaseTasks: number;
  /** A worker may prefetch this much of its measured rate… */
  readonly prefetchMs: number;
  /** …but never more tasks than this, … */
  readonly maxPrefetch: number;
  /** …and no task of a job whose tasks take longer than this. */
  readonly maxPrefetchTaskMs: number;
  /** The first wait before a retry; doubles with each failure. A job may have a policy of its own. */
  readonly retryBackoffMs: number;
  /** The longest wait before a retry. */
  readonly maxRetryBackoffMs: number;
  /** Workers that fail too often are suspended or banned. */
  readonly standing: boolean;
}

export const DEFAULT_SETTINGS: Settings = {
  graceMs: 30_000,
  closedGraceMs: 2_000,
  maxWaitingRequests: 10_000,
  maxLeaseTasks: 16_384,
  prefetchMs: 50,
  maxPrefetch: 8_192,
  maxPrefetchTaskMs: 1_000,
  retryBackoffMs: 1_000,
  maxRetryBackoffMs: 60_000,
  standing: false,
};
