// gather, scatter and scatter_add of operands with any strides, whose sizes are those of the ids: a tensor that is larger
// outside the dim is narrowed to them by its strides. `info` is dims ++ a set of strides an operand, or null where all are
// contiguous. Every value of an id's type is an id: one outside the dim gives zeros or is skipped.
#pragma once

namespace indexing {

/** Where `operands` views have their i-th element, and how they go on from it along the innermost dim. */
template <u32 operands>
struct Run {
  u64 at[operands], step[operands];
  /** Elements up to the end of the innermost dim. */
  u64 left;
};

template <u32 operands>
X_DEVICE Run<operands> runAt(u64 i, u64 numel, u64 num_dims, const u64* info) {
  Run<operands> run;
#pragma unroll
  for (u32 k = 0; k < operands; ++k) {
    run.at[k] = info == nullptr ? i : 0;
    run.step[k] = info == nullptr ? 1 : info[(k + 2) * num_dims - 1];
  }
  run.left = numel - i;
  if (info == nullptr) return run;
  for (u64 d = num_dims; d-- > 0;) {
    const u64 size = info[d], quotient = quotientOf(i, size), place = i - quotient * size;
    if (d + 1 == num_dims) run.left = size - place;
#pragma unroll
    for (u32 k = 0; k < operands; ++k) run.at[k] += place * info[(k + 1) * num_dims + d];
    i = quotient;
  }
  return run;
}

/** out[i] = inp[its place + ids[i] * src_step]: strides of the ids, then of inp with 0 for the dim. */
template <u32 bytes, class I>
X_DEVICE void gatherView(u64 numel, u64 num_dims, const u64* info, const I* ids, const void* inp, void* out, u64 src_dim,
                         u64 src_step) {
  const Bits<bytes>* from = (const Bits<bytes>*)inp;
  Bits<bytes>* to = (Bits<bytes>*)out;
  const auto valueOf = [=](I id, u64 at) {
    const u64 index = indexOf(id, src_dim);
    Bits<bytes> value = {};
    if (index != NOWHERE) value = from[at + index * src_step];
    return value;
  };
#if X_HOST
  for (u64 i = launch::eachBegin(numel), end = launch::eachEnd(numel); i < end;) {
    const Run<2> run = runAt<2>(i, numel, num_dims, info);
    const u64 count = run.left < end - i ? run.left : end - i;
    for (u64 c = 0; c < count; ++c) to[i + c] = valueOf(ids[run.at[0] + c * run.step[0]], run.at[1] + c * run.step[1]);
    i += count;
  }
#else
  X_FOR_EACH(i, numel) {
    const Run<2> run = runAt<2>(i, numel, num_dims, info);
    to[i] = valueOf(ids[run.at[0]], run.at[1]);
  }
#endif
}

/**
 * out[its place + ids[place, j] * dst_step] = Op(itself, inp[place, j]) for j in order, at every place of the dims besides
 * the indexed one, along which ids and inp go on by their steps: strides of the ids, inp and out. A thread owns a place, as
 * in `scatter`.
 */
template <class Op, class T, class I>
X_DEVICE void scatterView(u64 places, u64 num_dims, const u64* info, const I* ids, const T* inp, T* out, u64 ids_dim,
                          u64 dst_dim, u64 ids_step, u64 src_step, u64 dst_step) {
  const auto place = [=](u64 idAt, u64 from, u64 to) {
    const u64 id = indexOf(ids[idAt], dst_dim);
    if (id != NOWHERE) out[to + id * dst_step] = Op::apply(out[to + id * dst_step], inp[from]);
  };
#if X_HOST
  // Places of one row go side by side, as in `scatter`.
  for (u64 i = launch::eachBegin(places), end = launch::eachEnd(places); i < end;) {
    const Run<3> run = runAt<3>(i, places, num_dims, info);
    const u64 count = run.left < end - i ? run.left : end - i;
    for (u64 j = 0; j < ids_dim; ++j) {
      const u64 idAt = run.at[0] + j * ids_step, from = run.at[1] + j * src_step;
      for (u64 c = 0; c < count; ++c) place(idAt + c * run.step[0], from + c * run.step[1], run.at[2] + c * run.step[2]);
    }
    i += count;
  }
#else
  X_FOR_EACH(i, places) {
    const Run<3> run = runAt<3>(i, places, num_dims, info);
    for (u64 j = 0; j < ids_dim; ++j) place(run.at[0] + j * ids_step, run.at[1] + j * src_step, run.at[2]);
  }
#endif
}

}  // namespace indexing
