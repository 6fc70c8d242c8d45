/**
 * Convolutions of floats on the host (kernels/conv/host.h): the image is copied to planes, and tiles of the result are
 * products of the kernel with these. Three forms: tiles of neighbouring outputs, for which the kernel is packed by tap;
 * where the kernel is larger than the result, as in gradients of kernels, sums along the kernel itself; and for groups of one
 * channel of the image, one plane after the other in memory of a thread's own.
 */
import { type DType, type Operand, sizeInBytes } from '@x/core';
import type { KernelDevice } from '../device';
import { kernelName } from '../kernel-name';
import {
  launchConvOwn,
  launchConvPlanes,
  launchConvStrips,
  launchConvTaps,
  launchConvWindows,
} from '../launchers/conv';
import { LayoutCache } from '../layout-cache';
import type { KernelStorage } from '../storage';
import { type AxisSizes, type PlanesPlan, type TapsPlan, tapsPlan, type WindowsPlan, windowsPlan } from './conv-planes';
import { filled } from './result';

/** A convolution over two axes; channels are those of all groups. */
export interface ConvSizes {
  transposed: boolean;
  b: number;
  cIn: number;
  cOut: number;
  groups: number;
  down: AxisSizes;
  across: AxisSizes;
}

/** Rows of the kernel's matrix that are packed together: a multiple of those of all host levels (BLOCK_ROWS). */
const BLOCK_ROWS = 8;
/** Elements that are read behind the last plane or kernel at most: a tile's width. */
const SLACK = 256;
/** Bytes of planes that are made at once: what a level 3 cache keeps. */
const PLANES_BYTES = 2 ** 24;
/** Elements of a vector, about: what is beside the result in a tile is computed for nothing. */
const LANES = 16;
/** Items of work a thread at least, where the kernel has rows enough to be cut. */
const ITEMS = 8;
/** Channels of blocks of a kernel in tile registers (kernels/conv/host-amx.h). */
const TILE = { outputs: 16, inputs: 32 };
/** Products that take about as long as an element of elementwise work. */
const PRODUCTS = 16;

/** Elements of a plane, taps of a phase and output channels of a group up to which a plane is a thread's own (kernels/conv/depthwise.h). */
const OWN = { plane: 32768, taps: 128, outputs: 2 };

/** A kernel and planes on the device, and where the result goes. */
interface Places {
  planes: number;
  weights: number;
  dst: number;
}

/** The result [b, cOut, down.out, across.out] of operands with two axes. */
export function convOnHost(device: KernelDevice, x: Operand, kernel: Operand, sizes: ConvSizes): KernelStorage {
  const plan = planOf(sizes);
  if ('places' in plan) return throughPlanes(device, x, lines(device, kernel), sizes, plan, multiplyWindows);
  const table = tableOf(device, plan, kernel);
  if (fitsThread(plan, sizes)) return convOwn(device, x, kernel, sizes, plan, table);
  const packed = strips(device, kernel, sizes, plan, table);
  return throughPlanes(device, x, packed, sizes, plan, (...args) => multiplyTaps(...args, table));
}

type Multiply<Plan> = (device: KernelDevice, dtype: DType, sizes: ConvSizes, plan: Plan, places: Places) => void;

/** Makes planes of so many images as stay in the cache, and multiplies these. Disposes the kernel's form. */
function throughPlanes<Plan extends PlanesPlan>(
  device: KernelDevice,
  x: Operand,
  kernel: KernelStorage,
  sizes: ConvSizes,
  plan: Plan,
  multiply: Multiply<Plan>,
): KernelStorage {
  const { dtype } = x.storage;
  const { b, cIn, cOut, down, across } = sizes;
  const image = cIn * plan.planeSize;
  const most = Math.max(1, Math.floor(PLANES_BYTES / (image * sizeInBytes(sumType(dtype)))));
  const each = cOut * down.out * across.out;
  let planes: KernelStorage | undefined;
  try {
    planes = device.allocUninit(Math.min(most, b) * image + SLACK, sumType(dtype));
    const { ptr } = planes;
    return filled(device, dtype, b * each, (out) => {
      for (let first = 0; first < b; first += most) {
        const count = Math.min(most, b - first);
        const part = count === b ? x : { storage: x.storage, layout: x.layout.narrow(0, first, count) };
        planesOf(device, part, plan, 'places' in plan ? 0 : cIn / sizes.groups, ptr);
        const dst = out + first * each * sizeInBytes(dtype);
        multiply(device, dtype, { ...sizes, b: count }, plan, { planes: ptr, weights: kernel.ptr, dst });
      }
    });
  } finally {
    planes?.dispose();
    kernel.dispose();
  }
}

