import { Tensor } from '@x/core';
import { describe, expect, it } from 'vitest';
import { apiDocument, isThere, readTorchNames, tensorMember, torchRows } from './api';
import { candleTensorMethods, torchNamesText } from './candle';

describe('the API tables', () => {
  const names = readTorchNames(torchNamesText());

  it('know members, exports and expressions, and nothing else', () => {
    const t = Tensor.zeros([1]);
    expect([tensorMember(t, 'add'), tensorMember(t, 'zeros'), tensorMember(t, 'bind')]).toEqual([
      'add',
      'Tensor.zeros',
      undefined,
    ]);
    for (const there of [
      'core:Var',
      'nn:Linear',
      'nn:loss.mse',
      'files:PthFile',
      'device:parse',
      'device:setSeed',
      'x.add(y)',
    ])
      expect(isThere(there, t), there).toBe(true);
    for (const absent of [
      'core:Vax',
      'nn:loss.no',
      'core:PthFile',
      'device:teleport',
      'sinus',
      'x.sinus()',
      'x.matmul(y)',
      'x +',
    ])
      expect(isThere(absent, t), absent).toBe(false);
    t.dispose();
  });

  it('of PyTorch name each once, with a reason where nothing stands for it', () => {
    expect(new Set(names.map(({ name }) => name)).size).toBe(names.length);
    expect(names.length).toBeGreaterThan(300);
    for (const { name, ours, note } of names) expect(ours === '-' ? note : ours, name).not.toBe('');
    const missing = torchRows(names).filter(({ status }, i) => status !== 'ok' && names[i]!.ours !== '-');
    expect(missing).toEqual([]);
  });

  it('make a document of both', () => {
    const methods = candleTensorMethods();
    const text = apiDocument(methods, names);
    expect(text).toContain(`${methods.length} of 210 public methods of candle’s Tensor are here`);
    expect(text).toContain('| `conv1d_with_algo` | `conv1dWithAlgo` |');
    expect(text).toContain('| `new` | `Tensor.from` (another name) |');
    expect(text).toContain('| `torch.asin` | – | not among candle');
    expect(apiDocument([{ file: 'tensor', name: 'no_such', ours: 'noSuch' }], [])).toContain('| `no_such` | missing |');
  });
});
