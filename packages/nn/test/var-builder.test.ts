import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { memoryStats, scope } from '@x/core';
import { saveSafetensors, writeNpz } from '@x/core/files';
import { GgufFile } from '@x/quantized';
import { deviceNames, expectClose, openDevice, tensor, values } from '@x/testing/nn/helpers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ALL_TYPES, EXPECTED } from '../../quantized/test/fixture';
import { Init, VarBuilder, VarMap } from '../src';

/** A PyTorch file of core's tests. */
const checkpoint = (name: string) => fileURLToPath(new URL(`../../core/test/fixtures/pth/${name}`, import.meta.url));

describe.each(deviceNames)('VarBuilder on %s', (name) => {
  const device = openDevice(name);
  const directory = mkdtempSync(join(tmpdir(), 'nn-test-'));
  const file = (part: string) => join(directory, part);
  const weights = { 'a.0.weight': [2, 3], 'a.0.bias': [2], 'a.1.weight': [4] } as const;
  const data = (key: keyof typeof weights) =>
    values(
      weights[key].reduce((x, y) => x * y, 1),
      key.length,
    );

  beforeAll(async () => {
    await scope(async () => {
      const make = (key: keyof typeof weights) => tensor(data(key), weights[key], device);
      await saveSafetensors(file('one.safetensors'), {
        'a.0.weight': make('a.0.weight'),
        'a.0.bias': make('a.0.bias').toDtype('bf16'),
      });
      await saveSafetensors(file('two.safetensors'), { 'a.1.weight': make('a.1.weight') });
    });
    const weight_map = {
      'a.0.weight': 'one.safetensors',
      'a.0.bias': 'one.safetensors',
      'a.1.weight': 'two.safetensors',
    };
    writeFileSync(file('model.safetensors.index.json'), JSON.stringify({ weight_map }));
  });
  afterAll(() => rmSync(directory, { recursive: true }));

  it('reads one file, several, and an index', async () => {
    const before = memoryStats();
    await scope(async () => {
      const index = file('model.safetensors.index.json');
      const sources = [[file('one.safetensors'), file('two.safetensors')], index, [index]];
      for (const source of sources) {
        using root = VarBuilder.fromSafetensors(source, { device });
        const layer = root.pp('a').pp(0);
        expect([layer.prefix, layer.containsTensor('weight'), layer.containsTensor('gain')]).toEqual([
          'a.0',
          true,
          false,
        ]);
        expect(root.names().sort()).toEqual(Object.keys(weights).sort());
        expect(layer.names().sort()).toEqual(['a.0.bias', 'a.0.weight']);
        expect([layer.byteLength('weight'), layer.byteLength('bias')]).toEqual([24, 4]);
        expectClose(await layer.get([2, 3], 'weight'), [2, 3], data('a.0.weight'), 0);
        const bias = await layer.get([2], 'bias');
        expect(bias.dtype).toBe('bf16');
        expectClose(layer.getSync([2], 'bias', { dtype: 'f32' }), [2], data('a.0.bias'), 1e-2);
        expectClose(root.getSync([4], 'a.1.weight'), [4], data('a.1.weight'), 0);
      }
      using halved = VarBuilder.fromSafetensors(file('one.safetensors'), { device, dtype: 'f16' });
      expect((await halved.get([2, 3], 'a.0.weight')).dtype).toBe('f16');
      expect((await halved.get([2, 3], 'a.0.weight', { dtype: 'f32' })).dtype).toBe('f32');
    });
    expect(memoryStats()).toEqual(before);
  });

  it('gives tensors in memory, which stay the giver’s', async () => {
    const given = tensor(values(6), [2, 3], device);
    const builder = VarBuilder.fromTensors({ 'x.weight': given }, { device }).pp('x');
    const view = await builder.get([2, 3], 'weight');
    const converted = builder.getSync([2, 3], 'weight', { dtype: 'f64' });
    expect([view.dtype, converted.dtype, builder.byteLength('weight')]).toEqual(['f32', 'f64', 24]);
    view.dispose();
    converted.dispose();
    builder.dispose();
    expectClose(given, [2, 3], values(6), 0);
    given.dispose();
    expect(() => VarBuilder.fromTensors(new Map(), { device }).getSync([1], 'w')).toThrow(/no tensor "w" among 0/);
  });

  it('says which name or shape is wrong', async () => {
    using root = VarBuilder.fromSafetensors(file('model.safetensors.index.json'), { device });
    await expect(root.pp('a.0').get([2], 'gain')).rejects.toMatchObject({
      code: 'FILE_NO_SUCH_TENSOR',
      message: expect.stringMatching(/"a\.0\.gain" among 3\. Names like it: a\.0\./),
    });
    expect(() => root.getSync([2], 'b.weight')).toThrow(/"b\.weight".*a\.0\.weight/);
    expect(() => root.byteLength('b')).toThrow(expect.objectContaining({ code: 'FILE_NO_SUCH_TENSOR' }));
    await expect(root.get([3, 2], 'a.0.weight')).rejects.toMatchObject({
      code: 'SHAPE_MISMATCH',
      message: expect.stringMatching(/\[2, 3\].*\[3, 2\]/),
    });
    root.dispose();
    await expect(root.get([4], 'a.1.weight')).rejects.toMatchObject({ code: 'DISPOSED' });
  });

  it('reads bytes, npz, pth and GGUF files', async () => {
    const before = memoryStats();
    await scope(async () => {
      const npz = file('weights.npz');
      await writeNpz(npz, { 'a.0.weight': tensor(data('a.0.weight'), [2, 3], device) });
      const bytes = readFileSync(file('two.safetensors'));
      using fromBytes = VarBuilder.fromBufferedSafetensors(bytes, { device });
      expectClose(await fromBytes.get([4], 'a.1.weight'), [4], data('a.1.weight'), 0);
      for (const source of [npz, readFileSync(npz)]) {
        using vb = VarBuilder.fromNpz(source, { device, dtype: 'f64' });
        const weight = await vb.pp('a.0').get([2, 3], 'weight');
        expect([weight.dtype, vb.names(), vb.byteLength('a.0.weight')]).toEqual(['f64', ['a.0.weight'], 24]);
        expectClose(weight, [2, 3], data('a.0.weight'), 0);
      }
      using zip = VarBuilder.fromPth(checkpoint('state_dict.pt'), { device });
      using nested = VarBuilder.fromPth(checkpoint('nested.pt'), { device, key: 'model' });
      for (const vb of [zip, nested]) {
        const [first] = vb.names();
        const found = vb.getUncheckedSync(first);
        expect([found.device.equals(device), found.elemCount > 0]).toEqual([true, true]);
        expect((await vb.getUnchecked(first)).toVecSync()).toEqual(found.toVecSync());
      }
      expect(() => VarBuilder.fromPth(checkpoint('evil.pt'), { device })).toThrow(
        expect.objectContaining({ code: 'PICKLE_REFUSED' }),
      );
      using gguf = GgufFile.open(ALL_TYPES);
      using vb = VarBuilder.fromGguf(gguf, { device });
      for (const [stored, { shape, values: expected }] of EXPECTED) {
        const found = await vb.get(shape, stored);
        const { type } = gguf.tensor(stored);
        expect(found.dtype).toBe(type === 'f16' || type === 'bf16' ? type : 'f32');
        expectClose(found, shape, expected, 1e-6);
      }
      expect(vb.toDtype('f16').getSync(EXPECTED[0][1].shape, EXPECTED[0][0]).dtype).toBe('f16');
    });
    expect(memoryStats()).toEqual(before);
  });

  it('saves a map and loads it again, all or nothing', async () => {
    const before = memoryStats();
    await scope(async () => {
      const make = (start: number) => {
        const map = new VarMap();
        const vb = VarBuilder.fromVarMap(map, { device });
        vb.getWithHintsSync([2, 2], 'w', Init.const(start));
        vb.pp('b').getWithHintsSync([3], 'c', Init.const(start + 1), { dtype: 'f64' });
        return map;
      };
      using one = make(5);
      using other = make(7);
      await one.save(file('map.safetensors'));
      await other.load(file('map.safetensors'));
      const contents = (map: VarMap) => [...map.data].map(([path, x]) => [path, x.dtype, x.toVecSync()]);
      expect(contents(other)).toEqual(contents(one));
      other.setOne('w', tensor([1, 2, 3, 4], [2, 2], device));
      other.loadSync(file('map.safetensors'));
      expect(contents(other)).toEqual(contents(one));
      VarBuilder.fromVarMap(one, { device }).getWithHintsSync([1], 'more', Init.const(0));
      one.setOne('w', tensor([1, 2, 3, 4], [2, 2], device));
      await expect(one.load(file('map.safetensors'))).rejects.toMatchObject({ code: 'FILE_NO_SUCH_TENSOR' });
      expect(one.data.get('w')!.toVecSync()).toEqual([
        [1, 2],
        [3, 4],
      ]);
      const gone = new VarMap();
      gone.dispose();
      await expect(gone.save(file('gone.safetensors'))).rejects.toMatchObject({ code: 'DISPOSED' });
      expect(existsSync(file('gone.safetensors'))).toBe(false);
      expect(() => gone.get([1], 'w', Init.const(0), 'f32', device)).toThrow(/VarMap.get: the map was disposed/);
      using wider = new VarMap();
      VarBuilder.fromVarMap(wider, { device }).getWithHintsSync([2, 3], 'w', Init.const(0));
      await expect(wider.load(file('map.safetensors'))).rejects.toMatchObject({ code: 'SHAPE_MISMATCH' });
    });
    expect(memoryStats()).toEqual(before);
  });

  it('refuses bad files', () => {
    const open = (source: string | string[]) => () => VarBuilder.fromSafetensors(source, { device });
    expect(open(file('none.safetensors'))).toThrow(expect.objectContaining({ code: 'FILE_NOT_FOUND' }));
    expect(open([file('one.safetensors'), file('one.safetensors')])).toThrow(/"a\.0\.\w+" is in .* too/);
    expect(open(file('none.index.json'))).toThrow(expect.objectContaining({ code: 'FILE_NOT_FOUND' }));
    const index = file('bad.index.json');
    for (const text of [
      '{',
      'null',
      '{"weight_map": []}',
      '{"weight_map": {"w": "../x.safetensors"}}',
      '{"weight_map": {"w": 1}}',
    ]) {
      writeFileSync(index, text);
      expect(open(index)).toThrow(expect.objectContaining({ code: 'FILE_INVALID' }));
    }
  });
});
