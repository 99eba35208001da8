"""Random requests and frees on two streams, for a recording: exercise.py SEED STEPS SNAPSHOT.pickle

To be run over a device of little memory, with PYTORCH_ALLOC_CONF as wanted; requests that fail are part of the recording.
"""
import pickle, random, sys, torch

seed, steps, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
r, MiB = random.Random(seed), 1 << 20
torch.cuda.init(); torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None)
streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
usual = [r.choice([1, 100, 512, 4096, 65536, 300000, MiB, MiB + 1, 2 * MiB, 3 * MiB + 7, 5 * MiB, 9 * MiB, 10 * MiB, 11 * MiB + 3, 19 * MiB,
                   21 * MiB, 30 * MiB, 64 * MiB + 512]) for _ in range(12)]
live = []
for _ in range(steps):
    if live and r.random() < 0.48: live.pop(r.randrange(len(live)))
    elif live and r.random() < 0.01: live.clear()
    else:
        size = r.choice(usual) if r.random() < 0.8 else int(2 ** r.uniform(0, 26))
        with torch.cuda.stream(streams[r.random() < 0.15]):
            try: live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                for _ in range(len(live) // 3): live.pop(r.randrange(len(live)))
print("allocated", torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(), "reserved", torch.cuda.memory_reserved(),
      torch.cuda.max_memory_reserved(), "retries", torch.cuda.memory_stats()["num_alloc_retries"])
with open(out, "wb") as f: pickle.dump(torch.cuda.memory._snapshot(), f)
