// What a token weighs in a draw: whole numbers, so that sums are exact in any order, made by arithmetic that is the same on
// every device. The same seed then draws the same token everywhere from the same logits; the TypeScript of it is
// packages/engine/src/sampling/weights.ts.
#pragma once

namespace sampling {

/** The weight of the likeliest token. Sums of 2^20 of them fit a double, which the host counts in. */
constexpr float UNIT = 2147483648.0f;
/** Below, a weight is 0. */
constexpr float LEAST = -22.0f;

/** exp(z) for z in [LEAST, 0], within 2 units in the last place. */
X_DEVICE float exactExp(float z) {
  // The last bits of 1.5 * 2^23 + n are n, the integer nearest to z / ln 2.
  const float shifted = multiplyThenAdd(z, 1.44269502f, 12582912.0f), n = shifted - 12582912.0f;
  const float r = multiplyThenAdd(-n, 0.00000142860677f, multiplyThenAdd(-n, 0.693145752f, z));
  float power = multiplyThenAdd(0.00138185068f, r, 0.00836875383f);
  power = multiplyThenAdd(power, r, 0.0416683406f);
  power = multiplyThenAdd(power, r, 0.166665196f);
  power = multiplyThenAdd(power, r, 0.49999994f);
  power = multiplyThenAdd(power, r, 1.0f);
  power = multiplyThenAdd(power, r, 1.0f);
  return power * bitCast<float>((u32)((i32)n + 127) << 23);
}

/** The weight of a token whose scaled logit lies z below the largest. */
X_DEVICE u64 weightOf(float z) { return z < LEAST ? 0 : (u64)(exactExp(z) * UNIT); }

/** The same times -z. */
X_DEVICE u64 momentOf(float z) { return z < LEAST ? 0 : (u64)(multiplyThenAdd(exactExp(z), -z, 0.0f) * UNIT); }

/** floor(part / 2^32 * total) for a total below 2^52. */
X_DEVICE u64 shareOf(u32 part, u64 total) { return (total >> 32) * part + ((total & 0xffffffffu) * part >> 32); }

}  // namespace sampling
