-- All statements that rota runs on a database with the newest schema. A line `-- name: NAME` starts
-- each statement; rota.store.sqlite.sql_loader splits the file at these lines.

-- name: put_job
-- Inserts a new job, or replaces the job with its current state.
INSERT INTO jobs (id, name, user, project, state, attempt, ended_s, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    name = excluded.name, user = excluded.user, project = excluded.project,
    state = excluded.state, attempt = excluded.attempt, ended_s = excluded.ended_s,
    body = excluded.body;

-- name: put_submission
-- A repeated insert changes nothing, so that a batch can be written again.
INSERT INTO submissions (job_id, user, uid, program, key, common)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (job_id) DO NOTHING;

-- name: put_common
-- The part of a program that several jobs share.
INSERT INTO common_programs (sha256, body) VALUES (?, ?)
ON CONFLICT (sha256) DO NOTHING;

-- name: begin_attempt
INSERT INTO attempts (job_id, number, started_s, ended_s, outcome, reason)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (job_id, number) DO UPDATE SET
    started_s = excluded.started_s, ended_s = excluded.ended_s,
    outcome = excluded.outcome, reason = excluded.reason;

-- name: end_attempt
UPDATE attempts SET ended_s = ?, outcome = ?, reason = ?
WHERE job_id = ? AND number = ?;

-- name: put_worker
-- A worker keeps its number and its slot until it exits.
INSERT INTO workers (
    job_id, attempt, number, generation, node, gpus, share_bytes, fraction, ordered_s
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (job_id, attempt, number) DO NOTHING;

-- name: put_exit
UPDATE workers SET exit_code = ?, exited_s = ?
WHERE job_id = ? AND attempt = ? AND number = ?;

-- name: put_event
INSERT INTO events (at_s, job_id, attempt, before, after, cause, reason, actor)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: live_jobs
SELECT id, body FROM jobs
WHERE state IN ('held', 'queued', 'starting', 'running', 'stopping')
ORDER BY number;

-- name: newest_entry
SELECT ifnull(max(number), 0) FROM events;

-- name: outcomes
-- The final states of some jobs. The parameter is a JSON list of ids.
SELECT id, state FROM jobs
WHERE id IN (SELECT value FROM json_each(?)) AND state IN ('succeeded', 'failed', 'cancelled');

-- name: job
SELECT id, body FROM jobs WHERE id = ?;

-- name: jobs
-- A page of jobs, newest first, plus one job. The extra job shows that there is another page.
SELECT number, id, body FROM jobs
WHERE (:before IS NULL OR number < :before)
    AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
    AND (:user = '' OR user = :user)
    AND (:project = '' OR project = :project)
ORDER BY number DESC
LIMIT :limit + 1;

-- name: count_jobs
SELECT count(*) FROM jobs
WHERE (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
    AND (:user = '' OR user = :user)
    AND (:project = '' OR project = :project);

-- name: jobs_by_word
-- The same for the jobs that a word matches. Each part of the union uses an index; only a word of
-- less than four characters is compared with the end of every id.
SELECT number, id, body FROM jobs
WHERE number IN (
    SELECT number FROM jobs WHERE name = :word
    UNION ALL
    SELECT number FROM jobs
    WHERE substr(:word, -1) = '[' AND name >= :word AND name < :word_end
    UNION ALL
    SELECT number FROM jobs WHERE length(:word) >= 4 AND id >= :word AND id < :word_end
    UNION ALL
    SELECT number FROM jobs
    WHERE length(:word) >= 4
        AND substr(id, -4) = substr(:word, -4) AND substr(id, -length(:word)) = :word
    UNION ALL
    SELECT number FROM jobs WHERE length(:word) < 4 AND substr(id, -length(:word)) = :word
)
    AND (:before IS NULL OR number < :before)
    AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
    AND (:user = '' OR user = :user)
    AND (:project = '' OR project = :project)
ORDER BY number DESC
LIMIT :limit + 1;

-- name: submission
SELECT job_id, user, uid, program, key, ifnull(body, '') FROM submissions
LEFT JOIN common_programs ON common_programs.sha256 = submissions.common
WHERE job_id = ?;

-- name: request_bytes
-- The bytes of the programs of each user's jobs. A common part counts once for each user.
SELECT user, sum(n_bytes) FROM (
    SELECT user, length(CAST(program AS BLOB)) AS n_bytes FROM submissions
    UNION ALL
    SELECT user, length(CAST(body AS BLOB)) FROM (
        SELECT DISTINCT user, common FROM submissions WHERE common IS NOT NULL
    ) AS used
    JOIN common_programs ON common_programs.sha256 = used.common
)
GROUP BY user;

-- name: job_with_key
SELECT job_id FROM submissions WHERE user = ? AND key = ?;

-- name: attempts
SELECT job_id, number, started_s, ended_s, outcome, reason FROM attempts
WHERE job_id = ?
ORDER BY number;

-- name: workers
SELECT
    job_id, attempt, number, generation, node, gpus, share_bytes, fraction,
    ordered_s, exit_code, exited_s
FROM workers
WHERE job_id = ?
ORDER BY attempt, number;

-- name: story
SELECT number, at_s, job_id, attempt, before, after, cause, reason, actor FROM events
WHERE number > ?
ORDER BY number
LIMIT ?;

-- name: story_of_job
SELECT number, at_s, job_id, attempt, before, after, cause, reason, actor FROM events
WHERE job_id = ? AND number > ?
ORDER BY number
LIMIT ?;

-- name: put_sample
INSERT INTO samples (
    job_id, attempt, at_s, worker, workers,
    epochs_done, step_s, samples_per_s, memory_bytes, gpu_memory_bytes, metrics
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: thin_samples
-- Deletes samples of a job that has too many: of every second sample, those whose neighbours are
-- closest in time. rota.store.retention follows the same rule.
DELETE FROM samples WHERE number IN (
    SELECT number FROM (
        SELECT
            number,
            row_number() OVER by_age AS place,
            lead(at_s) OVER by_age - lag(at_s) OVER by_age AS gap_s
        FROM samples WHERE job_id = ?
        WINDOW by_age AS (ORDER BY number)
    )
    WHERE place % 2 = 0 AND gap_s IS NOT NULL
    ORDER BY gap_s, number
    LIMIT CASE WHEN (SELECT count(*) FROM samples WHERE job_id = ?) > ? THEN ? ELSE 0 END
);

-- name: samples
SELECT
    job_id, attempt, at_s, worker, workers,
    epochs_done, step_s, samples_per_s, memory_bytes, gpu_memory_bytes, metrics
FROM samples
WHERE job_id = ?
ORDER BY number;

-- name: put_node
INSERT INTO nodes (id, body) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET body = excluded.body;

-- name: lose_node
DELETE FROM nodes WHERE id = ?;

-- name: nodes
SELECT id, body FROM nodes ORDER BY id;

-- name: put_project
INSERT INTO projects (name, parent, settings) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET parent = excluded.parent, settings = excluded.settings;

-- name: projects
SELECT name, parent, settings FROM projects ORDER BY name;

-- name: put_user
INSERT INTO users (name, uid, project, is_admin) VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
    uid = excluded.uid, project = excluded.project, is_admin = excluded.is_admin;

-- name: users
SELECT name, uid, project, is_admin FROM users ORDER BY name;

-- name: put_token
INSERT INTO tokens (id, sha256, user, scope, created_s, job_id, expires_s, revoked_s)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    sha256 = excluded.sha256, user = excluded.user, scope = excluded.scope,
    created_s = excluded.created_s, job_id = excluded.job_id,
    expires_s = excluded.expires_s, revoked_s = excluded.revoked_s;

-- name: tokens
SELECT id, sha256, user, scope, created_s, job_id, expires_s, revoked_s FROM tokens ORDER BY id;

-- name: put_usage
INSERT INTO usage (project, user, gpu_s, decayed_gpu_s, as_of_s) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (project, user) DO UPDATE SET
    gpu_s = excluded.gpu_s, decayed_gpu_s = excluded.decayed_gpu_s, as_of_s = excluded.as_of_s;

-- name: usage
SELECT project, user, gpu_s, decayed_gpu_s, as_of_s FROM usage ORDER BY project, user;

-- name: put_profile
INSERT INTO profiles (category, speed, updated_s) VALUES (?, ?, ?)
ON CONFLICT (category) DO UPDATE SET speed = excluded.speed, updated_s = excluded.updated_s;

-- name: thin_profiles
DELETE FROM profiles WHERE category IN (
    SELECT category FROM profiles ORDER BY updated_s DESC, category DESC LIMIT -1 OFFSET ?
);

-- name: profiles
SELECT category, speed, updated_s FROM profiles ORDER BY category;

-- name: expired_jobs
-- Jobs that ended before a time, oldest first, except those of a JSON list. The newest job and the
-- job of the newest event stay, so that no number is used twice.
SELECT id FROM jobs
WHERE ended_s < :before_s
    AND id NOT IN (SELECT value FROM json_each(:keep))
    AND number < (SELECT max(number) FROM jobs)
    AND id != (SELECT job_id FROM events ORDER BY number DESC LIMIT 1)
ORDER BY ended_s
LIMIT :limit;

-- name: delete_samples
DELETE FROM samples WHERE job_id = ?;

-- name: delete_events
DELETE FROM events WHERE job_id = ?;

-- name: delete_workers
DELETE FROM workers WHERE job_id = ?;

-- name: delete_attempts
DELETE FROM attempts WHERE job_id = ?;

-- name: delete_tokens_of_job
DELETE FROM tokens WHERE job_id = ?;

-- name: delete_submission
DELETE FROM submissions WHERE job_id = ?;

-- name: delete_unused_common
-- Deletes common parts that no job has any more.
DELETE FROM common_programs WHERE NOT EXISTS (
    SELECT 1 FROM submissions WHERE submissions.common = common_programs.sha256
);

-- name: delete_job
DELETE FROM jobs WHERE id = ?;

-- name: expired_events
-- Events from before a time, oldest first, except the newest event of each job.
SELECT number FROM events
WHERE at_s < :before_s
    AND EXISTS (
        SELECT 1 FROM events AS later
        WHERE later.job_id = events.job_id AND later.number > events.number
    )
ORDER BY at_s
LIMIT :limit;

-- name: delete_event
DELETE FROM events WHERE number = ?;

-- name: delete_token
DELETE FROM tokens WHERE id = ?;

-- name: check_submissions
-- Jobs without a submission.
SELECT jobs.id FROM jobs
LEFT JOIN submissions ON submissions.job_id = jobs.id
WHERE submissions.job_id IS NULL;

-- name: check_attempts
-- Jobs whose live attempt does not match their state.
SELECT jobs.id, jobs.state, jobs.attempt, alive.number FROM jobs
LEFT JOIN attempts AS alive ON alive.job_id = jobs.id AND alive.ended_s IS NULL
WHERE CASE
    WHEN jobs.state IN ('starting', 'running', 'stopping')
        THEN alive.number IS NOT jobs.attempt
    ELSE alive.number IS NOT NULL
END;

-- name: check_events
-- Jobs whose newest event does not lead to their state.
SELECT jobs.id, jobs.state, newest.after FROM jobs
LEFT JOIN events AS newest ON newest.number = (
    SELECT max(number) FROM events WHERE job_id = jobs.id
)
WHERE newest.after IS NOT jobs.state;

-- name: check_columns
-- All jobs, to compare the columns with the body.
SELECT id, name, user, project, state, attempt, ended_s, body FROM jobs ORDER BY number;

-- name: check_samples
-- All samples, to decode each of them.
SELECT
    job_id, attempt, at_s, worker, workers,
    epochs_done, step_s, samples_per_s, memory_bytes, gpu_memory_bytes, metrics
FROM samples
ORDER BY number;
