"""Messages about how a training script uses the API: joining, transactions, loops and what it registers."""

from __future__ import annotations

from understudy.messages.base import Message

# -- joining -------------------------------------------------------------------------------------------------------------------

JOINED_TWICE = Message(
    "US1001",
    "understudy.join() was called twice",
    cause="The script, or a library that it uses, called understudy.join() although this process had already joined the job.",
    remedy="Call understudy.join() once, at the start of the script, and pass the job object to the code that needs it.",
)

DEFAULT_STORE = Message(
    "US1002",
    "{where} uses the store of torch's default group: after a loss there is a new store, without the keys of this one, and a newcomer "
    "would wait in its setup for a key that no process sets. Share objects by dist.broadcast_object_list or dist.all_gather_object, and "
    "synchronize by dist.barrier, in a transaction or before the first one",
    cause="The script calls torch.distributed.distributed_c10d._get_default_store(), which is private to torch. Keys that it sets there "
    "cannot be given to a newcomer, and cannot be restored for a step that is redone.",
    remedy="Use collectives instead, in the setup or in a transaction: these are recorded for a newcomer, and redone after a loss.",
)

OWN_PROCESS_GROUP = Message(
    "US1003",
    "this job is not protected: its script makes its own default process group ({where}) and has not called understudy.join(), so a loss "
    "restarts every rank from the beginning of the script",
    cause="torch.distributed.init_process_group was called by the script, or by a library such as a trainer, under `understudy run`. "
    "Such a script runs as under torchrun: after a loss, no step of it is redone.",
    remedy="Call understudy.join() in place of init_process_group, register what the script trains, and wrap the step in @job.step: "
    "docs/quickstart.md. A script that you do not want to change should load its own checkpoint when it starts again.",
)
GROUP_BEFORE_JOIN = Message(
    "US1004",
    "understudy.join() was called after init_process_group, which it replaces",
    cause="The script, or a library, had made the default process group. Only join may make it, because Understudy must be able to "
    "reconnect it after a loss.",
    remedy="Remove the call of init_process_group. If a library makes it, call understudy.join() before that library does.",
)

# -- loops and transactions ----------------------------------------------------------------------------------------------------

