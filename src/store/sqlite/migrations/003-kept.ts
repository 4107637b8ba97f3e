/** Small texts by key. */
export const kept = `
CREATE TABLE kept (
  area TEXT NOT NULL,
  key TEXT NOT NULL,
  version INTEGER NOT NULL,
  value TEXT NOT NULL,
  changed REAL NOT NULL,
  PRIMARY KEY (area, key)
) WITHOUT ROWID;
`;