function sumType(dtype: DType): DType {
  return dtype === 'f64' ? 'f64' : 'f32';
}

/** A count rounded up to whole steps. */
function whole(count: number, step: number): number {
  return Math.ceil(count / step) * step;
}

/** By sizes. */
const plans = new LayoutCache<TapsPlan | WindowsPlan>();

function planOf({ transposed, down, across }: ConvSizes): TapsPlan | WindowsPlan {
  const numbers = ({ out, k, padding, stride, dilation }: AxisSizes) => [out, k, padding, stride, dilation];
  const kind = [Number(transposed)];
  const axes = [numbers(down), numbers(across)];
  const known = plans.find(kind, axes);
  if (known) return known;
  const taps = tapsPlan(down, across, transposed);
  if (transposed) return plans.add(kind, axes, taps);
  // Multiplications of a channel with another, those for nothing included.
  const byTaps = down.k * across.k * whole(down.out * taps.across.size, LANES);
  const byWindows = down.out * across.out * down.k * whole(across.k, LANES);
  return plans.add(kind, axes, byWindows < byTaps ? windowsPlan(down, across) : taps);
}

/** `channels` are those of a group, of which a form of pairs takes two; 0: it takes neighbours of a line. */
function planesOf(
  device: KernelDevice,
  x: Operand,
  { down, across }: Pick<PlanesPlan, 'down' | 'across'>,
  channels: number,
  dst: number,
): void {
  const { ptr: src, layout } = device.view(x);
  const { ptr: info } = device.infoFor(layout.shape, layout.strides);
  const elements = layout.shape[0] * layout.shape[1] * down.parts * down.size * across.parts * across.size;
  launchConvPlanes(device, kernelName('conv_planes', x.storage.dtype), device.shapes.elementwise(elements), {
    downParts: down.parts,
    downSize: down.size,
    downStep: down.step,
    downBefore: down.before,
    acrossParts: across.parts,
    acrossSize: across.size,
    acrossStep: across.step,
    acrossBefore: across.before,
    channels,
    info,
    src,
    dst,
  });
}

/** The kernel as `conv_windows` reads it: widened and without gaps. */
function lines(device: KernelDevice, kernel: Operand): KernelStorage {
  const { shape, elemCount } = kernel.layout;
  const axis = (size: number) => ({ parts: 1, size, step: 1, before: 0 });
  return filled(device, sumType(kernel.storage.dtype), elemCount + SLACK, (dst) =>
    planesOf(device, kernel, { down: axis(shape[2]), across: axis(shape[3]) }, 0, dst),
  );
}

/** The words of a plan for the strides that a kernel had last. */
const tables = new WeakMap<TapsPlan, { strides: readonly number[]; words: number[] }>();

/** Five words a phase, then two a tap: its offset in a plane, and in the kernel. */
function tableOf(device: KernelDevice, plan: TapsPlan, { layout: { strides } }: Operand): number {
  const [, , rowStride, columnStride] = strides;
  const known = tables.get(plan);
  if (known && known.strides[2] === rowStride && known.strides[3] === columnStride)
    return device.infoFor(known.words).ptr;
  const { phases } = plan;
  const words: number[] = [];
  let first = 0;
  for (const { taps, rows, columns, start } of phases) {
    words.push(taps.length, first, rows, columns, start);
    first += taps.length;
  }
  for (const { taps } of phases)
    for (const { offset, down, across } of taps) words.push(offset, down * rowStride + across * columnStride);
  tables.set(plan, { strides, words });
  return device.infoFor(words).ptr;
}

function fitsThread({ planeSize, phases }: TapsPlan, { groups, cIn, cOut }: ConvSizes): boolean {
  const most = Math.max(...phases.map(({ taps }) => taps.length));
  return cIn === groups && cOut / groups <= OWN.outputs && planeSize <= OWN.plane && most <= OWN.taps;
}

