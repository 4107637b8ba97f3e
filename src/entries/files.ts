/**
 * `laboro/files`: files that go with a job to its workers, and files that its tasks return. For Node only.
 *
 * @module laboro/files
 */
export { describeFiles, fetchFiles, submitWithFiles } from "../client/task-files.js";
