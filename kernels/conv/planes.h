// The planes that convolutions of floats on the host read: each channel of the image, or a pair of channels, with zeros around
// it, in elements of a form (conv/forms.h), and cut into parts of every `step`-th row and column, so that what neighbouring
// windows read lies side by side.
#pragma once

#if X_HOST
namespace conv {

/** One axis of planes: parts, elements of a part, and zeros before the image. */
struct PlaneAxis {
  u64 parts, size, step, before;
};

/** A few zeros: a loop of vectors would take longer to begin. */
template <class A>
X_DEVICE void zeros(A* to, u64 begin, u64 end) {
#pragma clang loop vectorize(disable) unroll(disable)
  for (u64 x = begin; x < end; ++x) to[x] = (A)0;
}

/** Neighbours in vectors; the last one ends with them and repeats what it has in common with the one before. */
template <class T, class U>
X_DEVICE void copyNeighbours(const T* from, U* to, u64 count) {
  static_assert(sizeof(T) == sizeof(U), "elements of one size");
  typedef u8 Loose __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));
  constexpr u32 N = VECTOR_BYTES / sizeof(T);
  if (count >= N) {
    for (u64 x = 0; x + N <= count; x += N) *(Loose*)(to + x) = *(const Loose*)(from + x);
    *(Loose*)(to + count - N) = *(const Loose*)(from + count - N);
  } else {
    for (u64 x = 0; x < count; ++x) to[x] = bitCast<U>(from[x]);
  }
}

/** to = every `skip`-th of a line, and with a form of two channels that beside it, unless there is none. */
template <class T, class Form>
X_DEVICE void planeLine(const T* from, u64 beside, bool alone, u64 skip, typename Form::Element* to, u64 count) {
  if constexpr (Form::DEEP == 2) {
    if (alone) {
      for (u64 x = 0; x < count; ++x) to[x] = Form::of(from[x * skip], T{});
    } else if (skip == 1) {
      for (u64 x = 0; x < count; ++x) to[x] = Form::of(from[x], from[x + beside]);
    } else {
      for (u64 x = 0; x < count; ++x) to[x] = Form::of(from[x * skip], from[x * skip + beside]);
    }
  } else if (skip == 1) {
    if constexpr (sizeof(T) == sizeof(typename Form::Element)) {
      copyNeighbours(from, to, count);
    } else {
      for (u64 x = 0; x < count; ++x) to[x] = Form::of(from[x]);
    }
  } else {
    for (u64 x = 0; x < count; ++x) to[x] = Form::of(from[x * skip]);
  }
}

/**
 * to = the lines [line, last) of [image][group][channels / DEEP][parts down][parts across][rows][columns]: the image, zeros around
 * it; `channels` are those of a group.
 */
template <class T, class Form>
X_DEVICE void planeLines(const PlaneAxis& down, const PlaneAxis& across, const Image& image, u64 channels, const T* src, u64 line,
                         u64 last, typename Form::Element* to) {
  typedef typename Form::Element A;
  const u64 each = stepsTo(channels, Form::DEEP), all = image.dims[1] / channels * each;
  const u64 height = image.dims[2], width = image.dims[3], next = image.strides[3];
  while (line < last) {
    const u64 part = line / down.size, plane = part / across.parts / down.parts;
    const u64 within = plane % each * Form::DEEP, channel = plane % all / each * channels + within;
    const T* from = src + image.plane(plane / all, channel);
    // Element i of a line is column i * step + first of the image.
    const i64 first = (i64)(part % across.parts) - (i64)across.before;
    u64 begin = first >= 0 ? 0 : stepsTo((u64)-first, across.step);
    u64 end = (i64)width > first ? stepsTo((u64)((i64)width - first), across.step) : 0;
    if (end > across.size) end = across.size;
    if (begin > end) begin = end;
    const u64 skip = across.step * next, start = (begin * across.step + first) * next;
    u64 row = line % down.size;
    for (; row < down.size && line < last; ++row, ++line, to += across.size) {
      const u64 y = row * down.step + part / across.parts % down.parts - down.before;
      if (y >= height) {
        for (u64 x = 0; x < across.size; ++x) to[x] = (A)0;
        continue;
      }
      zeros(to, 0, begin);
      planeLine<T, Form>(from + y * image.strides[2] + start, image.strides[1], within + 1 == channels, skip, to + begin,
                         end - begin);
      zeros(to, end, across.size);
    }
  }
}

/** dst = all lines. A form of pairs has those of a group's channels, or with no channels those of a line. */
template <class T>
X_DEVICE void planes(const PlaneAxis& down, const PlaneAxis& across, const Image& image, u64 channels, const T* src,
                     acc_t<T>* dst) {
  const auto fill = [&](auto form, u64 group) {
    typedef decltype(form) Form;
    const u64 planes = image.dims[0] * (image.dims[1] / group) * stepsTo(group, Form::DEEP);
    const u64 lines = planes * down.parts * across.parts * down.size, line = split::begin(lines);
    planeLines<T, Form>(down, across, image, group, src, line, split::end(lines),
                        (typename Form::Element*)dst + line * across.size);
  };
  if (image.dims[1] == 0) return;
  if (channels > 0) withForm<T, Channels>([&](auto form) { fill(form, channels); });
  else withForm<T, Neighbours>([&](auto form) { fill(form, image.dims[1]); });
}

}  // namespace conv
#endif
