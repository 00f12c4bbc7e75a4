"""Two experts on two ranks exchange tokens with all_to_all_single, times two replicas; the router is on all ranks."""

# ranks: 4
# group: parallel
# expect: bitwise

from _common import dist, mlp, nn, square_mesh, start_trace, torch

import understudy

job = understudy.join()
mesh = square_mesh("data", "expert")
experts = mesh.get_group("expert")
mine = mesh.get_local_rank("expert")


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tokens, sent, received):
        ctx.sizes = sent, received
        result = tokens.new_empty(sum(received), tokens.shape[1])
        dist.all_to_all_single(result, tokens.contiguous(), received, sent, group=experts)
        return result

    @staticmethod
    def backward(ctx, gradient):
        sent, received = ctx.sizes
        result = gradient.new_empty(sum(sent), gradient.shape[1])
        dist.all_to_all_single(result, gradient.contiguous(), sent, received, group=experts)
        return result, None, None


torch.manual_seed(0)
router = nn.Linear(12, 2)
torch.manual_seed(10 + mine)
expert = mlp(12, 24, 12, nn.GELU)
optimizer = torch.optim.AdamW([*router.parameters(), *expert.parameters()], lr=5e-3)
job.register(router=router, expert=expert, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    tokens = torch.randn(10, 12)
    gates = (router(tokens) + 0.1 * torch.randn(10, 2)).softmax(1)
    weight, chosen = gates.max(1)
    order = chosen.argsort(stable=True)
    sent = torch.bincount(chosen, minlength=2)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=experts)
    there = Exchange.apply(tokens[order], sent.tolist(), received.tolist())
    back = Exchange.apply(expert(there), received.tolist(), sent.tolist())
    result = torch.zeros_like(tokens).index_copy(0, order, back) * weight[:, None]
    loss = nn.functional.mse_loss(result, tokens.roll(1, 1))
    optimizer.zero_grad()
    loss.backward()
    for parameter in router.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(job.world_size)
    for parameter in expert.parameters():
        if parameter.grad is None:  # no token came here
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad, group=mesh.get_group("data"))
        parameter.grad.div_(2)
    optimizer.step()
    return loss.item(), sent.tolist()


for step in job.steps(12):
    loss, sent = train_step(step)
    trace.line(f"step {step}", loss=loss, sent=sent)

trace.final(router=router, expert=expert, optimizer=optimizer)
