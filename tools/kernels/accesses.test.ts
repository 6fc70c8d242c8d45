import { describe, expect, it } from 'vitest';
import { type Accesses, narrowAccesses, operandsOf, parseDisassembly } from './accesses';
import { type Entry, resourceFailures, SGPR_SPILLS, table } from './resources';

const DISASSEMBLY = `
affine.hsaco:	file format elf64-amdgpu

Disassembly of section .text:

0000000000003800 <affine_u8>:
	s_load_b128 s[0:3], s[4:5], 0x0                            // 000000003800: F4080002
	global_load_d16_u8 v1, v[6:7], off                         // 000000003810: DC
	global_load_b128 v[6:9], v[6:7], off
	scratch_load_b32 v1, off, s0
	global_store_b128 v[14:15], v[6:9], off

0000000000004800 <ucopy_f16>:
	global_load_dwordx4 v[6:9], v[6:7], off
	global_load_short_d16_hi v1, v[6:7], off
	global_load_ushort v1, v[6:7], off
	flat_store_dwordx2 v[6:7], v[8:9]
	buffer_store_byte v1, v2, s[0:3], 0 offen
	global_store_d16_hi_b16 v[6:7], v1, off
`;

function accesses(loads: [number, number][], stores: [number, number][]): Accesses {
  return { loads: new Map(loads), stores: new Map(stores) };
}

describe('parseDisassembly', () => {
  it('counts global accesses by width in both spellings, and leaves scalar and scratch ones out', () => {
    const functions = parseDisassembly(DISASSEMBLY);
    expect([...functions.keys()]).toEqual(['affine_u8', 'ucopy_f16']);
    expect(functions.get('affine_u8')).toEqual(
      accesses(
        [
          [1, 1],
          [16, 1],
        ],
        [[16, 1]],
      ),
    );
    expect(functions.get('ucopy_f16')).toEqual(
      accesses(
        [
          [16, 1],
          [2, 2],
        ],
        [
          [8, 1],
          [1, 1],
          [2, 1],
        ],
      ),
    );
  });

  it('refuses an access whose width it does not know', () => {
    expect(() => parseDisassembly('0 <k>:\n\tglobal_load_b256 v[0:7], v[8:9], off\n')).toThrow(/global_load_b256/);
  });
});

describe('operandsOf', () => {
  it.each([
    ['affine_f8e4m3', { inputs: ['f8e4m3'], output: 'f8e4m3' }],
    ['bmaximum_bf16', { inputs: ['bf16', 'bf16'], output: 'bf16' }],
    ['bpow_f64', { inputs: ['f64', 'f64'], output: 'f64' }],
    ['le_i64', { inputs: ['i64', 'i64'], output: 'u8' }],
    ['cast_u8_f64', { inputs: ['u8'], output: 'f64' }],
    ['where_i16_f32', { inputs: ['i16', 'f32', 'f32'], output: 'f32' }],
    ['ugelu_erf_f16', { inputs: ['f16'], output: 'f16' }],
    ['const_set_f64', { inputs: [], output: 'f64' }],
    ['copy2d_u8', { inputs: ['u8'], output: 'u8' }],
    ['ucopy_u32', { inputs: ['u32'], output: 'u32' }],
    ['gemm_f32', undefined],
  ])('%s', (kernel, operands) => expect(operandsOf(kernel)).toEqual(operands));
});

describe('narrowAccesses', () => {
  it('wants 16 bytes of the widest operand and the share of the others', () => {
    expect(narrowAccesses('cast_u8_f32', accesses([[4, 1]], [[16, 1]]))).toEqual([]);
    expect(narrowAccesses('le_i64', accesses([[16, 2]], [[2, 1]]))).toEqual([]);
    expect(narrowAccesses('fill_i16', accesses([], [[16, 1]]))).toEqual([]);
    expect(narrowAccesses('fill_i16', accesses([[16, 1]], [[8, 1]]))).toHaveLength(1);
    expect(
      narrowAccesses(
        'where_u8_f32',
        accesses(
          [
            [4, 1],
            [16, 2],
          ],
          [[16, 1]],
        ),
      ),
    ).toEqual([]);
  });

  it('names what is narrower or missing', () => {
    expect(
      narrowAccesses(
        'uexp_f16',
        accesses(
          [
            [8, 1],
            [2, 2],
          ],
          [[8, 1]],
        ),
      ),
    ).toEqual([
      '0 of 1 16-byte load, the widest load moves 8 bytes',
      '0 of 1 16-byte store, the widest store moves 8 bytes',
    ]);
    expect(narrowAccesses('badd_f32', accesses([[16, 1]], [[16, 1]]))).toEqual([
      '1 of 2 16-byte loads, the widest load moves 16 bytes',
    ]);
    expect(narrowAccesses('mystery', accesses([[16, 9]], [[16, 9]]))[0]).toMatch(/no rule/);
  });
});

describe('resources', () => {
  const kernel: Entry = {
    ...{ target: 'gfx1100', module: 'affine', name: 'affine_f32', params: [], warpSize: 32, maxThreads: 1024 },
    ...{ vgprs: 24, agprs: null, sgprs: 20, ldsBytes: 0, scratchBytes: 0, vgprSpills: 0, sgprSpills: 0 },
  };

  it('fails on scratch, on spills and on what is not stated', () => {
    expect(resourceFailures([kernel])).toEqual([]);
    expect(resourceFailures([{ ...kernel, scratchBytes: 16 }])).toEqual([
      'gfx1100 affine affine_f32: 16 bytes of scratch',
    ]);
    expect(resourceFailures([{ ...kernel, vgprSpills: 2 }])).toHaveLength(1);
    expect(resourceFailures([{ ...kernel, scratchBytes: null }])[0]).toMatch(/unknown bytes of scratch/);
  });

  it('allows SGPR spills where the table of limits does, and no more', () => {
    const spilling = (name: string, sgprSpills: number | null) => resourceFailures([{ ...kernel, name, sgprSpills }]);
    expect(spilling('gemv_f32', 1)).toEqual(['gfx1100 affine gemv_f32: 1 SGPR spills, 0 allowed']);
    expect(spilling('gemv_f32', null)).toHaveLength(1);
    for (const [pattern, most] of SGPR_SPILLS) {
      const name = pattern.source.replace(/[\^$]/g, '').replace(/\(([^|)]+)[^)]*\)/g, '$1');
      expect(pattern.test(name), name).toBe(true);
      expect(spilling(name, most)).toEqual([]);
      expect(spilling(name, most + 1)).toHaveLength(1);
    }
  });

  it('prints a line a kernel with its numbers', () => {
    const [heading, line] = table([kernel])
      .split('\n')
      .map((text) => text.split(/ {2,}/));
    expect(heading).toEqual([
      'target',
      'module',
      'kernel',
      'vgprs',
      'agprs',
      'sgprs',
      'lds',
      'scratch',
      'vgpr spills',
      'sgpr spills',
    ]);
    expect(line).toEqual(['gfx1100', 'affine', 'affine_f32', '24', '-', '20', '0', '0', '0', '0']);
  });
});