NESTED_LOOPS = Message(
    "US1101",
    "job.batches or job.steps inside another one: only the outer loop can be continued on another worker",
    cause="A loop over job.batches or job.steps began while another one was still running in the same script.",
    remedy="Keep the job's loop for the training loop, and use a plain Python loop inside it. For a second loader use job.iterator.",
)
ARGUMENTS_CHANGED = Message(
    "US1111",
    "{function} changes its arguments in place, so the call could not be redone; work on a copy of the arguments",
    cause="The transaction wrote into a tensor, array or container that was passed to it, usually its batch. After a loss the same "
    "transaction runs again with the same arguments, and would begin with the changed ones.",
    remedy="Copy the argument before changing it (batch = batch.clone(), batch = dict(batch)), or use operations that return a new tensor.",
)
ARGUMENTS_CHANGED_IN_REDO = Message(
    "US1112",
    "{function} changes its arguments in place, so the call cannot be redone with the same batch",
    cause="A rank was lost while this transaction ran, and the transaction had already written into its arguments. So the original "
    "arguments, with which it must run again, no longer exist.",
    remedy="Start again from a checkpoint, and copy the argument in the transaction before changing it.",
)
ARGUMENT_OBJECT_CHANGED = Message(
    "US1113",
    "{function} changes an object among its arguments: if a rank is lost, the transaction runs again with the changed object. Register "
    "the object, or change it after the call",
    cause="An object that was passed to the transaction has different contents when the transaction ends. A redo does not restore "
    "objects that are not registered.",
    remedy="Register the object with job.register, or change it after the transaction has returned.",
)
WORK_KEPT = Message(
    "US1121",
    "{function} starts {call} and keeps its Work without waiting for it. A step that is redone could not start this collective again, "
    "and a newcomer does not have the Work, so the result after a loss would differ. Call wait() on the Work inside the transaction",
    cause="The transaction issued a collective with async_op=True. When the transaction ended, the Work object was still referenced, and "
    "nothing had waited for it.",
    remedy="Call wait() on the Work before the transaction returns.",
)
SAVE_WAITED_FOR = Message(
    "US1122",
    "{function} saves a distributed checkpoint in the background (async_save). Its collectives would continue after the transaction, so "
    "the transaction waits for the save before its vote. A save without collectives, such as torch.save on one rank, is not waited for",
    cause="Collectives of a thread that continues after its transaction could not be redone after a loss, and a newcomer has no such "
    "thread. So the transaction that begins the save waits for it.",
    remedy="Save without collectives if the wait takes too long: each rank its own file, or one rank all of it. Otherwise ignore this.",
)
USED_BETWEEN = Message(
    "US1131",
    "{what} is used between transactions: a newcomer runs this code before its state has arrived, so the newcomer would compute or print "
    "with its initial state. If it saves there, the job would end. Put the code into a @job.section that every rank calls",
    cause="The source between two transactions uses a registered model or object, or writes a file. A worker that takes over a rank runs "
    "this code before it has received the rank's state.",
    remedy="Move the code into a function decorated with @job.section, and call that function on every rank.",
)
NAMES_LEFT = Message(
    "US1132",
    "{names} (set in the loop at {place}) is read after the loop, and is too large or not a plain value: a newcomer that joins there does "
    "not run the loop, so the name is missing. Return it from a transaction after the loop, or set it before the loop",
    cause="After a job loop, the script reads a variable that only the loop sets. Small plain values are kept for a worker that joins "
    "after the loop; this one is too large or of another kind.",
    remedy="Return the value from a transaction after the loop, or set the variable before the loop as well.",
)
COMPUTED_OUTSIDE = Message(
    "US1133",
    "{what} is used for an argument of a transaction, and arguments are computed outside of it: a newcomer runs this code before its state "
    "has arrived, so it would compute the argument from its initial state. Pass the object from which it is computed (the model itself), "
    "and compute it inside",
    cause="A call of a @job.step or @job.section function has an argument that is computed from a registered model or object, as in "
    "save(model.state_dict()). Python computes arguments before it calls the function. At that point, a worker that takes over a rank "
    "has not received the rank's state yet.",
    remedy="Pass the model or object itself, and compute the value in the function.",
)
NAMES_OF_BLOCK = Message(
    "US1134",
    "{names} (set in the block of job.attempts at {place}) is read after the block, and is too large or not a plain value: a newcomer that "
    "skips the block does not have it. Compute in the block what is needed after it, as loss.item()",
    cause="Small plain values and tensors that the block of job.attempts() sets are kept for a worker that takes a rank over after the "
    "block; this one is too large or of another kind.",
    remedy="Compute the number that is needed inside the block, or read the value inside the block only.",
)
ATTEMPT_NOT_ENTERED = Message(
    "US1135",
    "the body of `for attempt in job.attempts()` at {place} has not entered its attempt: write `with attempt:` around the code of the step",
    cause="job.attempts() gives attempts, which are context managers. What is outside of the `with` block is not part of a transaction.",
    remedy="Make `with attempt:` the only statement of the loop, and put the code of the step into it.",
)
DRAWN_OUTSIDE = Message(
    "US1137",
    "a loop of job.lead went on without a function that draws: call loop.draw(function) for each batch",
    cause="A newcomer, or the loop itself, needed a batch of a loop that its owner leads, while the owner was not in loop.draw.",
    remedy="Draw every batch of the loop by loop.draw(function), and end the loop by loop.end().",
)
KIND_OF_TRANSACTION = Message(
    "US1136",
    'job.{method}: the kind {given!r} is neither "step" nor "section"',
    cause="job.attempts or job.begin was given a kind of transaction that does not exist.",
    remedy='Leave it out for a training step, and give "section" for code that steps no optimizer.',
)
RESULTS_DROPPED = Message(
    "US1141",
    "more than {most} results, or {mebibytes} MiB, have been returned by transactions outside of job.batches and job.steps: the oldest "
    "results are no longer kept. A newcomer runs the script's own loop from its start and needs all of them, so if a rank is lost from "
    "now on, the job ends. Use `for ... in job.steps()` for that loop, or let these transactions return nothing",
    cause="The script calls transactions in its own loop. Their results are kept so that another worker can run this loop again, up to a "
    "limit. This limit is now reached.",
    remedy="Iterate with job.steps() or job.batches(), or return nothing from these transactions.",
)
RESULT_GONE = Message(
    "US1142",
    "the result of the transaction at {place} is no longer kept, and this newcomer, which runs the script's own loop from its start, needs "
    "it. Use `for ... in job.steps()` for that loop, or let its transactions return nothing",
    cause="A rank was lost after US1141 had been reported: the results that its newcomer needs to run the script's loop were dropped.",
    remedy="Start again from a checkpoint, and iterate with job.steps() or job.batches().",
)

