import { describe, expect, test } from 'vitest';
import { explainOutOfMemory, isOutOfMemory, readOutOfMemory } from '../src/files/oom';

const GIB = 2 ** 30;
const MIB = 2 ** 20;

describe('an out-of-memory message, in every wording PyTorch had', () => {
  test('2.2 and later', () => {
    const read = readOutOfMemory(
      'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB of which 12.73 GiB is free. Including non-PyTorch memory, this process has 18.73 GiB memory in use. Of the allocated memory 9.08 GiB is allocated by PyTorch, and 9.35 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.',
    );
    expect(read).toEqual({
      device: 'GPU 0',
      tried: 22.78 * GIB,
      capacity: 31.47 * GIB,
      free: 12.73 * GIB,
      process: 18.73 * GIB,
      others: [],
      allocated: 9.08 * GIB,
      unallocated: 9.35 * GIB,
      allowed: null,
      pools: null,
      where: null,
      expandable: false,
    });
    // 9.35 + 12.73 = 22.08 < 22.78: not even together.
    expect(explainOutOfMemory(read!).reasons).toEqual([expect.stringMatching(/^A real shortage: 10\.05 GiB were missing/)]);
  });

  test('with other processes, private pools and a limit', () => {
    const read = readOutOfMemory(
      'CUDA out of memory. Tried to allocate 512.00 MiB. GPU 3 has a total capacity of 79.15 GiB of which 150.00 MiB is free. 60.00 GiB allowed; Process 4242 has 20.00 GiB memory in use. Process 17 has 1.50 GiB memory in use. Including non-PyTorch memory, this process has 57.50 GiB memory in use. Of the allocated memory 55.00 GiB is allocated by PyTorch, with 2.00 GiB allocated in private pools (e.g., CUDA Graphs), and 600.00 MiB is reserved by PyTorch but unallocated.',
    );
    expect(read).toMatchObject({
      device: 'GPU 3',
      allowed: 60 * GIB,
      pools: 2 * GIB,
      unallocated: 600 * MIB,
      process: 57.5 * GIB,
      others: [
        { name: 'process 4242', bytes: 20 * GIB },
        { name: 'process 17', bytes: 1.5 * GIB },
      ],
    });
    const { shares, reasons } = explainOutOfMemory(read!);
    expect(shares.map(({ name }) => name)).toEqual([
      'Allocated by PyTorch',
      'Reserved, not allocated',
      'This process, outside PyTorch',
      'Other: process 4242',
      'Other: process 17',
      'Free',
    ]);
    expect(reasons[0]).toContain('A limit of 60.00 GiB');
    expect(reasons[1]).toContain('Fragmentation');
    expect(reasons[2]).toMatch(/21\.50 GiB of this GPU: without that/);
  });

  test('in a container, where this process is one of the list', () => {
    const read = readOutOfMemory(
      'Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.30 GiB is free. Process 10 has 77.80 GiB memory in use. Of the allocated memory 70.01 GiB is allocated by PyTorch, and 6.30 GiB is reserved by PyTorch but unallocated.',
    );
    expect(read).toMatchObject({ process: 77.8 * GIB, others: [] });
    const { shares, reasons } = explainOutOfMemory(read!);
    expect(shares.reduce((sum, { bytes }) => sum + bytes, 0) / GIB).toBeCloseTo(79.15, 5);
    expect(reasons[0]).toMatch(/^Fragmentation: PyTorch held 6\.30 GiB that no tensor used \(8 % of what it holds\)/);
  });

  test('2.0 and 1.x', () => {
    expect(
      readOutOfMemory(
        'RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB total capacity; 6.60 GiB already allocated; 18.06 MiB free; 6.72 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb',
      ),
    ).toMatchObject({
      tried: 20 * MIB,
      capacity: 7.79 * GIB,
      allocated: 6.6 * GIB,
      free: 18.06 * MIB,
      unallocated: expect.closeTo(0.12 * GIB, -6),
    });
    expect(
      readOutOfMemory(
        'Tried to allocate 16.00 GiB (GPU 1; 11.93 GiB total capacity; 4.00 GiB already allocated; 7.33 GiB free; 179.00 KiB cached)',
      ),
    ).toMatchObject({
      device: 'GPU 1',
      allocated: 4 * GIB,
      unallocated: 179 * 1024,
      free: 7.33 * GIB,
    });
    expect(
      explainOutOfMemory(
        readOutOfMemory(
          'Tried to allocate 16.00 GiB (GPU 1; 11.93 GiB total capacity; 4.00 GiB already allocated; 7.33 GiB free; 179.00 KiB cached)',
        )!,
      ).reasons[0],
    ).toContain('more than the whole GPU');
  });

  test('with the spelling of 2.1, over several lines, in a log with a traceback: the last one', () => {
    const read = readOutOfMemory(`
[rank0]:   File "/x/torch/optim/adamw.py", line 100, in _multi_tensor_adamw
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 7 has a total capacty of 1.00 GiB of which 0 bytes is free.
Traceback (most recent call last):
  File "/x/train.py", line 10, in <module>
    loss.backward()
  File "/x/torch/autograd/__init__.py", line 267, in _engine_run_backward
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate
   3.14 GiB. GPU 2 has a total capacty of 31.75 GiB of which 1.95 GiB is free. Including
   non-PyTorch memory, this process has 29.79 GiB memory in use. Of the allocated memory 28.28 GiB is allocated by PyTorch, and 512.00 KiB is reserved by PyTorch but unallocated.`);
    expect(read).toMatchObject({
      device: 'GPU 2',
      tried: 3.14 * GIB,
      capacity: 31.75 * GIB,
      allocated: 28.28 * GIB,
      where: 'backward',
      unallocated: 512 * 1024,
    });
    expect(explainOutOfMemory(read!).reasons[0]).toContain('A real shortage: 1.19 GiB');
  });

  test('free, and yet refused', () => {
    const read = readOutOfMemory(
      'Tried to allocate 2.00 GiB. GPU 0 has a total capacty of 4.00 GiB of which 2.80 GiB is free. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.',
    );
    expect(read).toMatchObject({ allocated: 0, unallocated: 0 });
    expect(explainOutOfMemory(read!).reasons[0]).toContain('were free when the message was written');
  });

  test('without numbers, and what is none', () => {
    expect(isOutOfMemory('RuntimeError: CUDA error: out of memory')).toBe(true);
    expect(readOutOfMemory('RuntimeError: CUDA error: out of memory')).toBeUndefined();
    expect(isOutOfMemory('base_model: x')).toBe(false);
    expect(readOutOfMemory('Tried to allocate much')).toBeUndefined();
  });

  test('hostile text takes no time', () => {
    for (const text of [
      'Tried to allocate '.repeat(50_000),
      `Tried to allocate 1 GiB ${'Process 1 has '.repeat(50_000)}`,
      `Tried to allocate 1 GiB. (GPU 0; ${'already allocated; '.repeat(20_000)}`,
      ' '.repeat(900_000),
      `Tried to allocate ${'9'.repeat(100_000)} GiB`,
    ]) {
      const begin = performance.now();
      const read = readOutOfMemory(text);
      if (read) explainOutOfMemory(read);
      expect(performance.now() - begin).toBeLessThan(1000);
    }
  });
});
