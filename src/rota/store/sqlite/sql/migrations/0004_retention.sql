-- When a job ended. Retention deletes jobs by this time. A body holds the time in its phase.
ALTER TABLE jobs ADD COLUMN ended_s REAL;

UPDATE jobs SET ended_s = json_extract(body, '$.phase.at_s')
WHERE state IN ('succeeded', 'failed', 'cancelled');

CREATE INDEX jobs_by_end ON jobs (ended_s) WHERE ended_s IS NOT NULL;

-- Jobs are looked up by name, by the beginning of the id (its own unique index), and by the end of
-- the id: the last four characters narrow the search.
CREATE INDEX jobs_by_name ON jobs (name, number);
CREATE INDEX jobs_by_id_end ON jobs (substr(id, -4));

-- Retention deletes events by their time.
CREATE INDEX events_by_time ON events (at_s);

-- A job is deleted only if no row refers to it.
CREATE INDEX tokens_by_job ON tokens (job_id) WHERE job_id IS NOT NULL;
