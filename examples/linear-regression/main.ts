// Fits a line to noisy points by gradient descent and compares it with the closed form of least squares.
// Run from the repository: tsx examples/linear-regression/main.ts [--device cpu] [--steps 100] [--seed 1] [--json]
import { Device, nn, scope, Tensor } from '@x/candle';
import { DEVICE, JSON_FLAG, readFlags, runExample } from '../flags';

const TRUTH = { slope: 3, intercept: -2 };
const NOISE = 0.1;
const POINTS = 1000;

async function main(): Promise<void> {
  const values = readFlags(import.meta.url, {
    device: DEVICE,
    steps: { type: 'number', help: 'steps of gradient descent', default: 100, from: 0 },
    seed: { type: 'number', help: 'seed of the random numbers', default: 1, from: 0 },
    json: JSON_FLAG,
  });
  const device = values.device ? Device.parse(values.device) : await Device.auto();
  device.setSeed(values.seed);
  const say = values.json ? () => {} : console.log;

  // Points on the line, moved up and down by normal noise.
  using x = Tensor.rand(-1, 1, [POINTS, 1], 'f32', device);
  using y = scope(() => x.affine(TRUTH.slope, TRUTH.intercept).add(x.randnLike(0, NOISE)));

  using vars = new nn.VarMap();
  const line = nn.linear(1, 1, nn.VarBuilder.fromVarMap(vars, { dtype: 'f32', device }));
  using optimizer = new nn.SGD(vars.allVars(), 0.5);
  const { steps } = values;
  for (let step = 1; step <= steps; step++) {
    using error = scope(() => nn.loss.mse(line.forward(x), y));
    optimizer.backwardStep(error);
    if (step % 20 === 0) say(`step ${step}: mean squared error ${(await error.toScalar()).toFixed(6)}`);
  }

  const fitted = { slope: await number(line.weight), intercept: await number(line.bias!) };
  const closed = await leastSquares(x, y);
  const apart = Math.max(Math.abs(fitted.slope - closed.slope), Math.abs(fitted.intercept - closed.intercept));
  if (values.json) {
    console.log(JSON.stringify({ device: `${device}`, steps, truth: TRUTH, fitted, closed, apart }));
    return;
  }
  const row = (name: string, { slope, intercept }: typeof TRUTH) =>
    console.log(`${name.padEnd(16)} y = ${slope.toFixed(5)} x + ${intercept.toFixed(5)}`);
  console.log(`\n${POINTS} points with noise of ${NOISE}, on ${device}`);
  row('the line', TRUTH);
  row('closed form', closed);
  row('gradient descent', fitted);
}

/** The line with the smallest squared distance: its slope is covariance over variance. */
async function leastSquares(x: Tensor, y: Tensor): Promise<typeof TRUTH> {
  const [slope, intercept] = scope(() => {
    const [meanX, meanY] = [x.meanAll(), y.meanAll()];
    const centred = x.broadcastSub(meanX);
    const slope = centred.mul(y.broadcastSub(meanY)).sumAll().div(centred.sqr().sumAll());
    return [slope, meanY.sub(slope.mul(meanX))];
  });
  return { slope: await number(slope), intercept: await number(intercept) };
}

/** The value of a tensor of one element. */
async function number(tensor: Tensor): Promise<number> {
  return Number((await tensor.toArray())[0]);
}

runExample(main);
