"""Several orchestrators of one job without anything else beside them: they elect one that leads, and replicate the journal.

`understudy run --rdzv-endpoint host0:port,host1:port,host2:port` starts one on each of these hosts, a *member* with the number of its place
in the list.

- `raft`: elections and replication, Raft in the small. Pure: no I/O, no clock.
- `roster`: who the members are. Pure. A host that lost its disk is not the member that it was.
- `storage`: what a member has promised, on its disk.
- `transport`: the members' connections.
- `member`: one member: the four above with a clock.
- `candidate`: what the next two ask of a member.
- `replicated`: the journal of the one that leads.
- `serving`: the process around it, which serves the job when it leads, and sends everybody away when it does not.

Where the log is kept elsewhere, a lock says who leads: `leased` has the place of a member then (on Kubernetes).

Limits: the members do not change during a job, and the log is kept whole, as the journal is. A majority must be there for anything to be
decided; training goes on without, as without any orchestrator. A member whose disk refuses says nothing until it takes what is written.

An orchestrator that is away when the job ends has a journal without the end; the others have it. If the disks of a majority are full,
decisions wait.
"""
