"""Logs as NCCL writes them with NCCL_DEBUG=INFO, of any hosts, with what is wrong with some of them."""

from dataclasses import dataclass, replace

VERSION = "2.21.5+cuda12.4"


@dataclass(frozen=True)
class LoggedHost:
    """The log lines of one host's processes; ``gdr`` is the reason why GPU Direct RDMA is off, or None."""

    name: str
    nics: tuple[str, ...] = ("mlx5_0:1/IB", "mlx5_1:1/IB")
    network: str = "IB"
    net: str = "NET/IB"
    gdr: str | None = None
    inside: str = "P2P/CUMEM"
    nvls: bool = True
    channels: int = 2
    version: str = VERSION
    plugin: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    first: bool = True
    more: tuple[str, ...] = ()


def hosts(*names, **changed):
    """Hosts that are alike, but for the changes of those that are named."""
    return [replace(LoggedHost(name), **changed.get(name, {})) for name in names]


def nccl_debug_log(members, each=4):
    """The log of one communicator over all hosts, ``each`` ranks a host, mixed as processes write it."""
    ranks = [(at * each + local, local, host) for at, host in enumerate(members) for local in range(each)]
    per_rank = [list(_lines(rank, local, host, members, each)) for rank, local, host in ranks]
    longest = max(map(len, per_rank))
    # Processes write in turn.
    return "".join(lines[at] + "\n" for at in range(longest) for lines in per_rank if at < len(lines))


def _lines(rank, local, host, members, each):
    size = len(members) * each
    bus = f"{0x1B + 0x10 * local:x}000"
    start = f"{host.name}:{1000 + rank}:{2000 + rank} [{local}] "

    def info(text):
        return f"{start}NCCL INFO {text}"

    yield info("Bootstrap : Using eth0:10.0.0.1<0>")
    if rank == 0 or host.version != VERSION:
        yield info(f"NCCL version {host.version}")
    for name, value in host.environment:
        yield info(f"{name} set by environment to {value}.")
    yield info(
        f"NET/Plugin: {host.plugin or 'Could not find: libnccl-net.so. Using internal network plugin.'}"
    )
    if host.nics:
        shown = " ".join(f"[{at}]{nic}" for at, nic in enumerate(host.nics))
        yield info(f"NET/IB : Using {shown} [RO]; OOB eth0:10.0.0.1<0>")
    else:
        yield info("NET/IB : No device found.")
        yield info("NET/Socket : Using [0]eth0:10.0.0.1<0> [1]veth9:fe80::e8d4:ff%veth9<0>")
    yield info(f"Using network {host.network}")
    comm = f"comm 0x5a{rank:04x} rank {rank} nranks {size} cudaDev {local} nvmlDev {local} busId {bus}"
    if host.first:
        yield info(f"ncclCommInitRank {comm} commId 0xab12 - Init START")
    for nic in host.nics:
        state = "Enabled" if host.gdr is None else "Disabled"
        reason = f" ({host.gdr})" if host.gdr else ""
        yield info(f"NET/IB : GPU Direct RDMA {state} for HCA 0 '{nic.partition(':')[0]}'{reason}")
    yield info(f"NVLS multicast support is {'' if host.nvls else 'not '}available on dev {local}")
    yield info(
        f"Pattern 4, crossNic 0, nChannels {host.channels}, bw 40.000000/40.000000, "
        "type NVL/PIX, sameChannels 1"
    )
    channels = min(one.channels for one in members)
    if rank == 0:
        for channel in range(channels):
            yield info(f"Channel {channel:02}/{channels:02} :   {'  '.join(map(str, range(size)))}")
    parent = rank - 1
    child = rank + 1 if rank + 1 < size else -1
    yield info(
        "Trees " + " ".join(f"[{channel}] {child}/-1/-1->{rank}->{parent}" for channel in range(channels))
    )
    for channel in range(channels):
        to, source = (rank + 1) % size, (rank - 1) % size
        if to // each == rank // each:
            yield info(
                f"Channel {channel:02}/0 : {rank}[{local}] -> {to}[{(local + 1) % each}] via {host.inside}"
            )
        else:
            rdma = "/GDRDMA" if host.gdr is None and host.net != "NET/Socket" else ""
            yield info(
                f"Channel {channel:02}/0 : {rank}[{local}] -> {to}[0] [send] via {host.net}/{channel}{rdma}"
            )
        if source // each != rank // each:
            rdma = "/GDRDMA" if host.gdr is None and host.net != "NET/Socket" else ""
            yield info(
                f"Channel {channel:02}/0 : {source}[{each - 1}] -> {rank}[{local}] [receive] "
                f"via {host.net}/{channel}{rdma}"
            )
    yield info("Connected all rings")
    yield from (line.replace("HEAD ", start) for line in host.more)
    yield info(
        f"{channels} coll channels, 0 collnet channels, {channels} nvls channels, 4 p2p channels, 2 p2p"
    )
    yield info(f"ncclCommInitRank {comm} commId 0xab12 - Init COMPLETE")
    if rank == 0:
        for size_bytes in (1024, 65536):
            yield info(f"AllReduce: {size_bytes} Bytes -> Algo TREE proto LL channel{{Lo..Hi}}={{0..1}}")
        yield info("AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}")
