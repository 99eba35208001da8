"""A recording of PyTorch's allocator as a fixture: from_snapshot.py SNAPSHOT.pickle > NAME.txt

SNAPSHOT.pickle is torch.cuda.memory._snapshot() of a process whose history was recorded from the start. One event a line:
    +BYTES ADDRESS [STREAM]   a request and the block that served it; the n-th request is number n, from 0
    -N                        request N was freed
    alloc|free|map|unmap BYTES   what the request on the next line asked of the device (segment_alloc, segment_free, …)
Addresses count from the first segment, in units of 512 bytes. Streams are numbered in the order of their handles.
"""
import pickle, sys

trace = next(t for t in pickle.load(open(sys.argv[1], "rb"))["device_traces"] if t)
streams = sorted({e["stream"] for e in trace if e["action"] == "alloc"})
base = min(e["addr"] for e in trace if e["action"] in ("segment_alloc", "segment_map"))
live, requests = {}, 0
for e in trace:
    if e["action"] == "alloc":
        stream = streams.index(e["stream"])
        print(f"+{e['size']} {(e['addr'] - base) // 512}" + (f" {stream}" if stream else ""))
        live[e["addr"]] = requests; requests += 1
    elif e["action"] == "free_completed": print(f"-{live.pop(e['addr'])}")
    elif e["action"].startswith("segment_"): print(e["action"].removeprefix("segment_"), e["size"])
