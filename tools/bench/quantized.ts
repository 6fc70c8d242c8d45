/**
 * Quantized weights type by type, as a table: what quantising costs in precision, and how fast a row of activations is
 * multiplied with a matrix.
 *
 *   tsx tools/bench/quantized.ts [--device cuda:0] [--types q4_K,iq4_nl] [--shapes 14336x4096,4096x14336]
 *
 * - RMSE, dot and product are candle's checks (helpers of packages/quantized/test): the total error of 4,096 cosines,
 *   the error of their dot product with others, and the mean relative error of a small product. `read only`: nothing
 *   here writes the type.
 * - kernel is the root of the mean square of what a product of 16 rows with a weight of random blocks is off by, over
 *   that of the exact product with the same blocks: what rounding activations to 8 bits does.
 * - GB/s counts the weight's bytes once: matrix-vector products (quantising the row included) with as many copies of the
 *   weight in turn as no cache holds, replayed as a graph between two events; the best of several. The last column is
 *   what a sum of rows reads right after them: on a shared machine it says how much of the memory was ours just then.
 */
import { parseArgs } from 'node:util';
import {
  checkedMatmulError,
  cosineDotError,
  cosines,
  exactProduct,
  numbersOf,
  totalError,
  weightOf,
} from '@x/testing/quantized/helpers';
import { BLOCK_TYPES, randomBlocks } from '@x/testing/quantized/random-blocks';
import { type BlockType, Device, Layout, Tensor } from '../../packages/core/src';
import { blockFormat, QMatMul, QTensor } from '../../packages/quantized/src';
import { RocmDevice } from '../../packages/rocm-backend/src';

/** Bytes of weights that one round reads: several times what caches hold. */
const ROUND_BYTES = 2 ** 29;
const ROUNDS = 7;

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      device: { type: 'string', default: 'auto' },
      types: { type: 'string', default: BLOCK_TYPES.join(',') },
      shapes: { type: 'string', default: '14336x4096,4096x14336' },
    },
  });
  const device = values.device === 'auto' ? await Device.auto() : Device.parse(values.device);
  const { backend } = device;
  if (!(backend instanceof RocmDevice))
    throw new Error(`${device} has no kernels to time. Name cpu, cuda:0 or rocm:0.`);
  const shapes = values.shapes.split(',').map((shape) => shape.split('x').map(Number) as [number, number]);
  console.log(`${backend.description}; copies ${copySpeed(backend).toFixed(1)} GB/s\n`);
  const head = [
    'type',
    'bits',
    'RMSE',
    'dot',
    'product',
    'kernel',
    ...shapes.map(([n, k]) => `${n} x ${k}, GB/s`),
    'sums of rows, GB/s',
  ];
  console.log(`| ${head.join(' | ')} |\n| ${head.map((text) => '-'.repeat(text.length)).join(' | ')} |`);
  for (const type of values.types.split(',') as BlockType[]) {
    const { blockBytes, blockSize } = blockFormat(type);
    const speeds = shapes.map(([n, k]) => productSpeed(backend, device, type, n, k).toFixed(1));
    const cells = [
      type,
      ((blockBytes * 8) / blockSize).toFixed(2),
      ...errors(type, device),
      ...speeds,
      readSpeed(backend).toFixed(1),
    ];
    console.log(`| ${cells.join(' | ')} |`);
  }
}

function errors(type: BlockType, device: Device): string[] {
  const kernel = kernelError(type, device).toExponential(1);
  if (blockFormat(type).quantize === undefined) return ['read only', '', '', kernel];
  const x = cosines(0);
  using weight = weightOf(x, [1, x.length], type, device);
  using numbers = weight.dequantize();
  const found = [totalError(x, numbersOf(numbers)), cosineDotError(type, device), checkedMatmulError(type, device)];
  return [...found.map((error) => error.toFixed(6)), kernel];
}

function kernelError(type: BlockType, device: Device): number {
  const size = { m: 16, n: 64, k: 4096 };
  const { blockSize } = blockFormat(type);
  const bytes = randomBlocks(type, (size.n * size.k) / blockSize, 7);
  using weight = QTensor.fromBytes(type, [size.n, size.k], bytes, device);
  using numbers = weight.dequantize();
  using map = QMatMul.fromQTensor(weight);
  device.setSeed(1);
  using input = Tensor.randn(0, 1, [size.m, size.k], { device });
  using y = map.forward(input);
  const exact = exactProduct(numbersOf(input), numbersOf(numbers), size);
  const squares = (values: ArrayLike<number>) => Array.from(values).reduce((sum, value) => sum + value * value, 0);
  return Math.sqrt(squares(numbersOf(y).map((value, i) => value - exact[i])) / squares(exact));
}

function productSpeed(backend: RocmDevice, device: Device, type: BlockType, n: number, k: number): number {
  const { blockBytes, blockSize } = blockFormat(type);
  const bytes = randomBlocks(type, (n * k) / blockSize, 1);
  const copies = Array.from({ length: Math.ceil(ROUND_BYTES / bytes.length) }, () =>
    QTensor.fromBytes(type, [n, k], bytes, device),
  );
  const x = backend.random.uniform(k, 'f32', -1, 1);
  const seconds = bestOf(backend, () => {
    for (const { data } of copies) {
      const { storage } = data.storageAndLayout();
      backend.quantized
        .matmul(storage, type, { m: 1, n, k }, { storage: x, layout: Layout.contiguous([1, k]) })
        .dispose();
    }
  });
  for (const weight of [...copies, x]) weight.dispose();
  backend.emptyCache();
  return ((((n * k) / blockSize) * blockBytes * copies.length) / seconds) * 1e-9;
}

/** GB/s of a copy, what is read and what is written. */
function copySpeed(backend: RocmDevice): number {
  const layout = Layout.contiguous([ROUND_BYTES / 4]);
  const source = backend.zeros(layout.elemCount, 'f32');
  const target = backend.allocUninit(layout.elemCount, 'f32');
  const seconds = bestOf(backend, () => backend.ops.copy({ storage: source, layout }, { storage: target, layout }));
  for (const storage of [source, target]) storage.dispose();
  backend.emptyCache();
  return ((2 * ROUND_BYTES) / seconds) * 1e-9;
}

/** GB/s of what is only read. */
function readSpeed(backend: RocmDevice): number {
  const layout = Layout.contiguous([ROUND_BYTES / 4 / 16384, 16384]);
  const source = backend.zeros(layout.elemCount, 'f32');
  const seconds = bestOf(backend, () => backend.ops.reduce('sum', { storage: source, layout }, [1]).dispose());
  source.dispose();
  backend.emptyCache();
  return (ROUND_BYTES / seconds) * 1e-9;
}

/** Seconds of the fastest of several replays of what `run` enqueues. */
function bestOf(backend: RocmDevice, run: () => void): number {
  run();
  const stream = backend.hip.defaultStream;
  stream.beginCapture();
  run();
  const graph = stream.endCapture();
  const exec = graph.instantiate();
  const [start, end] = [backend.hip.createEvent(), backend.hip.createEvent()];
  const times = Array.from({ length: ROUNDS }, () => {
    start.record(stream);
    exec.launch(stream);
    end.record(stream);
    end.synchronizeSync();
    return end.elapsedMs(start) * 1e-3;
  });
  for (const resource of [exec, graph, start, end]) resource.dispose();
  return Math.min(...times);
}

void main();
