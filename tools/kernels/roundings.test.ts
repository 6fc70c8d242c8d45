import { describe, expect, it } from 'vitest';
import { zeroAddends } from './roundings';

const DISASSEMBLY = `
0000000000003800 <usilu_f16>:
	v_fma_mixlo_f16 v4, v25, s41, 0                            // 00000008E514: CC210004 02005319
	v_fma_mixhi_f16 v4, v23, s41, 0 op_sel_hi:[1,0,0]          // 00000008E50C: CC220004 02005317
	v_fma_mixlo_f16 v4, v25, s41, v3                           // 00000008E514: CC210004 02005319
	v_fma_mixlo_f16 v4, v25, s41, 1.0

0000000000004800 <sound>:
	v_fma_mix_f32 v0, -v0, v5, v2 op_sel:[1,0,0] op_sel_hi:[1,0,0]// 000000119494: D3A00800 2C0A0B00
	v_fma_mixlo_f16 v0, 0, v5, v2
	v_fma_mixlo_f16 v0, v1, v5, -0
	v_cvt_f16_f32_e32 v0, v1
	v_fma_f32 v0, v1, v2, v0

<older>:
	v_mad_mixlo_f16 v0, v1, v2, 0// 000000119494: D3A00800
	v_mad_mix_f32 v0, v1, v2, 0
`;

describe('zeroAddends', () => {
  it('counts mixed multiply-adds whose addend is +0, and no others', () => {
    expect(zeroAddends(DISASSEMBLY)).toEqual(
      new Map([
        ['usilu_f16', 2],
        ['older', 2],
      ]),
    );
  });
});
