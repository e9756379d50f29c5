PRAGMA application_id = 1919906913;
PRAGMA user_version = 1;
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
INSERT INTO "attempts" VALUES('job-00001',1,1002.5,1005.0,'failed','exit code 137');
INSERT INTO "attempts" VALUES('job-00002',1,1002.5,1059.5,'held','held by eve');
INSERT INTO "attempts" VALUES('job-00003',1,1059.5,NULL,NULL,'');
INSERT INTO "attempts" VALUES('job-00005',1,1200.5,NULL,NULL,'');
INSERT INTO "attempts" VALUES('job-00006',1,1325.5,NULL,NULL,'');
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
INSERT INTO "events" VALUES(6,1005.0,'job-00001',1,'running','failed','WorkersExited','exit code 137','');
INSERT INTO "events" VALUES(7,1005.5,'job-00002',1,'starting','stopping','JobHeld','held by eve','eve');
INSERT INTO "events" VALUES(8,1007.0,'job-00003',0,NULL,'queued','JobSubmitted','','ben');
INSERT INTO "events" VALUES(9,1059.5,'job-00002',1,'stopping','held','WorkersExited','held by eve','');
INSERT INTO "events" VALUES(10,1059.5,'job-00003',1,'queued','starting','Plan','','');
INSERT INTO "events" VALUES(11,1061.0,'job-00003',1,'starting','running','WorkersStarted','','');
INSERT INTO "events" VALUES(12,1124.0,'job-00003',1,'running','stopping','JobCancelled','cancelled by eve','eve');
INSERT INTO "events" VALUES(13,1199.0,'job-00004',0,NULL,'queued','JobSubmitted','','eve');
INSERT INTO "events" VALUES(14,1200.0,'job-00005',0,NULL,'queued','JobSubmitted','','ben');
INSERT INTO "events" VALUES(15,1200.5,'job-00005',1,'queued','starting','Plan','','');
INSERT INTO "events" VALUES(16,1202.0,'job-00006',0,NULL,'queued','JobSubmitted','','ann');
INSERT INTO "events" VALUES(17,1203.0,'job-00005',1,'starting','running','WorkersStarted','','');
INSERT INTO "events" VALUES(18,1325.5,'job-00006',1,'queued','starting','Plan','','');
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
INSERT INTO "jobs" VALUES(1,'job-00001','train-1','ann','speech','failed',1,'{"v":1,"id":"job-00001","spec":{"name":"train-1","user":"ann","project":"speech","mode":"live","max_workers":4,"epochs":10.0,"estimate":{"seconds":600.0},"min_runtime_s":0.0},"submitted_s":1001.5,"phase":{"kind":"Ended","at_s":1005.0,"state":"failed","reason":"exit code 137"},"service":{"as_of_s":1005.0,"running_s":2.5,"waiting_s":1.0,"gpu_s":10.0,"last_running_s":2.5,"last_waiting_s":1.0,"last_gpu_s":10.0},"attempt":1,"workers_numbered":4,"first_started_s":1002.5,"speed":{"one_s":60.0,"error":0.3},"start_s":0.5}');
INSERT INTO "jobs" VALUES(2,'job-00002','train-2','ben','speech','held',1,'{"v":1,"id":"job-00002","spec":{"name":"train-2","user":"ben","project":"speech","priority":1,"mode":"live","max_workers":4,"epochs":10.0,"estimate":{"seconds":600.0},"category":"resnet","retries":1,"min_runtime_s":0.0},"submitted_s":1002.0,"phase":{"kind":"Held","since_s":1059.5},"service":{"as_of_s":1059.5,"running_s":57.0,"waiting_s":0.5,"gpu_s":228.0,"last_running_s":57.0,"last_waiting_s":0.5,"last_gpu_s":228.0},"attempt":1,"workers_numbered":4,"first_started_s":1002.5,"speed":{"one_s":102.02898550724638,"speedups":[0.0,1.0,1.9047619047619047,2.727272727272727,3.4782608695652173,4.166666666666667],"error":0.41348648633318746,"measured":[[{"workers":4,"crosses":false},{"count":3,"mean_s":29.333333333333336,"squares":882.6666666666667}]]},"epochs_done":3.0,"progress_at_s":1006.5,"memory_bytes_seen":52613349376}');
INSERT INTO "jobs" VALUES(3,'job-00003','train-0','ben','vision','stopping',1,'{"v":1,"id":"job-00003","spec":{"name":"train-0","user":"ben","project":"vision","priority":1,"mode":"fixed","epochs":10.0,"category":"resnet","retries":1,"min_runtime_s":0.0},"submitted_s":1007.0,"phase":{"kind":"Stopping","since_s":1124.0,"allocation":[{"node":"node-0","gpus":[0]}],"numbers":[0],"purpose":"cancel","reason":"cancelled by eve"},"service":{"as_of_s":1124.0,"running_s":64.5,"waiting_s":52.5,"gpu_s":64.5,"last_running_s":64.5,"last_waiting_s":52.5,"last_gpu_s":64.5},"attempt":1,"workers_numbered":1,"first_started_s":1059.5,"speed":{"one_s":20.0,"speedups":[0.0,1.0,0.7627118644067797,0.706806282722513,0.6818181818181819,0.6676557863501483],"error":0.3351148647498906,"measured":[[{"workers":4,"crosses":false},{"count":3,"mean_s":29.333333333333336,"squares":882.6666666666667}],[{"workers":1,"crosses":false},{"count":1,"mean_s":20.0,"squares":0.0}]]},"epochs_done":1.0,"progress_at_s":1124.5,"start_s":1.5,"memory_bytes_seen":20401094656}');
INSERT INTO "jobs" VALUES(4,'job-00004','train-3','eve','vision','queued',0,'{"v":1,"id":"job-00004","spec":{"name":"train-3","user":"eve","project":"vision","priority":2,"mode":"fixed","epochs":10.0,"category":"resnet","retries":2,"min_runtime_s":0.0},"submitted_s":1199.0,"phase":{"kind":"Queued","since_s":1199.0},"service":{"as_of_s":1199.0},"speed":{"one_s":20.0,"speedups":[0.0,1.0,0.7627118644067797,0.706806282722513,0.6818181818181819,0.6676557863501483],"error":0.3351148647498906,"measured":[[{"workers":4,"crosses":false},{"count":3,"mean_s":29.333333333333336,"squares":882.6666666666667}],[{"workers":1,"crosses":false},{"count":1,"mean_s":20.0,"squares":0.0}]]}}');
INSERT INTO "jobs" VALUES(5,'job-00005','train-6','ben','speech','running',1,'{"v":1,"id":"job-00005","spec":{"name":"train-6","user":"ben","project":"speech","priority":1,"mode":"live","gpus":0,"share":{"fraction":0.5},"epochs":10.0,"estimate":{"seconds":600.0},"category":"resnet","retries":1,"min_runtime_s":0.0},"submitted_s":1200.0,"phase":{"kind":"Running","since_s":1203.0,"allocation":[{"node":"node-0","gpus":[1],"share_bytes":8589934592,"fraction":0.5}],"numbers":[0]},"service":{"as_of_s":1203.0,"running_s":2.5,"waiting_s":0.5,"gpu_s":1.25,"last_running_s":2.5,"last_waiting_s":0.5,"last_gpu_s":1.25},"attempt":1,"workers_numbered":1,"first_started_s":1200.5,"speed":{"one_s":20.0,"speedups":[0.0,1.0,0.7627118644067797,0.706806282722513,0.6818181818181819,0.6676557863501483],"error":0.3351148647498906,"measured":[[{"workers":4,"crosses":false},{"count":3,"mean_s":29.333333333333336,"squares":882.6666666666667}],[{"workers":1,"crosses":false},{"count":1,"mean_s":20.0,"squares":0.0}]]},"start_s":2.5}');
INSERT INTO "jobs" VALUES(6,'job-00006','train-1','ann','vision','starting',1,'{"v":1,"id":"job-00006","spec":{"name":"train-1","user":"ann","project":"vision","mode":"torchrun","max_workers":3,"epochs":10.0,"time_limit_s":300.0,"min_runtime_s":0.0},"submitted_s":1202.0,"phase":{"kind":"Starting","since_s":1325.5,"allocation":[{"node":"node-1","gpus":[0]},{"node":"node-1","gpus":[1]},{"node":"node-1","gpus":[2]}]},"service":{"as_of_s":1325.5,"waiting_s":123.5,"last_waiting_s":123.5},"attempt":1,"workers_numbered":3,"first_started_s":1325.5,"speed":{"one_s":35.45454545454545,"speedups":[0.0,1.0,1.9047619047619047,2.727272727272727,3.4782608695652177],"error":0.1,"measured":[[{"workers":3,"crosses":false},{"count":1,"mean_s":13.0,"squares":0.0}]]},"epochs_done":1.0,"progress_at_s":1326.0,"memory_bytes_seen":12884901888}');
CREATE TABLE nodes (
    id TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "nodes" VALUES('node-0','{"v":1,"id":"node-0","gpus":[{"index":0,"type":"A100"},{"index":1,"type":"A100"},{"index":2,"type":"A100"},{"index":3,"type":"A100"}],"cpus":32.0,"memory_bytes":274877906944.0,"max_workers":16.0}');
INSERT INTO "nodes" VALUES('node-1','{"v":1,"id":"node-1","gpus":[{"index":0,"type":"A100"},{"index":1,"type":"A100"},{"index":2,"type":"A100"},{"index":3,"type":"A100"}],"cpus":32.0,"memory_bytes":274877906944.0,"max_workers":16.0}');
CREATE TABLE profiles (
    category TEXT PRIMARY KEY,
    speed TEXT NOT NULL,
    updated_s REAL NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "profiles" VALUES('resnet','{"v":1,"one_s":60.0,"error":0.3}',5.0);
CREATE TABLE projects (
    name TEXT PRIMARY KEY,
    parent TEXT,
    settings TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "projects" VALUES('vision','lab','{"quota": 4}');
CREATE TABLE submissions (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id),
    user TEXT NOT NULL,
    uid INTEGER NOT NULL,
    program TEXT NOT NULL,
    key TEXT
) STRICT, WITHOUT ROWID;
INSERT INTO "submissions" VALUES('job-00001','ann',1000,'{"argv": ["python", "train.py"]}','key-1');
INSERT INTO "submissions" VALUES('job-00002','ben',1000,'{"argv": ["python", "train.py"]}','key-2');
INSERT INTO "submissions" VALUES('job-00003','ben',1000,'{"argv": ["python", "train.py"]}',NULL);
INSERT INTO "submissions" VALUES('job-00004','eve',1000,'{"argv": ["python", "train.py"]}',NULL);
INSERT INTO "submissions" VALUES('job-00005','ben',1000,'{"argv": ["python", "train.py"]}','key-5');
INSERT INTO "submissions" VALUES('job-00006','ann',1000,'{"argv": ["python", "train.py"]}',NULL);
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
INSERT INTO "tokens" VALUES('t1','abababababababababababababababababababababababababababababababab','ann','read_only',5.0,NULL,9.0,NULL);
CREATE TABLE usage (
    project TEXT NOT NULL,
    user TEXT NOT NULL,
    gpu_s REAL NOT NULL,
    decayed_gpu_s REAL NOT NULL,
    as_of_s REAL NOT NULL,
    PRIMARY KEY (project, user)
) STRICT, WITHOUT ROWID;
INSERT INTO "usage" VALUES('vision','ann',3600.0,1800.0,5.0);
CREATE TABLE users (
    name TEXT PRIMARY KEY,
    uid INTEGER,
    project TEXT NOT NULL,
    is_admin INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "users" VALUES('ann',1000,'vision',1);
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
INSERT INTO "workers" VALUES('job-00001',1,0,0,'node-1','[0]',0,1.0,137,1005.0);
INSERT INTO "workers" VALUES('job-00001',1,1,0,'node-1','[1]',0,1.0,137,1005.0);
INSERT INTO "workers" VALUES('job-00001',1,2,0,'node-1','[2]',0,1.0,137,1005.0);
INSERT INTO "workers" VALUES('job-00001',1,3,0,'node-1','[3]',0,1.0,137,1005.0);
INSERT INTO "workers" VALUES('job-00002',1,0,0,'node-0','[0]',0,1.0,1,1059.5);
INSERT INTO "workers" VALUES('job-00002',1,1,0,'node-0','[1]',0,1.0,1,1059.5);
INSERT INTO "workers" VALUES('job-00002',1,2,0,'node-0','[2]',0,1.0,1,1059.5);
INSERT INTO "workers" VALUES('job-00002',1,3,0,'node-0','[3]',0,1.0,1,1059.5);
INSERT INTO "workers" VALUES('job-00003',1,0,0,'node-0','[0]',0,1.0,NULL,NULL);
INSERT INTO "workers" VALUES('job-00005',1,0,0,'node-0','[1]',8589934592,0.5,NULL,NULL);
INSERT INTO "workers" VALUES('job-00006',1,0,0,'node-1','[0]',0,1.0,NULL,NULL);
INSERT INTO "workers" VALUES('job-00006',1,1,0,'node-1','[1]',0,1.0,NULL,NULL);
INSERT INTO "workers" VALUES('job-00006',1,2,0,'node-1','[2]',0,1.0,NULL,NULL);
CREATE INDEX jobs_by_state ON jobs (state, number, id);
CREATE UNIQUE INDEX submissions_by_key ON submissions (user, key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX attempts_alive ON attempts (job_id) WHERE ended_s IS NULL;
CREATE INDEX events_by_job ON events (job_id, number);
COMMIT;