function convOwn(
  device: KernelDevice,
  x: Operand,
  kernel: Operand,
  sizes: ConvSizes,
  { down, across, planeSize, phases, steps }: TapsPlan,
  table: number,
): KernelStorage {
  const { dtype } = x.storage;
  const { b: images, groups } = sizes;
  const cOut = sizes.cOut / groups;
  const { ptr: src, layout } = device.view(x);
  const outputs = sizes.down.out * sizes.across.out;
  const products = images * groups * (planeSize + outputs * cOut * sizes.down.k * sizes.across.k);
  return filled(device, dtype, images * sizes.cOut * outputs, (dst) => {
    const { ptr: info } = device.infoFor(layout.shape, layout.strides);
    const { groupStride, outStride } = stridesOf(kernel, sizes);
    launchConvOwn(device, kernelName('conv_own', dtype), device.shapes.elementwise(products / PRODUCTS), {
      ...{ images, groups, cOut, phases: phases.length },
      ...{ downParts: down.parts, downSize: down.size, downStep: down.step, downBefore: down.before },
      ...{ acrossParts: across.parts, acrossSize: across.size, acrossStep: across.step, acrossBefore: across.before },
      ...{ planeSize, groupStride, outStride, down: steps.down, across: steps.across, channel: outputs },
      ...{ table, info, src, kernel: device.view(kernel).ptr, dst },
    });
  });
}

/** Of a kernel: from a group to the next, and within a group from a channel of the result and of the image to the next. */
function stridesOf({ layout: { strides } }: Operand, { transposed, groups, cIn, cOut }: ConvSizes) {
  const [first, second] = strides;
  const [outStride, inStride] = transposed ? [second, first] : [first, second];
  const groupStride = transposed ? (cIn / groups) * inStride : (cOut / groups) * outStride;
  return { groupStride, outStride, inStride };
}

/** The kernel as `conv_taps` reads it. */
function strips(
  device: KernelDevice,
  kernel: Operand,
  sizes: ConvSizes,
  { phases }: TapsPlan,
  table: number,
): KernelStorage {
  const { groups } = sizes;
  const [cOut, cIn] = [sizes.cOut / groups, sizes.cIn / groups];
  const { ptr, layout } = device.view(kernel);
  const { groupStride, outStride, inStride } = stridesOf(kernel, sizes);
  const { dtype } = kernel.storage;
  const count = layout.elemCount;
  // Tile registers have whole blocks of pairs of channels.
  const pairs = (whole(cOut, TILE.outputs) * whole(cIn, TILE.inputs)) / 2;
  const room = dtype === 'bf16' && count > 0 ? Math.max(count, (count / (cOut * cIn)) * pairs) : count;
  return filled(device, sumType(dtype), room, (dst) => {
    const counts = { groups, cOut, cIn, phases: phases.length };
    const pointers = { table, kernel: ptr, dst };
    const shape = device.shapes.elementwise(count);
    const args = { ...counts, groupStride, outStride, inStride, ...pointers };
    launchConvStrips(device, kernelName('conv_strips', dtype), shape, args);
  });
}

function multiplyTaps(
  device: KernelDevice,
  dtype: DType,
  { b: images, groups, down, across, ...sizes }: ConvSizes,
  { phases, planeSize, steps, across: { size: pitch } }: TapsPlan,
  { planes, weights, dst }: Places,
  table: number,
): void {
  const [cOut, cIn] = [sizes.cOut / groups, sizes.cIn / groups];
  const outputs = phases.reduce((sum, { rows }) => sum + rows * pitch, 0);
  // The kernel's rows are cut only where tiles are few.
  const tiles = images * groups * Math.ceil(outputs / (3 * LANES));
  const cuts = Math.ceil((device.hip.properties.multiprocessorCount * ITEMS) / tiles);
  const rowsEach = Math.ceil(cOut / cuts / BLOCK_ROWS) * BLOCK_ROWS;
  const taps = phases.reduce((sum, phase) => sum + phase.taps.length, 0);
  const products = (images * groups * outputs * cOut * cIn * taps) / phases.length;
  launchConvTaps(device, kernelName('conv_taps', dtype), device.shapes.elementwise(products / PRODUCTS), {
    ...{ images, groups, cOut, cIn, phases: phases.length, planeSize, rowsEach, pitch },
    ...{ down: steps.down, across: steps.across, channel: down.out * across.out },
    ...{ table, planes, strips: weights, dst },
  });
}

function multiplyWindows(
  device: KernelDevice,
  dtype: DType,
  { b: images, groups, down, across, ...sizes }: ConvSizes,
  { planeSize, places, across: { size: pitch } }: WindowsPlan,
  { planes, weights, dst }: Places,
): void {
  const [cOut, cIn] = [sizes.cOut / groups, sizes.cIn / groups];
  const outputs = places.length;
  const products = images * groups * outputs * cOut * cIn * down.k * across.k;
  launchConvWindows(device, kernelName('conv_windows', dtype), device.shapes.elementwise(products / PRODUCTS), {
    ...{ images, groups, cOut, cIn, planeSize, lines: down.k, width: across.k, pitch, outputs },
    ...{ places: device.infoFor(places).ptr, planes, kernel: weights, dst },
  });
}
