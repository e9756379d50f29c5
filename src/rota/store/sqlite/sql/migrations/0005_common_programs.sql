-- The part of a program that several jobs share, such as the jobs of an array. `submissions.program` is
-- whole if the job has none.
CREATE TABLE common_programs (
    id INTEGER PRIMARY KEY,
    sha256 TEXT NOT NULL UNIQUE,
    body TEXT NOT NULL
) STRICT;

ALTER TABLE submissions ADD COLUMN common TEXT REFERENCES common_programs (sha256);

-- A common part is deleted with the last job that has it.
CREATE INDEX submissions_by_common ON submissions (common, user) WHERE common IS NOT NULL;
