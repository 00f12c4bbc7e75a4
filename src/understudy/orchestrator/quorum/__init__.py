"""Several orchestrators of one job without an external database: they elect a leader, and replicate the journal.

`understudy run --rdzv-endpoint host0:port,host1:port,host2:port` starts one on each of these hosts. Each is a *member*, with its index in
the list as its number.

- `raft`: elections and replication, a small Raft. Pure: no I/O, no clock.
- `roster`: the identities of the members. Pure. A host that lost its disk is not the same member as before.
- `storage`: a member's durable state, on its disk.
- `transport`: the members' connections.
- `member`: one member: the four above with a clock.
- `candidate`: the interface of a member that the next two use.
- `replicated`: the leader's journal.
- `serving`: the process around it, which serves the job while it leads, and redirects clients while it does not.

If the log is kept outside of the orchestrators, a lock chooses the leader: `leased` then takes the place of a member (on Kubernetes).

Limits: the members do not change during a job, and the log is kept as a whole, like the journal. Decisions need a majority of the members;
training goes on without one, as without any orchestrator. A member whose disk rejects writes sends nothing until it accepts them.

An orchestrator that is away when the job ends has a journal without the end; the others have it. If the disks of a majority are full,
decisions wait.
"""
