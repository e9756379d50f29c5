-- The first schema. Times are seconds since the epoch.

-- The scheduler's own values. `body` is the whole job (rota.store.codec); the other columns repeat
-- what is searched for, and `rota store check` compares them. `number` is the order of submission.
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    user TEXT NOT NULL,
    project TEXT NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;

-- The live jobs and the outcomes of the others are read from here at every start.
CREATE INDEX jobs_by_state ON jobs (state, number, id);

-- What came with a job and never changes; apart from `jobs`, so that a change of state does not
-- write a long program again.
CREATE TABLE submissions (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id),
    user TEXT NOT NULL,
    uid INTEGER NOT NULL,
    program TEXT NOT NULL,
    key TEXT
) STRICT, WITHOUT ROWID;

-- A submit that is sent again is one job.
CREATE UNIQUE INDEX submissions_by_key ON submissions (user, key) WHERE key IS NOT NULL;

CREATE TABLE attempts (
    job_id TEXT NOT NULL REFERENCES jobs (id),
    number INTEGER NOT NULL,
    started_s REAL NOT NULL,
    ended_s REAL,
    outcome TEXT,
    reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (job_id, number)
) STRICT, WITHOUT ROWID;

-- A job never runs twice at once.
CREATE UNIQUE INDEX attempts_alive ON attempts (job_id) WHERE ended_s IS NULL;

-- Every worker of every attempt, with the generation in which it joined and the slot it got.
-- `gpus` is a JSON list of indices.
CREATE TABLE workers (
    job_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    number INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    node TEXT NOT NULL,
    gpus TEXT NOT NULL,
    share_bytes INTEGER NOT NULL,
    fraction REAL NOT NULL,
    exit_code INTEGER,
    exited_s REAL,
    PRIMARY KEY (job_id, attempt, number),
    FOREIGN KEY (job_id, attempt) REFERENCES attempts (job_id, number)
) STRICT, WITHOUT ROWID;

-- The audit log: one row for every transition, in the order in which they happened.
CREATE TABLE events (
    number INTEGER PRIMARY KEY,
    at_s REAL NOT NULL,
    job_id TEXT NOT NULL REFERENCES jobs (id),
    attempt INTEGER NOT NULL,
    before TEXT,
    after TEXT NOT NULL,
    cause TEXT NOT NULL,
    reason TEXT NOT NULL,
    actor TEXT NOT NULL
) STRICT;

CREATE INDEX events_by_job ON events (job_id, number);

CREATE TABLE nodes (
    id TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE projects (
    name TEXT PRIMARY KEY,
    parent TEXT,
    settings TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE users (
    name TEXT PRIMARY KEY,
    uid INTEGER,
    project TEXT NOT NULL,
    is_admin INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    sha256 TEXT NOT NULL UNIQUE,
    user TEXT NOT NULL,
    scope TEXT NOT NULL,
    created_s REAL NOT NULL,
    job_id TEXT REFERENCES jobs (id),
    expires_s REAL,
    revoked_s REAL
) STRICT, WITHOUT ROWID;

CREATE TABLE usage (
    project TEXT NOT NULL,
    user TEXT NOT NULL,
    gpu_s REAL NOT NULL,
    decayed_gpu_s REAL NOT NULL,
    as_of_s REAL NOT NULL,
    PRIMARY KEY (project, user)
) STRICT, WITHOUT ROWID;

CREATE TABLE profiles (
    category TEXT PRIMARY KEY,
    speed TEXT NOT NULL,
    updated_s REAL NOT NULL
) STRICT, WITHOUT ROWID;
