/** What a backend does not do in one kernel, made of operations of tensors that every backend has. */
import { noGrad } from '../autograd/mode';
import type { BackendStorage } from '../backend';
import { scope } from '../scope';
import type { Tensor } from '../tensor';

/**
 * The storage of what `body` makes: contiguous, from element 0 on. It is the inside of one operation, so nothing is
 * recorded for gradients, and what it makes on the way is disposed.
 */
export function compose(body: () => Tensor): BackendStorage {
  return noGrad(() =>
    scope(() => {
      const result = body().contiguous();
      const { ref } = result.handle;
      const whole = ref !== null && ref.shares === 1 && ref.storage.elemCount === result.elemCount;
      if (whole) return ref.surrender();
      // An operand, or a part of something.
      return result.copy().handle.ref!.surrender();
    }),
  );
}
