PRAGMA application_id = 1919906913;
PRAGMA user_version = 5;
BEGIN TRANSACTION;
CREATE TABLE attempts (
    job_id TEXT NOT NULL REFERENCES jobs (id),
    number INTEGER NOT NULL,
    started_s REAL NOT NULL,
    ended_s REAL,
    outcome TEXT,
    reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (job_id, number)
) STRICT, WITHOUT ROWID;
INSERT INTO "attempts" VALUES('job-00001',1,1002.5,1006.0,'queued','worker lost with its node');
INSERT INTO "attempts" VALUES('job-00001',2,1008.0,1068.5,'failed','exit code 137: left 1 process behind, which was ended');
INSERT INTO "attempts" VALUES('job-00002',1,1002.5,1007.5,'succeeded','');
INSERT INTO "attempts" VALUES('job-00003',1,1008.0,1011.5,'queued','restarts at its new size; workers 0, 1: left 1 process behind, which was ended');
INSERT INTO "attempts" VALUES('job-00003',2,1068.5,1069.5,'failed','exit code 137');
INSERT INTO "attempts" VALUES('job-00004',1,1069.0,1154.0,'held','held by eve');
INSERT INTO "attempts" VALUES('job-00005',1,1187.5,1188.5,'failed','exit code 1: left 1 process behind, which was ended');
CREATE TABLE common_programs (
    id INTEGER PRIMARY KEY,
    sha256 TEXT NOT NULL UNIQUE,
    body TEXT NOT NULL
) STRICT;
INSERT INTO "common_programs" VALUES(1,'f3497bb1856ce5500beb9d100194894920e282a9be4f67bcda81296a426517ea','{"command":["true"],"array":"0-1"}');
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
INSERT INTO "events" VALUES(1,1001.5,'job-00001',0,NULL,'queued','JobSubmitted','','ann');
INSERT INTO "events" VALUES(2,1002.0,'job-00002',0,NULL,'queued','JobSubmitted','','ben');
INSERT INTO "events" VALUES(3,1002.5,'job-00002',1,'queued','starting','Plan','','');
INSERT INTO "events" VALUES(4,1002.5,'job-00001',1,'queued','starting','Plan','','');
INSERT INTO "events" VALUES(5,1003.0,'job-00001',1,'starting','running','WorkersStarted','','');
INSERT INTO "events" VALUES(6,1005.5,'job-00003',0,NULL,'queued','JobSubmitted','','ann');
INSERT INTO "events" VALUES(7,1006.0,'job-00001',1,'running','queued','WorkersLost','worker lost with its node','');
INSERT INTO "events" VALUES(8,1007.0,'job-00002',1,'starting','running','WorkersStarted','','');
INSERT INTO "events" VALUES(9,1007.5,'job-00002',1,'running','succeeded','WorkersExited','','');
INSERT INTO "events" VALUES(10,1008.0,'job-00001',2,'queued','starting','Plan','','');
INSERT INTO "events" VALUES(11,1008.0,'job-00003',1,'queued','starting','Plan','','');
INSERT INTO "events" VALUES(12,1010.0,'job-00001',2,'starting','running','WorkersStarted','','');
INSERT INTO "events" VALUES(13,1010.5,'job-00001',2,'running','running','Plan','','');
INSERT INTO "events" VALUES(14,1010.5,'job-00003',1,'starting','stopping','Plan','restarts at its new size','');
INSERT INTO "events" VALUES(15,1011.0,'job-00004',0,NULL,'queued','JobSubmitted','','ben');
INSERT INTO "events" VALUES(16,1011.5,'job-00003',1,'stopping','queued','WorkersExited','restarts at its new size; workers 0, 1: left 1 process behind, which was ended','');
INSERT INTO "events" VALUES(17,1068.5,'job-00001',2,'running','failed','WorkersExited','exit code 137: left 1 process behind, which was ended','');
INSERT INTO "events" VALUES(18,1068.5,'job-00003',2,'queued','starting','Plan','','');
INSERT INTO "events" VALUES(19,1069.0,'job-00004',1,'queued','starting','Plan','','');
INSERT INTO "events" VALUES(20,1069.5,'job-00003',2,'starting','failed','WorkersExited','exit code 137','');
INSERT INTO "events" VALUES(21,1070.0,'job-00004',1,'starting','stopping','JobHeld','held by eve','eve');
INSERT INTO "events" VALUES(22,1071.5,'job-00004',1,'stopping','stopping','JobResized','resized to 2 by eve','eve');
INSERT INTO "events" VALUES(23,1154.0,'job-00004',1,'stopping','held','WorkersLost','held by eve','');
INSERT INTO "events" VALUES(24,1187.0,'job-00005',0,NULL,'queued','JobSubmitted','','eve');
INSERT INTO "events" VALUES(25,1187.5,'job-00005',1,'queued','starting','Plan','','');
INSERT INTO "events" VALUES(26,1188.5,'job-00005',1,'starting','failed','WorkersExited','exit code 1: left 1 process behind, which was ended','');
INSERT INTO "events" VALUES(27,1280.0,'job-00006',0,NULL,'held','JobSubmitted','','ann');
INSERT INTO "events" VALUES(28,1338.5,'job-00007',0,NULL,'held','JobSubmitted','','ann');
INSERT INTO "events" VALUES(29,1428.0,'job-00007',0,'held','held','JobResized','resized to 2 by eve','eve');
INSERT INTO "events" VALUES(30,1430.0,'job-00006',0,'held','cancelled','JobCancelled','cancelled by eve','eve');
INSERT INTO "events" VALUES(31,1430.5,'job-00004',1,'held','queued','JobReleased','released by eve','eve');
INSERT INTO "events" VALUES(32,1431.0,'job-00008',0,NULL,'queued','JobSubmitted','','eve');
INSERT INTO "events" VALUES(33,2000.0,'job-00500',0,NULL,'queued','JobSubmitted','','');
INSERT INTO "events" VALUES(34,2000.0,'job-00501',0,NULL,'queued','JobSubmitted','','');
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    user TEXT NOT NULL,
    project TEXT NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    body TEXT NOT NULL
