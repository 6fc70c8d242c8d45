/** A model that is computed without kernels of several operations: `fused: false` of `loadModel`. */
import { noFusing } from '@x/core';
import type { Batch, CausalModel, ForwardPass, KvView } from '@x/transformers';

/** The same model, which owns its weights still; each step of its passes is `noFusing`. */
export function unfused(model: CausalModel): CausalModel {
  const { config, device, kvLayouts, stateLayouts, lora, hostExperts } = model;
  return {
    config,
    device,
    kvLayouts,
    ...(stateLayouts && { stateLayouts }),
    ...(lora && { lora }),
    ...(hostExperts && { hostExperts }),
    pass: (batch, kv) => unfusedPass(model, batch, kv),
    dispose: () => model.dispose(),
  };
}

function* unfusedPass(model: CausalModel, batch: Batch, kv: KvView): ForwardPass {
  const pass = model.pass(batch, kv);
  try {
    for (;;) {
      // What is done between two steps, other models' passes among it, is as it was.
      const step = noFusing(() => pass.next());
      if (step.done) return step.value;
      yield step.value;
    }
  } finally {
    pass.return(undefined);
  }
}
