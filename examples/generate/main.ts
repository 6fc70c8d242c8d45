// Streams text from a GGUF model, three ways: greedy, sampled with a seed, and stopped after a deadline.
// Run from the repository: tsx examples/generate/main.ts [--device cpu] [--model FILE.gguf]
import { Device, loadModel } from '@x/candle';
import { DEVICE, readFlags, runExample } from '../flags';

async function main(): Promise<void> {
  const values = readFlags(import.meta.url, {
    device: DEVICE,
    model: {
      type: 'text',
      help: 'a .gguf file or a safetensors directory',
      default: 'models/tiny-tales/tiny-tales-q8_0.gguf',
    },
  });
  const device = values.device ? Device.parse(values.device) : await Device.auto();
  using model = await loadModel(values.model, { device });

  console.log(`# greedy, on ${device}`);
  for await (const piece of model.generate('Once upon a time', { maxTokens: 32, temperature: 0 })) {
    process.stdout.write(piece.text);
  }

  console.log('\n\n# sampled: the same seed gives the same tale');
  const options = { maxTokens: 32, temperature: 0.8, topP: 0.95, repetitionPenalty: 1.1, seed: 42 };
  for await (const piece of model.generate('The old king', options)) process.stdout.write(piece.text);

  console.log('\n\n# until a deadline');
  const generation = model.generate('In the forest', { maxTokens: 400, signal: AbortSignal.timeout(300) });
  try {
    for await (const piece of generation) process.stdout.write(piece.text);
  } catch (error) {
    if ((error as Error).name !== 'TimeoutError') throw error;
  }
  console.log(`\n\n${generation.stats.tokens} tokens, ${generation.stats.decodeTokensPerSecond.toFixed(0)} tokens/s`);
}

runExample(main);
