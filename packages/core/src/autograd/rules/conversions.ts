/** Gradients of changing dtype and device: the way back. */
import type { Rule } from '../record';

export const toDtype: Rule = { backward: (call) => [call.grad.toDtype(call.dtype(0))] };

/** Blocks while the gradient is copied, because `backward` is not async; so does the way there in candle. */
export const toDevice: Rule = { backward: (call) => [call.grad.toDeviceSync(call.device(0))] };
