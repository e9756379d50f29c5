-- How a job trained, from time to time: as many points as a chart needs. A job has so many at most,
-- and those that stand closest make room for new ones. `metrics` is a JSON object of numbers.
CREATE TABLE samples (
    number INTEGER PRIMARY KEY,
    job_id TEXT NOT NULL REFERENCES jobs (id),
    attempt INTEGER NOT NULL,
    at_s REAL NOT NULL,
    worker INTEGER NOT NULL,
    workers INTEGER NOT NULL,
    epochs_done REAL NOT NULL,
    step_s REAL NOT NULL,
    samples_per_s REAL NOT NULL,
    memory_bytes INTEGER NOT NULL,
    gpu_memory_bytes INTEGER NOT NULL,
    metrics TEXT NOT NULL
) STRICT;

CREATE INDEX samples_by_job ON samples (job_id, number);

-- Every program may be a category of its own; those that learnt nothing for longest are forgotten.
CREATE INDEX profiles_by_age ON profiles (updated_s, category);
