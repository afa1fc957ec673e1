"""A task of ranks that only gossip: the parameters that each has after each iteration."""

from exec.sockets import Group


def means(comm: Group, iterations: int, reporter: object) -> list[list[float]] | None:
    """Begin with the rank's number; return every rank's value after each iteration, on rank 0."""
    import torch
    import torch.distributed as dist

    from exec.published import synchronizer
    from exec.training.workloads.join import join_process_group

    join_process_group(comm, "gloo", 300.0)
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(float(comm.Get_rank()))
    way = synchronizer("gossip")(model)
    found = []
    for _ in range(iterations):
        way.before_forward()
        way.after_backward()
        found.append(comm.allgather(float(model.weight)))
    dist.destroy_process_group()
    return found
