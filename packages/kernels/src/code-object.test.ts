import { describe, expect, it } from 'vitest';
import { parseCodeObject } from './code-object';
import { KernelError } from './errors';

const text = (value: string) => new TextEncoder().encode(value);

const PTX = `
// a described kernel, one without description and a device function
.version 8.0
.target sm_80
.address_size 64
.visible .const .align 1 .b8 x_sig_scale_f32[12] = {117, 54, 52, 32, 112, 116, 114, 32, 102, 51, 50};
.visible .const .align 1 .b8 x_sig_nothing[1];
.func (.param .b32 func_retval0) helper(.param .b32 a) { ret; }
.visible .entry scale_f32(
	.param .u64 scale_f32_param_0,
	.param .u64 .ptr .align 1 scale_f32_param_1,
	.param .f32 scale_f32_param_2
)
.maxntid 256, 2
{
	ret;
}
.visible .entry nothing()
.maxntid 1024
{
	ret;
}
.visible .entry foreign(
	.param .u64 .ptr .global .align 4 foreign_param_0,
	.param .f64 foreign_param_1,
	.param .u8 foreign_param_2,
	.param .align 2 .b8 foreign_param_3[2],
	.param .align 8 .b8 foreign_param_4[24]
) {
	ret;
}
`;

describe('parseCodeObject on PTX', () => {
  const parsed = parseCodeObject(text(PTX));

  it('names the target and every entry, and no function', () => {
    expect(parsed.format).toBe('ptx');
    expect(parsed.arch).toBe('sm_80');
    expect(Object.keys(parsed.kernels)).toEqual(['foreign', 'nothing', 'scale_f32']);
  });

  it('takes types from the description', () => {
    expect(parsed.kernels.scale_f32).toMatchObject({ params: ['u64', 'ptr', 'f32'], warpSize: 32, maxThreads: 512 });
    expect(parsed.kernels.nothing).toMatchObject({ params: [], maxThreads: 1024 });
  });

  it('falls back to the declared parameters', () => {
    expect(parsed.kernels.foreign!.params).toEqual(['ptr', 'f64', 'b8', 'b16', 'bytes24']);
    expect(parsed.kernels.foreign).toMatchObject({ maxThreads: null, vgprs: null, ldsBytes: null });
  });
});

describe('parseCodeObject on other bytes', () => {
  it.each([
    ['nothing', new Uint8Array()],
    ['text', text('not a code object')],
    ['an ELF magic alone', Uint8Array.from([0x7f, 0x45, 0x4c, 0x46])],
    ['a 32-bit ELF header', Uint8Array.from([0x7f, 0x45, 0x4c, 0x46, 1, 1, ...new Array(58).fill(0)])],
    ['a section table outside the file', Uint8Array.from([0x7f, 0x45, 0x4c, 0x46, 2, 1, ...new Array(58).fill(0xff)])],
  ])('refuses %s', (_, bytes) => {
    expect(() => parseCodeObject(bytes)).toThrow(KernelError);
    expect(() => parseCodeObject(bytes)).toThrow(expect.objectContaining({ code: 'KERNEL_OBJECT_INVALID' }));
  });
});
