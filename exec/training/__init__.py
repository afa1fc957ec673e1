"""What works on ranks that train: the backend of torch.distributed.

In: a store that all ranks reach, tensors, and a profile if there is one. Out: a process group whose
collectives run by schedules made for the network, or by gloo where that is faster. Read `meeting` (how ranks
find each other), `planned` (collectives on arrays), `contest` (who is faster), then what needs torch:
`tensors`, `works` and `process_group`.
"""
