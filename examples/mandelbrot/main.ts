// The Mandelbrot set as a PNG: real parts are a row and imaginary parts a column, broadcasting makes the plane of them,
// and all points take every step together. Run from the repository:
//   tsx examples/mandelbrot/main.ts [--device cpu] [--width 1000] [--height 900] [--steps 200] [--out FILE] [--json]
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Device, scope, Tensor } from '@x/candle';
import { encode } from 'fast-png';
import { DEVICE, JSON_FLAG, readFlags, runExample } from '../flags';

/** The part of the plane that is drawn; the whole set is in it. */
const REAL = { from: -2, to: 0.5 };
const IMAGINARY = { from: -1.125, to: 1.125 };
/** A point that is farther away has left. 2 would do; farther out, the colours of the steps pass into one another. */
const RADIUS = 32;
/** Where red, green and blue start on the wheel of colours, in radians, and how far a step goes on it. */
const WHEEL = { phases: [3, 3.6, 4.2], perStep: 0.15 };

async function main(): Promise<void> {
  const values = readFlags(import.meta.url, {
    device: DEVICE,
    width: { type: 'number', help: 'points from left to right', default: 1000, from: 1 },
    height: { type: 'number', help: 'points from top to bottom', default: 900, from: 1 },
    steps: { type: 'number', help: 'steps that a point may take', default: 200, from: 1 },
    out: {
      type: 'text',
      help: 'the PNG file to write',
      default: fileURLToPath(new URL('out/mandelbrot.png', import.meta.url)),
    },
    json: JSON_FLAG,
  });
  const device = values.device ? Device.parse(values.device) : await Device.auto();
  const { width, height, steps, out } = values;

  const started = performance.now();
  const orbits = scope(() => {
    const re = axis(REAL, width, device).unsqueeze(0);
    const im = axis(IMAGINARY, height, device).unsqueeze(1);
    return iterate(re, im, steps);
  });
  using image = paint(orbits, steps);
  const data = (await image.toArray()) as Uint8Array;
  const ms = performance.now() - started;
  mkdirSync(dirname(out), { recursive: true });
  writeFileSync(out, encode({ width, height, channels: 3, data }));

  using inside = scope(() => orbits.age.ge(steps).toDtype('f32').meanAll());
  const area = Number(await inside.toScalar()) * (REAL.to - REAL.from) * (IMAGINARY.to - IMAGINARY.from);
  if (values.json) console.log(JSON.stringify({ device: `${device}`, width, height, steps, ms, area, out }));
  else {
    console.log(`${width} x ${height} points, ${steps} steps on ${device}: ${ms.toFixed(0)} ms`);
    console.log(`area ${area.toFixed(4)}; that of the set is 1.5066, and some points need more steps to leave`);
    console.log(`written to ${out}`);
  }
}

/** `count` points of a range, at the middles of `count` equal parts: [count]. */
function axis({ from, to }: { from: number; to: number }, count: number, device: Device): Tensor {
  const part = (to - from) / count;
  return Tensor.arange(0, count, 'f32', device).affine(part, from + part / 2);
}

/** Where the points of the plane are after their last step, and how many steps they have made: [height, width] each. */
interface Orbits {
  re: Tensor;
  im: Tensor;
  age: Tensor;
}

/** z² + c, `steps` times or until a point has left. c: `re` [1, width] and `im` [height, 1]. */
function iterate(re: Tensor, im: Tensor, steps: number): Orbits {
  const zeros = () => Tensor.zeros([im.dim(0), re.dim(1)], 'f32', re.device);
  let z: Orbits = { re: zeros(), im: zeros(), age: zeros() };
  for (let step = 0; step < steps; step++) {
    const last = z;
    z = scope(() => {
      const [reSquared, imSquared] = [last.re.sqr(), last.im.sqr()];
      const near = reSquared.add(imSquared).le(RADIUS ** 2);
      return {
        re: near.whereCond(reSquared.sub(imSquared).broadcastAdd(re), last.re),
        im: near.whereCond(last.re.mul(last.im).affine(2, 0).broadcastAdd(im), last.im),
        age: last.age.add(near.toDtype('f32')),
      };
    });
    for (const tensor of Object.values(last)) tensor.dispose();
  }
  return z;
}

/** Red, green and blue of every point, u8 [height, width, 3]: black inside, and around it by the time that leaving took. */
function paint({ re, im, age }: Orbits, steps: number): Tensor {
  return scope(() => {
    // How far a point got beyond the radius tells which part of its last step it took to get there.
    const beyond = re
      .sqr()
      .add(im.sqr())
      .log()
      .maximum(1e-6)
      .log()
      .affine(1 / Math.LN2, 0);
    const turn = age.sub(beyond).affine(WHEEL.perStep, 0);
    const colours = WHEEL.phases.map((phase) => turn.affine(1, phase).cos().affine(127, 128));
    const black = re.zerosLike();
    const inside = age.ge(steps);
    return Tensor.stack(
      colours.map((colour) => inside.whereCond(black, colour)),
      2,
    ).toDtype('u8');
  });
}

runExample(main);