# -- registering ---------------------------------------------------------------------------------------------------------------

NAME_TAKEN = Message(
    "US1201",
    "job.register({name}=...): this name is taken",
    cause="job.register or job.state was called twice with the same name.",
    remedy="Choose another name for the second object, or remove one of the calls.",
)
REGISTERED_LATE = Message(
    "US1203",
    "job.register after the first transaction: register everything before training starts",
    cause="A transaction had already run when job.register or job.state was called, so the existing copies of the state do not contain "
    "this object.",
    remedy="Move the call before the first call of a @job.step or @job.section function.",
)
ITERATOR_LATE = Message(
    "US1204",
    "job.iterator after the first transaction: create all iterators before training starts; repeat=True starts over",
    cause="A transaction had already run when job.iterator was called, for example because each epoch creates its own iterator.",
    remedy="Create the iterator before the first transaction, and pass repeat=True if it is used for several epochs.",
)
LONG_LIMIT = Message(
    "US1205",
    "job.long({what!r}, limit={limit!r}): the limit is a positive number of seconds",
    cause="job.long was given a limit that is zero, negative or not finite.",
    remedy="Give a number of seconds, or leave the limit out to use --alone-limit.",
)
ON_ERROR = Message(
    "US1206",
    'job.section(on_error={given!r}): give "raise" or "report"',
    cause="job.section has two ways to handle an exception that the function raises.",
    remedy='Leave on_error out, or give on_error="report" to skip the section and continue training.',
)
NO_STATE_DICT = Message(
    "US1211",
    "job.register({name}=...): {type} has no state_dict and load_state_dict; register modules, optimizers, loaders, tensors, "
    "generators or objects with these two methods",
    cause="The registered object does not offer a way to read and restore its state.",
    remedy="Give its class the methods state_dict and load_state_dict, or keep its values in job.state(...).",
)
UNMOVABLE_STATE = Message(
    "US1212",
    "job.register({name}=...): its state_dict holds a value that cannot be moved to another worker ({reason}); keep numbers, strings, "
    "tensors, arrays and containers of them there",
    cause="state_dict() of the registered object returned a value that has no encoding, such as a function, a file or an instance of a "
    "user-defined class. State is sent between workers without pickle.",
    remedy="Return numbers, strings, tensors, arrays, and lists, tuples, sets and dicts of them from state_dict().",
)
UNMOVABLE_SETTINGS = Message(
    "US1213",
    "the settings of optimizer {optimizer} hold a value that cannot be moved to another worker ({reason})",
    cause="A parameter group of the optimizer, or an attribute that belongs to its settings, holds a value that has no encoding.",
    remedy="Keep numbers, strings, tensors and containers of them in the optimizer's parameter groups.",
)
UNMOVABLE_TENSOR = Message(
    "US1214",
    "{name} cannot be moved: {reason}; make it contiguous",
    cause="The tensor is a view with gaps, for example a strided slice of a larger tensor. Only dense memory can be copied as a whole.",
    remedy="Replace the tensor by tensor.contiguous() (or .clone()) before it is registered.",
)
SPARSE_TENSOR = Message(
    "US1216",
    "{name} is sparse ({layout}), and only dense tensors can be compared and moved: keep it dense (to_dense()). If nothing changes the "
    "tensor, and every worker's setup makes the same one, it may be a plain attribute of the module instead of a buffer",
    cause="A registered buffer, parameter or tensor has a sparse layout, so its memory is no single block of numbers.",
    remedy="Use tensor.to_dense(); or keep its indices and values in two buffers, and make the sparse tensor of them where it is used; or, "
    "if it is constant, set it as an attribute (self.name = tensor) instead of register_buffer.",
)
NO_SUCH_VALUE = Message(
    "US1215",
    "the namespace of job.state has no value {name!r}: it was neither passed to job.state nor set since. Known values: {known}",
    cause="An attribute of a namespace made by job.state was read, but it was neither given to job.state nor assigned before.",
    remedy="Give it a first value in the call of job.state, or correct the name.",
)
MODEL_NOT_REGISTERED = Message(
    "US1221",
    "optimizer {optimizer} steps parameters of a model that is not registered: add the model to job.register(...)",
    cause="The registered optimizer holds parameters that belong to no registered module or tensor, so another worker would not receive "
    "them.",
    remedy="Add the model to job.register, for example job.register(model=model, optimizer=optimizer).",
)
TENSORS_NOT_REGISTERED = Message(
    "US1226",
    "optimizer {optimizer} steps tensors that belong to no module and are not registered ({count}, the first of shape {shape}), such as "
    "flat parameters or copies of the parameters in another precision: register these tensors themselves, "
    "job.register({optimizer}_tensors=[...])",
    cause="The registered optimizer holds tensors that belong to no module, so registering a model does not cover them, and another worker "
    "would not receive them.",
    remedy="Register the list of tensors that was given to the optimizer: job.register(masters=masters, optimizer=optimizer).",
)
ZERO_REDUNDANCY = Message(
    "US1222",
    "optimizer {optimizer} is a ZeroRedundancyOptimizer: its state is on one rank only, and its step broadcasts parameters after the vote. "
    "Use torch.distributed.fsdp.fully_shard on a 2-D mesh (HSDP)",
    cause="ZeroRedundancyOptimizer keeps each part of the optimizer state on one rank, so a lost rank takes its part with it. It also "
    "issues collectives after the vote.",
    remedy="Shard the optimizer state with fully_shard on a 2-D mesh, which keeps a replica of each shard.",
)
SCHEDULE_NOT_REGISTERED = Message(
    "US1223",
    "optimizer {optimizer} has a learning rate schedule that is not registered: add it to job.register(...)",
    cause="A learning rate scheduler was made for the registered optimizer, but neither it nor an object that holds it was registered.",
    remedy="Add the scheduler to job.register.",
)
SPARSE_EMBEDDING = Message(
    "US1224",
    "{module} ({type}) has sparse=True: sparse gradients are not covered. Use sparse=False, and an optimizer for dense gradients",
    cause="The embedding produces sparse gradients, which can be neither compared nor copied to another worker.",
    remedy="Make the embedding with sparse=False, and use an optimizer for dense gradients, such as Adam in place of SparseAdam.",
)
SPARSE_GRADIENT = Message(
    "US1225",
    "{parameter} has a sparse gradient, which is not covered: make it dense, as with sparse=False",
    cause="The backward pass produced a gradient with a sparse layout, which can be neither compared nor copied to another worker.",
    remedy="Make the module with sparse=False, or convert the gradient with to_dense() before optimizer.step.",
)
