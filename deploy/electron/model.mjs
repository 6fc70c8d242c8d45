// The process that has the model: a prompt comes in, pieces of text go out.
import { loadModel } from '@x/candle';

const loading = loadModel(process.argv[2]);
process.parentPort.on('message', async ({ data: prompt }) => {
  try {
    const model = await loading;
    for await (const { text } of model.generate(prompt, { maxTokens: 128 })) process.parentPort.postMessage({ text });
  } catch (error) {
    process.parentPort.postMessage({ error: error.message });
  }
});
