BEGIN TRANSACTION;
CREATE TABLE events (
	seq INTEGER NOT NULL, 
	job TEXT NOT NULL, 
	now DOUBLE NOT NULL, 
	event TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "events" VALUES(1,'finished',1.79529563386475110057e+09,'{"type":"NodeJoined","node":"a","address":"127.0.0.1","node_rank":0,"domain":"","spares":1}');
INSERT INTO "events" VALUES(2,'finished',1.7952956338704273701e+09,'{"type":"NodeJoined","node":"b","address":"127.0.0.1","node_rank":1,"domain":"","spares":1}');
INSERT INTO "events" VALUES(3,'finished',1.79529564003474473949e+09,'{"type":"WorkerStarted","worker":"w0","node":"a","pid":31156}');
INSERT INTO "events" VALUES(4,'finished',1.79529564004276490215e+09,'{"type":"WorkerStarted","worker":"w1","node":"b","pid":31157}');
INSERT INTO "events" VALUES(5,'finished',1.79529564008313965799e+09,'{"type":"WorkerStarted","worker":"w2","node":"a","pid":31163}');
INSERT INTO "events" VALUES(6,'finished',1.79529564009327101707e+09,'{"type":"WorkerStarted","worker":"w3","node":"b","pid":31162}');
INSERT INTO "events" VALUES(7,'finished',1.79529564019634985919e+09,'{"type":"WorkerWarm","worker":"w0","store":"127.0.0.1:47953"}');
INSERT INTO "events" VALUES(8,'finished',1795295640.20073,'{"type":"WorkerWarm","worker":"w1","store":"127.0.0.1:37001"}');
INSERT INTO "events" VALUES(9,'finished',1.7952956402093849182e+09,'{"type":"WorkerWarm","worker":"w3","store":"127.0.0.1:55493"}');
INSERT INTO "events" VALUES(10,'finished',1.79529564023208117488e+09,'{"type":"WorkerWarm","worker":"w2","store":"127.0.0.1:35713"}');
INSERT INTO "events" VALUES(11,'finished',1.79529564028004932408e+09,'{"type":"Committed","worker":"w1","generation":0,"transaction":0,"step":1}');
INSERT INTO "events" VALUES(12,'finished',1.79529564028300547603e+09,'{"type":"Committed","worker":"w0","generation":0,"transaction":0,"step":1}');
INSERT INTO "events" VALUES(13,'finished',1.79529564028936839108e+09,'{"type":"Notice","worker":"w0","rank":0,"text":"coverage: every rank has a replica, so the loss of any one rank is survived while spares last (ranks 0, 1 hold the same state)"}');
INSERT INTO "events" VALUES(14,'finished',1.79529564108228635783e+09,'{"type":"WorkerLost","worker":"w1","cause":"killed","detail":"SIGKILL, in transaction 6","happened":1795295641.0805287}');
INSERT INTO "events" VALUES(15,'finished',1.79529564113980913157e+09,'{"type":"Quiesced","worker":"w0","generation":1,"position":{"transaction":6,"stand":"running"},"copies":[{"rank":1,"transaction":4},{"rank":1,"transaction":5}],"step":6}');
INSERT INTO "events" VALUES(16,'finished',1.7952956411433062553e+09,'{"type":"PhaseDone","worker":"w3","generation":1,"phase":"setup","started":1795295641.0967667,"seconds":0.041838645935058594,"bytes_moved":0}');
INSERT INTO "events" VALUES(17,'finished',1.79529564114338684079e+09,'{"type":"NewcomerReady","worker":"w3","generation":1}');
INSERT INTO "events" VALUES(18,'finished',1.79529564116278243061e+09,'{"type":"PhaseDone","worker":"w0","generation":1,"phase":"attach","started":1795295641.156811,"seconds":0.003924846649169922,"bytes_moved":0}');
INSERT INTO "events" VALUES(19,'finished',1.79529564116291475298e+09,'{"type":"PhaseDone","worker":"w3","generation":1,"phase":"attach","started":1795295641.1572335,"seconds":0.0035583972930908203,"bytes_moved":0}');
INSERT INTO "events" VALUES(20,'finished',1.79529564116471648219e+09,'{"type":"PhaseDone","worker":"w3","generation":1,"phase":"transfer","started":1795295641.1609132,"seconds":0.002589702606201172,"bytes_moved":27104}');
INSERT INTO "events" VALUES(21,'finished',1.79529564116968131065e+09,'{"type":"PhaseDone","worker":"w3","generation":1,"phase":"verify","started":1795295641.163626,"seconds":0.005146026611328125,"bytes_moved":0}');
INSERT INTO "events" VALUES(22,'finished',1.79529564117292714121e+09,'{"type":"Verified","worker":"w3","generation":1,"digests":33,"notes":[]}');
INSERT INTO "events" VALUES(23,'finished',1.79529564117316293722e+09,'{"type":"PhaseDone","worker":"w0","generation":1,"phase":"transfer","started":1795295641.1608865,"seconds":0.009476184844970703,"bytes_moved":0}');
INSERT INTO "events" VALUES(24,'finished',1.79529564118529129032e+09,'{"type":"PhaseDone","worker":"w0","generation":1,"phase":"redo","started":1795295641.1719437,"seconds":0.012291193008422852,"bytes_moved":0}');
INSERT INTO "events" VALUES(25,'finished',1.7952956411899325847e+09,'{"type":"PhaseDone","worker":"w3","generation":1,"phase":"redo","started":1795295641.1691566,"seconds":0.01499485969543457,"bytes_moved":0}');
INSERT INTO "events" VALUES(26,'finished',1.79529564119005131724e+09,'{"type":"Committed","worker":"w3","generation":1,"transaction":6,"step":7}');
INSERT INTO "events" VALUES(27,'finished',1.7952956411901407242e+09,'{"type":"Committed","worker":"w0","generation":1,"transaction":6,"step":7}');
INSERT INTO "events" VALUES(28,'finished',1.79529564122806882856e+09,'{"type":"WorkerStarted","worker":"w4","node":"b","pid":31199}');
INSERT INTO "events" VALUES(29,'finished',1.79529564127482700345e+09,'{"type":"WorkerWarm","worker":"w4","store":"127.0.0.1:40883"}');
INSERT INTO "events" VALUES(30,'finished',1.79529564133045172694e+09,'{"type":"Finished","worker":"w0","generation":1}');
INSERT INTO "events" VALUES(31,'finished',1.79529564133311724666e+09,'{"type":"Finished","worker":"w3","generation":1}');
INSERT INTO "events" VALUES(32,'running',1.79529564279697251318e+09,'{"type":"NodeJoined","node":"a","address":"127.0.0.1","node_rank":0,"domain":"","spares":1}');
INSERT INTO "events" VALUES(33,'running',1.79529564281153178207e+09,'{"type":"NodeJoined","node":"b","address":"127.0.0.1","node_rank":1,"domain":"","spares":1}');
INSERT INTO "events" VALUES(34,'running',1.79529564660185909268e+09,'{"type":"WorkerStarted","worker":"w1","node":"b","pid":31219}');
INSERT INTO "events" VALUES(35,'running',1.79529564666313219073e+09,'{"type":"WorkerWarm","worker":"w1","store":"127.0.0.1:42327"}');
INSERT INTO "events" VALUES(36,'running',1.79529564666752767566e+09,'{"type":"WorkerStarted","worker":"w3","node":"b","pid":31222}');
INSERT INTO "events" VALUES(37,'running',1.79529564671105742457e+09,'{"type":"WorkerWarm","worker":"w3","store":"127.0.0.1:36335"}');
INSERT INTO "events" VALUES(38,'running',1795295646.79451,'{"type":"WorkerStarted","worker":"w0","node":"a","pid":31229}');
INSERT INTO "events" VALUES(39,'running',1.7952956468260328769e+09,'{"type":"WorkerStarted","worker":"w2","node":"a","pid":31232}');
INSERT INTO "events" VALUES(40,'running',1.79529564685017085077e+09,'{"type":"WorkerWarm","worker":"w0","store":"127.0.0.1:53787"}');
INSERT INTO "events" VALUES(41,'running',1.7952956468784217834e+09,'{"type":"WorkerWarm","worker":"w2","store":"127.0.0.1:42631"}');
INSERT INTO "events" VALUES(42,'running',1.79529564691144728665e+09,'{"type":"Committed","worker":"w1","generation":0,"transaction":0,"step":1}');
INSERT INTO "events" VALUES(43,'running',1.79529564691673779487e+09,'{"type":"Committed","worker":"w0","generation":0,"transaction":0,"step":1}');
INSERT INTO "events" VALUES(44,'running',1795295646.92062,'{"type":"Notice","worker":"w0","rank":0,"text":"coverage: every rank has a replica, so the loss of any one rank is survived while spares last (ranks 0, 1 hold the same state)"}');
INSERT INTO "events" VALUES(45,'running',1.79529564767820143701e+09,'{"type":"WorkerLost","worker":"w1","cause":"killed","detail":"SIGKILL, in transaction 6","happened":1795295647.6765146}');
INSERT INTO "events" VALUES(46,'running',1.79529564770158481593e+09,'{"type":"Quiesced","worker":"w0","generation":1,"position":{"transaction":6,"stand":"running"},"copies":[{"rank":1,"transaction":4},{"rank":1,"transaction":5}],"step":6}');
INSERT INTO "events" VALUES(47,'running',1.79529564773387336732e+09,'{"type":"PhaseDone","worker":"w3","generation":1,"phase":"setup","started":1795295647.690263,"seconds":0.04245948791503906,"bytes_moved":0}');
INSERT INTO "events" VALUES(48,'running',1.79529564773599886891e+09,'{"type":"NewcomerReady","worker":"w3","generation":1}');
INSERT INTO "events" VALUES(49,'running',1.79529564774755692486e+09,'{"type":"PhaseDone","worker":"w3","generation":1,"phase":"attach","started":1795295647.742647,"seconds":0.0038805007934570312,"bytes_moved":0}');
INSERT INTO "events" VALUES(50,'running',1.79529564775025629996e+09,'{"type":"PhaseDone","worker":"w0","generation":1,"phase":"attach","started":1795295647.742312,"seconds":0.00627446174621582,"bytes_moved":0}');
INSERT INTO "events" VALUES(51,'running',1.79529564775148844715e+09,'{"type":"PhaseDone","worker":"w3","generation":1,"phase":"transfer","started":1795295647.7466471,"seconds":0.004021167755126953,"bytes_moved":27104}');
INSERT INTO "events" VALUES(52,'running',1.79529564775502657888e+09,'{"type":"PhaseDone","worker":"w3","generation":1,"phase":"verify","started":1795295647.7507825,"seconds":0.0023789405822753906,"bytes_moved":0}');
INSERT INTO "events" VALUES(53,'running',1795295647.75541,'{"type":"PhaseDone","worker":"w0","generation":1,"phase":"transfer","started":1795295647.7487342,"seconds":0.004968881607055664,"bytes_moved":0}');
INSERT INTO "events" VALUES(54,'running',1.795295647755604744e+09,'{"type":"Verified","worker":"w3","generation":1,"digests":33,"notes":[]}');
INSERT INTO "events" VALUES(55,'running',1.79529564776759171487e+09,'{"type":"PhaseDone","worker":"w3","generation":1,"phase":"redo","started":1795295647.7544658,"seconds":0.011008024215698242,"bytes_moved":0}');
INSERT INTO "events" VALUES(56,'running',1.79529564776769852635e+09,'{"type":"PhaseDone","worker":"w0","generation":1,"phase":"redo","started":1795295647.7560225,"seconds":0.009478569030761719,"bytes_moved":0}');
INSERT INTO "events" VALUES(57,'running',1.79529564776775765418e+09,'{"type":"Committed","worker":"w0","generation":1,"transaction":6,"step":7}');
INSERT INTO "events" VALUES(58,'running',1795295647.76907,'{"type":"Committed","worker":"w3","generation":1,"transaction":6,"step":7}');
INSERT INTO "events" VALUES(59,'running',1.79529564782871603966e+09,'{"type":"WorkerStarted","worker":"w4","node":"b","pid":31263}');
INSERT INTO "events" VALUES(60,'running',1.79529564787299323082e+09,'{"type":"WorkerWarm","worker":"w4","store":"127.0.0.1:38387"}');
INSERT INTO "events" VALUES(61,'every',1000000.0,'{"type":"NodeJoined","node":"n0","address":"127.0.0.1","node_rank":0,"domain":"rack","spares":1}');
INSERT INTO "events" VALUES(62,'every',1000001.0,'{"type":"WorkerStarted","worker":"w0","node":"n0","pid":100}');
INSERT INTO "events" VALUES(63,'every',1000002.0,'{"type":"WorkerStarted","worker":"w1","node":"n0","pid":101}');
INSERT INTO "events" VALUES(64,'every',1000003.0,'{"type":"WorkerStarted","worker":"w2","node":"n0","pid":102}');
INSERT INTO "events" VALUES(65,'every',1000004.0,'{"type":"WorkerWarm","worker":"w0","store":"127.0.0.1:7000"}');
INSERT INTO "events" VALUES(66,'every',1000005.0,'{"type":"WorkerWarm","worker":"w1","store":"127.0.0.1:7001"}');
INSERT INTO "events" VALUES(67,'every',1000006.0,'{"type":"WorkerWarm","worker":"w2","store":"127.0.0.1:7002"}');
INSERT INTO "events" VALUES(68,'every',1000007.0,'{"type":"Committed","worker":"w0","generation":0,"transaction":0,"step":1}');
INSERT INTO "events" VALUES(69,'every',1000008.0,'{"type":"Committed","worker":"w1","generation":0,"transaction":0,"step":1}');
INSERT INTO "events" VALUES(70,'every',1000009.0,'{"type":"Notice","worker":"w0","rank":0,"text":"a value cannot survive"}');
INSERT INTO "events" VALUES(71,'every',1000010.0,'{"type":"CommunicationBroken","worker":"w0","generation":0,"detail":"connection closed by peer"}');
INSERT INTO "events" VALUES(72,'every',1000011.0,'{"type":"WorkerLost","worker":"w1","cause":"killed","detail":"signal 9","happened":1000008.5}');
INSERT INTO "events" VALUES(73,'every',1000012.0,'{"type":"Quiesced","worker":"w0","generation":1,"position":{"transaction":4,"stand":"running"},"copies":[{"rank":1,"transaction":3}],"step":4}');
INSERT INTO "events" VALUES(74,'every',1000013.0,'{"type":"PhaseDone","worker":"w2","generation":1,"phase":"transfer","started":1000011.0,"seconds":0.25,"bytes_moved":1048576}');
INSERT INTO "events" VALUES(75,'every',1000014.0,'{"type":"Verified","worker":"w2","generation":1,"digests":12,"notes":["a worker of the data loader began anew"]}');
INSERT INTO "events" VALUES(76,'every',1000015.0,'{"type":"Committed","worker":"w0","generation":1,"transaction":4,"step":5}');
INSERT INTO "events" VALUES(77,'every',1000016.0,'{"type":"Committed","worker":"w2","generation":1,"transaction":4,"step":5}');
INSERT INTO "events" VALUES(78,'every',1000017.0,'{"type":"StartRefused","worker":"w3","node":"n0","detail":"no memory"}');
INSERT INTO "events" VALUES(79,'every',1000018.0,'{"type":"MigrationAsked","rank":1,"reason":"firmware"}');
INSERT INTO "events" VALUES(80,'every',1000019.0,'{"type":"NewcomerReady","worker":"w3","generation":2}');
INSERT INTO "events" VALUES(81,'every',1000020.0,'{"type":"VerifyFailed","worker":"w3","generation":2,"detail":"not equal"}');
INSERT INTO "events" VALUES(82,'every',1000021.0,'{"type":"Uncovered","worker":"w9","generation":9,"detail":"nowhere"}');
INSERT INTO "events" VALUES(83,'every',1000022.0,'{"type":"Expired","timer":"hold"}');
INSERT INTO "events" VALUES(84,'every',1000023.0,'{"type":"Finished","worker":"w0","generation":1}');
INSERT INTO "events" VALUES(85,'every',1000024.0,'{"type":"NodeLost","node":"n9","detail":"never there","happened":3.0}');
INSERT INTO "events" VALUES(86,'every',1000025.0,'{"type":"StopAsked","reason":"enough","exit_code":3}');
INSERT INTO "events" VALUES(87,'every',1000026.0,'{"type":"ScriptFailed","worker":"w0","rank":0,"step":4,"summary":"ValueError: x","traceback":"Traceback","exit_code":1}');
CREATE TABLE jobs (
	number INTEGER NOT NULL, 
	job TEXT NOT NULL, 
	settings TEXT NOT NULL, 
	request TEXT NOT NULL, 
	PRIMARY KEY (number), 
	UNIQUE (job)
);
INSERT INTO "jobs" VALUES(1,'finished','{"spec": {"job": "finished", "world_size": 2, "workers_per_node": 1, "nodes": 2, "spares": 2, "replenish": true, "max_restarts": 3, "max_losses_per_transaction": 3}, "timeouts": {"beat": 0.2, "hang_floor": 60.0, "hang_factor": 20.0, "hang_first": 900.0, "quiesce": 300.0, "stop": 10.0, "heartbeat": 0.5, "node_lost": 2.0}}','{"name":"finished","program":["/home/user/spread.py","/home/user/finished"],"folder":"/home/user","nodes":2,"workers_per_node":1,"spares":2,"replenish":true,"max_restarts":3,"role":"default","timeouts":{"beat":0.2,"hang_floor":60.0,"hang_factor":20.0,"hang_first":900.0,"quiesce":300.0,"stop":10.0,"heartbeat":0.5,"node_lost":2.0}}');
INSERT INTO "jobs" VALUES(2,'running','{"spec": {"job": "running", "world_size": 2, "workers_per_node": 1, "nodes": 2, "spares": 2, "replenish": true, "max_restarts": 3, "max_losses_per_transaction": 3}, "timeouts": {"beat": 0.2, "hang_floor": 60.0, "hang_factor": 20.0, "hang_first": 900.0, "quiesce": 300.0, "stop": 10.0, "heartbeat": 0.5, "node_lost": 2.0}}','{"name":"running","program":["/home/user/spread.py","/home/user/running"],"folder":"/home/user","nodes":2,"workers_per_node":1,"spares":2,"replenish":true,"max_restarts":3,"role":"default","timeouts":{"beat":0.2,"hang_floor":60.0,"hang_factor":20.0,"hang_first":900.0,"quiesce":300.0,"stop":10.0,"heartbeat":0.5,"node_lost":2.0}}');
INSERT INTO "jobs" VALUES(3,'every','{"spec": {"job": "every", "world_size": 2, "workers_per_node": 2, "nodes": 1, "spares": 1, "replenish": true, "max_restarts": 3, "max_losses_per_transaction": 3}, "timeouts": {"beat": 0.2, "hang_floor": 60.0, "hang_factor": 20.0, "hang_first": 900.0, "quiesce": 300.0, "stop": 10.0, "heartbeat": 0.5, "node_lost": 2.0}}','{"name": "every", "program": ["train.py"], "folder": "/", "workers_per_node": 2}');
CREATE TABLE lease (
	number INTEGER NOT NULL, 
	holder TEXT NOT NULL, 
	fence INTEGER NOT NULL, 
	until DOUBLE NOT NULL, 
	PRIMARY KEY (number)
);
CREATE TABLE progress (
	job TEXT NOT NULL, 
	worker TEXT NOT NULL, 
	page TEXT NOT NULL, 
	PRIMARY KEY (job, worker)
);
INSERT INTO "progress" VALUES('finished','w1','{"beats": 5, "beat_at": 50089.877087368, "activity": 4, "transaction": 6, "step": 6, "since": 50089.203722481, "collectives": 26, "longest": 0.012390561998472549}');
INSERT INTO "progress" VALUES('finished','w3','{"beats": 7, "beat_at": 50090.20530052, "activity": 8, "transaction": 16, "step": 16, "since": 50090.195860752, "collectives": 32, "longest": 0.030135770997731015}');
INSERT INTO "progress" VALUES('finished','w0','{"beats": 8, "beat_at": 50090.197690996, "activity": 8, "transaction": 16, "step": 16, "since": 50090.193199658, "collectives": 32, "longest": 0.03490746500028763}');
INSERT INTO "progress" VALUES('finished','w2','{"beats": 6, "beat_at": 50090.156446746, "activity": 1, "transaction": -1, "step": 0, "since": 50089.076431894, "collectives": 0, "longest": 0.0}');
INSERT INTO "progress" VALUES('finished','w4','{"beats": 0, "beat_at": 50090.092103296, "activity": 1, "transaction": -1, "step": 0, "since": 50090.126657738, "collectives": 0, "longest": 0.0}');
INSERT INTO "progress" VALUES('running','w0','{"beats": 12, "beat_at": 50097.569755736, "activity": 3, "transaction": 14, "step": 14, "since": 50096.733404796, "collectives": 26, "longest": 0.025232939995476045}');
INSERT INTO "progress" VALUES('running','w1','{"beats": 6, "beat_at": 50096.51715795, "activity": 4, "transaction": 6, "step": 6, "since": 50095.852525992, "collectives": 26, "longest": 0.01518382199719781}');
INSERT INTO "progress" VALUES('running','w3','{"beats": 12, "beat_at": 50097.581137155, "activity": 3, "transaction": 14, "step": 14, "since": 50096.735956506, "collectives": 26, "longest": 0.019661402999190614}');
INSERT INTO "progress" VALUES('running','w2','{"beats": 9, "beat_at": 50097.52698611, "activity": 1, "transaction": -1, "step": 0, "since": 50095.717776998, "collectives": 0, "longest": 0.0}');
INSERT INTO "progress" VALUES('running','w4','{"beats": 4, "beat_at": 50097.498084672, "activity": 1, "transaction": -1, "step": 0, "since": 50096.728435117, "collectives": 0, "longest": 0.0}');
INSERT INTO "progress" VALUES('every','w2','{"beats": 10, "beat_at": 1.2, "activity": 5, "transaction": 6, "step": 6, "since": 2.0, "collectives": 41, "longest": 0.5}');
CREATE TABLE version (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "version" VALUES(1);
CREATE INDEX ix_events_job ON events (job);
COMMIT;
