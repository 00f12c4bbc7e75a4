"""Lightning (`lightning.pytorch`, `pytorch_lightning`): a `Trainer.fit` with DDP becomes a job without a line in the script.

When the trainer is about to make its process group, the job makes it instead, and these modules wrap some methods of Lightning:

    takeover      finds the trainer that makes a process group, and refuses what is not supported
    points        all names of Lightning that are used, and their check
    fit           steps, sections, and the way of a newcomer through `Trainer.fit`
    data          the batches: their position, and how a newcomer gets there
    progress      counters, flags and callbacks, which are the same on all ranks
    metrics       logged values, which differ from rank to rank
    files         checkpoints and logs of an attempt that is redone

An iteration is a step (`_TrainingEpochLoop.advance`, up to the hook `on_train_batch_end`) and a section: that hook, the logging, the
validation, and after the last batch of an epoch its end and the begin of the next one. So nothing that can fail, communicate or write is
between two transactions, and the position of the job in an iteration is enough for a newcomer to know its place in the trainer's loops.

Read in Lightning 2.6.6.
"""