, ended_s REAL) STRICT;
INSERT INTO "jobs" VALUES(1,'job-00001','train-1','ann','speech','failed',2,'{"v":2,"id":"job-00001","spec":{"name":"train-1","user":"ann","project":"speech","mode":"live","max_workers":4,"epochs":10.0,"estimate":{"seconds":600.0},"min_runtime_s":0.0},"submitted_s":1001.5,"phase":{"kind":"Ended","at_s":1068.5,"state":"failed","reason":"exit code 137: left 1 process behind, which was ended"},"service":{"as_of_s":1068.5,"running_s":64.0,"waiting_s":3.0,"gpu_s":135.0,"last_running_s":60.5,"last_waiting_s":2.0,"last_gpu_s":121.0},"attempt":2,"generation":1,"workers_numbered":6,"losses":1,"first_started_s":1002.5,"speed":{"one_s":60.0,"error":0.3},"saved_at_s":1010.0,"start_s":2.0,"deaths":1,"died_at_s":1068.5}',1068.5);
INSERT INTO "jobs" VALUES(2,'job-00002','train-2','ben','speech','succeeded',1,'{"v":2,"id":"job-00002","spec":{"name":"train-2","user":"ben","project":"speech","priority":1,"mode":"live","max_workers":4,"epochs":10.0,"estimate":{"seconds":600.0},"category":"resnet","retries":1,"min_runtime_s":0.0},"submitted_s":1002.0,"phase":{"kind":"Ended","at_s":1007.5,"state":"succeeded"},"service":{"as_of_s":1007.5,"running_s":5.0,"waiting_s":0.5,"gpu_s":20.0,"last_running_s":5.0,"last_waiting_s":0.5,"last_gpu_s":20.0},"attempt":1,"workers_numbered":4,"first_started_s":1002.5,"speed":{"one_s":60.0,"error":0.3},"saved_at_s":1007.0,"start_s":4.5}',1007.5);
INSERT INTO "jobs" VALUES(3,'job-00003','train-0','ann','vision','failed',2,'{"v":2,"id":"job-00003","spec":{"name":"train-0","user":"ann","project":"vision","mode":"torchrun","max_workers":3,"epochs":10.0,"min_runtime_s":0.0},"submitted_s":1005.5,"phase":{"kind":"Ended","at_s":1069.5,"state":"failed","reason":"exit code 137"},"service":{"as_of_s":1069.5,"running_s":4.5,"waiting_s":59.5,"gpu_s":10.0,"last_running_s":4.5,"last_waiting_s":59.5,"last_gpu_s":10.0},"attempt":2,"workers_numbered":3,"first_started_s":1008.0,"speed":{"one_s":121.9047619047619,"error":0.1625600850454994,"measured":[[{"workers":2,"crosses":false},{"count":2,"mean_s":64.0,"squares":392.0,"recent":[78.0,50.0]}]]},"epochs_done":2.0,"epochs_done_at_start":2.0,"reported_in":1,"epochs_saved":2.0,"saved_at_s":1009.0,"progress_at_s":1009.0,"stop_s":1.0,"memory_bytes_seen":82678120448}',1069.5);
INSERT INTO "jobs" VALUES(4,'job-00004','train-2','ben','speech','queued',1,'{"v":2,"id":"job-00004","spec":{"name":"train-2","user":"ben","project":"speech","priority":1,"max_workers":2,"epochs":10.0,"estimate":{"seconds":600.0},"category":"resnet","retries":1,"min_runtime_s":0.0},"submitted_s":1011.0,"phase":{"kind":"Queued","since_s":1430.5},"service":{"as_of_s":1430.5,"running_s":85.0,"waiting_s":58.0,"gpu_s":170.0,"last_running_s":85.0,"last_gpu_s":170.0},"attempt":1,"workers_numbered":2,"first_started_s":1069.0,"speed":{"one_s":182.85714285714283,"error":0.10000000000000002,"measured":[[{"workers":2,"crosses":false},{"count":1,"mean_s":96.0,"squares":0.0,"recent":[96.0]}]]},"epochs_done":1.0,"reported_in":1,"epochs_saved":1.0,"saved_at_s":1072.0,"progress_at_s":1072.0,"memory_bytes_seen":102005473280,"pinned_workers":2}',NULL);
INSERT INTO "jobs" VALUES(5,'job-00005','train-3','eve','speech','failed',1,'{"v":2,"id":"job-00005","spec":{"name":"train-3","user":"eve","project":"speech","priority":2,"gpus":0,"share":{"fraction":0.5},"epochs":10.0,"estimate":{"seconds":600.0},"category":"resnet","retries":2,"min_runtime_s":0.0},"submitted_s":1187.0,"phase":{"kind":"Ended","at_s":1188.5,"state":"failed","reason":"exit code 1: left 1 process behind, which was ended"},"service":{"as_of_s":1188.5,"running_s":1.0,"waiting_s":0.5,"gpu_s":0.5,"last_running_s":1.0,"last_waiting_s":0.5,"last_gpu_s":0.5},"attempt":1,"workers_numbered":1,"first_started_s":1187.5,"speed":{"one_s":42.0,"error":0.1,"measured":[[{"workers":2,"crosses":false},{"count":1,"mean_s":96.0,"squares":0.0,"recent":[96.0]}],[{"workers":1,"crosses":false},{"count":1,"mean_s":42.0,"squares":0.0,"recent":[42.0]}]],"terms":{"work_s":42.00002425868435,"exchange_s":149.99978167184094}},"epochs_done":1.0,"reported_in":1,"epochs_saved":1.0,"saved_at_s":1188.0,"progress_at_s":1188.0,"memory_bytes_seen":44023414784}',1188.5);
INSERT INTO "jobs" VALUES(6,'job-00006','train-2','ann','speech','cancelled',0,'{"v":2,"id":"job-00006","spec":{"name":"train-2","user":"ann","project":"speech","max_workers":2,"epochs":10.0,"estimate":{"seconds":600.0},"min_runtime_s":0.0},"submitted_s":1280.0,"phase":{"kind":"Ended","at_s":1430.0,"state":"cancelled","reason":"cancelled by eve"},"service":{"as_of_s":1430.0},"speed":{"one_s":60.0,"error":0.3}}',1430.0);
INSERT INTO "jobs" VALUES(7,'job-00007','train-3','ann','speech','held',0,'{"v":2,"id":"job-00007","spec":{"name":"train-3","user":"ann","project":"speech","max_workers":2,"epochs":10.0,"estimate":{"seconds":600.0},"min_runtime_s":0.0},"submitted_s":1338.5,"phase":{"kind":"Held","since_s":1338.5},"service":{"as_of_s":1338.5},"speed":{"one_s":60.0,"error":0.3},"pinned_workers":2}',NULL);
INSERT INTO "jobs" VALUES(8,'job-00008','train-0','eve','speech','queued',0,'{"v":2,"id":"job-00008","spec":{"name":"train-0","user":"eve","project":"speech","priority":2,"max_workers":2,"epochs":10.0,"estimate":{"seconds":600.0},"category":"resnet","retries":2,"min_runtime_s":0.0},"submitted_s":1431.0,"phase":{"kind":"Queued","since_s":1431.0},"service":{"as_of_s":1431.0},"speed":{"one_s":42.0,"error":0.1,"measured":[[{"workers":2,"crosses":false},{"count":1,"mean_s":96.0,"squares":0.0,"recent":[96.0]}],[{"workers":1,"crosses":false},{"count":1,"mean_s":42.0,"squares":0.0,"recent":[42.0]}]],"terms":{"work_s":42.00002425868435,"exchange_s":149.99978167184094}}}',NULL);
INSERT INTO "jobs" VALUES(9,'job-00500','array[0]','ben','speech','queued',0,'{"v":2,"id":"job-00500","spec":{"name":"array[0]","user":"ben","project":"speech","priority":1,"max_workers":2,"epochs":10.0,"estimate":{"seconds":600.0},"category":"resnet","retries":1,"min_runtime_s":0.0,"array":"job-00500"},"submitted_s":2000.0,"phase":{"kind":"Queued","since_s":2000.0},"service":{"as_of_s":2000.0},"speed":{"one_s":60.0,"error":0.3}}',NULL);
INSERT INTO "jobs" VALUES(10,'job-00501','array[1]','ben','speech','queued',0,'{"v":2,"id":"job-00501","spec":{"name":"array[1]","user":"ben","project":"speech","priority":1,"max_workers":2,"epochs":10.0,"estimate":{"seconds":600.0},"category":"resnet","retries":1,"min_runtime_s":0.0,"array":"job-00500"},"submitted_s":2000.0,"phase":{"kind":"Queued","since_s":2000.0},"service":{"as_of_s":2000.0},"speed":{"one_s":60.0,"error":0.3}}',NULL);
CREATE TABLE nodes (
    id TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "nodes" VALUES('node-0','{"v":2,"id":"node-0","gpus":[{"index":0,"type":"A100"},{"index":1,"type":"A100"},{"index":2,"type":"A100"},{"index":3,"type":"A100"}],"cpus":32.0,"memory_bytes":274877906944.0,"max_workers":16.0}');
INSERT INTO "nodes" VALUES('node-1','{"v":2,"id":"node-1","gpus":[{"index":0,"type":"A100"},{"index":1,"type":"A100"},{"index":2,"type":"A100"},{"index":3,"type":"A100"}],"cpus":32.0,"memory_bytes":274877906944.0,"max_workers":16.0}');
CREATE TABLE profiles (
    category TEXT PRIMARY KEY,
    speed TEXT NOT NULL,
    updated_s REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE projects (
    name TEXT PRIMARY KEY,
    parent TEXT,
    settings TEXT NOT NULL
) STRICT, WITHOUT ROWID;
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
INSERT INTO "samples" VALUES(1,'job-00004',1,1068.0,0,1,2.0,0.1,32.0,1,2,'{"loss":0.5}');
CREATE TABLE submissions (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id),
    user TEXT NOT NULL,
    uid INTEGER NOT NULL,
    program TEXT NOT NULL,
    key TEXT
, common TEXT REFERENCES common_programs (sha256)) STRICT, WITHOUT ROWID;
INSERT INTO "submissions" VALUES('job-00001','ann',1000,'{"argv": ["python", "train.py"]}','key-1',NULL);
INSERT INTO "submissions" VALUES('job-00002','ben',1000,'{"argv": ["python", "train.py"]}','key-2',NULL);
INSERT INTO "submissions" VALUES('job-00003','ann',1000,'{"argv": ["python", "train.py"]}',NULL,NULL);
INSERT INTO "submissions" VALUES('job-00004','ben',1000,'{"argv": ["python", "train.py"]}','key-4',NULL);
INSERT INTO "submissions" VALUES('job-00005','eve',1000,'{"argv": ["python", "train.py"]}','key-5',NULL);
INSERT INTO "submissions" VALUES('job-00006','ann',1000,'{"argv": ["python", "train.py"]}','key-6',NULL);
INSERT INTO "submissions" VALUES('job-00007','ann',1000,'{"argv": ["python", "train.py"]}','key-7',NULL);
INSERT INTO "submissions" VALUES('job-00008','eve',1000,'{"argv": ["python", "train.py"]}','key-8',NULL);
INSERT INTO "submissions" VALUES('job-00500','ben',1000,'{"array_index": 0}',NULL,'f3497bb1856ce5500beb9d100194894920e282a9be4f67bcda81296a426517ea');
INSERT INTO "submissions" VALUES('job-00501','ben',1000,'{"array_index": 1}',NULL,'f3497bb1856ce5500beb9d100194894920e282a9be4f67bcda81296a426517ea');
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
CREATE TABLE users (
    name TEXT PRIMARY KEY,
    uid INTEGER,
    project TEXT NOT NULL,
    is_admin INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
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
    exited_s REAL, ordered_s REAL,
    PRIMARY KEY (job_id, attempt, number),
    FOREIGN KEY (job_id, attempt) REFERENCES attempts (job_id, number)
) STRICT, WITHOUT ROWID;
INSERT INTO "workers" VALUES('job-00001',1,0,0,'node-1','[0]',0,1.0,NULL,NULL,1002.5);
INSERT INTO "workers" VALUES('job-00001',1,1,0,'node-1','[1]',0,1.0,NULL,NULL,1002.5);
INSERT INTO "workers" VALUES('job-00001',1,2,0,'node-1','[2]',0,1.0,NULL,NULL,1002.5);
INSERT INTO "workers" VALUES('job-00001',1,3,0,'node-1','[3]',0,1.0,NULL,NULL,1002.5);
INSERT INTO "workers" VALUES('job-00001',2,0,0,'node-0','[0]',0,1.0,137,1068.5,1008.0);
INSERT INTO "workers" VALUES('job-00001',2,1,0,'node-0','[1]',0,1.0,137,1068.5,1008.0);
INSERT INTO "workers" VALUES('job-00001',2,2,1,'node-1','[0]',0,1.0,137,1068.5,1010.5);
INSERT INTO "workers" VALUES('job-00001',2,3,1,'node-1','[1]',0,1.0,137,1068.5,1010.5);
INSERT INTO "workers" VALUES('job-00001',2,4,1,'node-1','[2]',0,1.0,137,1068.5,1010.5);
INSERT INTO "workers" VALUES('job-00001',2,5,1,'node-1','[3]',0,1.0,137,1068.5,1010.5);
INSERT INTO "workers" VALUES('job-00002',1,0,0,'node-0','[0]',0,1.0,0,1007.5,1002.5);
INSERT INTO "workers" VALUES('job-00002',1,1,0,'node-0','[1]',0,1.0,0,1007.5,1002.5);
INSERT INTO "workers" VALUES('job-00002',1,2,0,'node-0','[2]',0,1.0,0,1007.5,1002.5);
INSERT INTO "workers" VALUES('job-00002',1,3,0,'node-0','[3]',0,1.0,0,1007.5,1002.5);
INSERT INTO "workers" VALUES('job-00003',1,0,0,'node-0','[2]',0,1.0,137,1011.5,1008.0);
INSERT INTO "workers" VALUES('job-00003',1,1,0,'node-0','[3]',0,1.0,137,1011.5,1008.0);
INSERT INTO "workers" VALUES('job-00003',2,0,0,'node-0','[2]',0,1.0,137,1069.5,1068.5);
INSERT INTO "workers" VALUES('job-00003',2,1,0,'node-0','[3]',0,1.0,137,1069.5,1068.5);
INSERT INTO "workers" VALUES('job-00003',2,2,0,'node-0','[0]',0,1.0,137,1069.5,1068.5);
INSERT INTO "workers" VALUES('job-00004',1,0,0,'node-1','[0]',0,1.0,NULL,NULL,1069.0);
INSERT INTO "workers" VALUES('job-00004',1,1,0,'node-1','[1]',0,1.0,NULL,NULL,1069.0);
INSERT INTO "workers" VALUES('job-00005',1,0,0,'node-0','[0]',8589934592,0.5,1,1188.5,1187.5);
CREATE INDEX jobs_by_state ON jobs (state, number, id);
CREATE UNIQUE INDEX submissions_by_key ON submissions (user, key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX attempts_alive ON attempts (job_id) WHERE ended_s IS NULL;
CREATE INDEX events_by_job ON events (job_id, number);
CREATE INDEX samples_by_job ON samples (job_id, number);
CREATE INDEX profiles_by_age ON profiles (updated_s, category);
CREATE INDEX jobs_by_end ON jobs (ended_s) WHERE ended_s IS NOT NULL;
CREATE INDEX jobs_by_name ON jobs (name, number);
CREATE INDEX jobs_by_id_end ON jobs (substr(id, -4));
CREATE INDEX events_by_time ON events (at_s);
CREATE INDEX tokens_by_job ON tokens (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX submissions_by_common ON submissions (common, user) WHERE common IS NOT NULL;
COMMIT;
