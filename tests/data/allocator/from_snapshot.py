"""A recording of PyTorch's allocator as a fixture: from_snapshot.py SNAPSHOT.pickle > NAME.txt

SNAPSHOT.pickle is torch.cuda.memory._snapshot() of a process whose history was recorded from the start. One event a line:
    +BYTES ADDRESS [STREAM]   a request and the block that served it; the n-th request is number n, from 0
    -N                        request N was freed
    !BYTES [STREAM]           a request that failed (rounded already; not counted in N)
    alloc|free|map|unmap BYTES   what the request on the next line asked of the device (segment_alloc, segment_free, …)
Addresses are in units of 512 bytes, as if every segment lay behind those before it: among free blocks of one size the allocator goes by the
age of their segments. Streams are numbered in the order of their handles.
"""
import pickle, sys

trace = next(t for t in pickle.load(open(sys.argv[1], "rb"))["device_traces"] if t)
streams = sorted({e["stream"] for e in trace if e["action"] == "alloc"})
mapped = min((e["addr"] for e in trace if e["action"] == "segment_map"), default=None)   # expandable segments do not move
segments, end = {}, 0                                                                    # address: where we put it

def place(address):
    if mapped is not None: return address - mapped
    start = max(s for s in segments if s <= address)
    return segments[start] + address - start

live, requests = {}, 0
for e in trace:
    if e["action"] == "alloc":
        stream = streams.index(e["stream"])
        print(f"+{e['size']} {place(e['addr']) // 512}" + (f" {stream}" if stream else ""))
        live[e["addr"]] = requests; requests += 1
    elif e["action"] == "free_completed": print(f"-{live.pop(e['addr'])}")
    elif e["action"] == "oom": print(f"!{e['size']}" + (" 1" if e["stream"] != streams[0] else ""))
    elif e["action"].startswith("segment_"):
        print(e["action"].removeprefix("segment_"), e["size"])
        if e["action"] == "segment_alloc": segments[e["addr"]] = end; end += e["size"]
        if e["action"] == "segment_free": del segments[e["addr"]]
