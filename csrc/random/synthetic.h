// Synthetic samples of one client: labels from its own label distribution, inputs around the centres of their class.
//
// The package's numpy twin is data/synthetic_samples.py; both give the same bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "elementary.h"
#include "philox.h"

namespace fedasd::random {

enum class LabelDistribution { iid, shards, dirichlet };

// Parts of a client's stream.  The numbers are part of every saved result.
constexpr uint32_t kLabels = 0, kInputs = 1, kShards = 2, kGamma = 16;  // kGamma + attempt

struct SyntheticPopulation {
  Key key;
  LabelDistribution distribution = LabelDistribution::iid;
  double value = 0;  // delta of Dir(delta), or the number of classes of a client
  uint32_t classes = 1, modes = 1;
  int64_t dimensions = 1;
  float noise = 0;
  const float* centres = nullptr;  // [classes * modes, dimensions]
};

// log of a Gamma(delta) deviate, up to a constant: that of a Gamma(delta + 1) one (Marsaglia and Tsang, 2000) and of
// U^(1 / delta), which makes the one from the other and does not underflow as a logarithm.
inline double log_gamma_deviate(const ClientStream& stream, uint32_t label, double delta) {
  const double d = (delta + 1.0) - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  for (uint32_t attempt = 0;; ++attempt) {
    const auto block = stream.blocks<1>(label, kGamma + attempt);
    float normal = 0, unused = 0;
    normal_pair(block.word[0][0], block.word[1][0], normal, unused);
    const double x = double(normal), root = 1.0 + c * x;
    if (root <= 0.0) continue;
    const double v = root * root * root, log_v = logarithm(v);
    if (logarithm(fraction(block.word[2][0])) < 0.5 * x * x + d - d * v + d * log_v)
      return (logarithm(d) + log_v) + logarithm(fraction(block.word[3][0])) / delta;
  }
}

// Cumulative weights [classes] of a client's labels; the last need not be 1.
inline void cumulative_weights(const SyntheticPopulation& p, const ClientStream& stream, double* weights) {
  for (uint32_t label = 0; label < p.classes; ++label) weights[label] = log_gamma_deviate(stream, label, p.value);
  const double largest = *std::max_element(weights, weights + p.classes);
  double sum = 0;
  for (uint32_t label = 0; label < p.classes; ++label) weights[label] = sum += exponential(weights[label] - largest);
}

// The classes of a client that has only some: the first of a shuffled list.
inline void chosen_classes(const SyntheticPopulation& p, const ClientStream& stream, uint32_t* classes) {
  for (uint32_t i = 0; i < p.classes; ++i) classes[i] = i;
  for (uint32_t i = 0; i < uint32_t(p.value); ++i) {
    const auto block = stream.blocks<1>(i, kShards);
    std::swap(classes[i], classes[i + below(p.classes - i, block.word[0][0], block.word[1][0])]);
  }
}

// Labels [n] and, if wanted, which of the centres each sample is around.
inline void labels_of(const SyntheticPopulation& p, const ClientStream& stream, int64_t n, int64_t* labels,
                      uint32_t* centres) {
  std::vector<double> weights(p.distribution == LabelDistribution::dirichlet ? p.classes : 0);
  std::vector<uint32_t> classes(p.distribution == LabelDistribution::shards ? p.classes : 0);
  if (!weights.empty()) cumulative_weights(p, stream, weights.data());
  if (!classes.empty()) chosen_classes(p, stream, classes.data());
  for (int64_t i = 0; i < n; ++i) {
    const auto block = stream.blocks<1>(uint32_t(i), kLabels);
    uint32_t label = 0;
    if (!weights.empty()) {
      const double at = fraction(block.word[0][0]) * weights.back();
      while (label + 1 < p.classes && weights[label] <= at) ++label;
    } else if (!classes.empty()) {
      label = classes[below(uint32_t(p.value), block.word[0][0], block.word[1][0])];
    } else {
      label = below(p.classes, block.word[0][0], block.word[1][0]);
    }
    labels[i] = label;
    if (centres) centres[i] = label * p.modes + below(p.modes, block.word[2][0], block.word[3][0]);
  }
}

// Inputs [n, dimensions].  A block of the stream has four normal deviates, and those of a sample begin with a block.
[[gnu::always_inline]] inline void inputs_of(const SyntheticPopulation& p, const ClientStream& stream, int64_t n,
                                             const uint32_t* centres, float* inputs) {
  constexpr int kLanes = 16;
  const int64_t blocks = (p.dimensions + 3) / 4;  // of a sample
  for (int64_t first = 0; first < n * blocks; first += kLanes) {
    const auto block = stream.blocks<kLanes>(uint32_t(first), kInputs);
    float normal[4][kLanes];
    for (int i = 0; i < kLanes; ++i) {
      normal_pair(block.word[0][i], block.word[1][i], normal[0][i], normal[1][i]);
      normal_pair(block.word[2][i], block.word[3][i], normal[2][i], normal[3][i]);
    }
    const int64_t count = std::min<int64_t>(kLanes, n * blocks - first);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t sample = (first + i) / blocks, start = (first + i) % blocks * 4;
      const float* centre = p.centres + centres[sample] * p.dimensions;
      float* row = inputs + sample * p.dimensions;
      const int64_t end = std::min<int64_t>(4, p.dimensions - start);
      for (int64_t j = 0; j < end; ++j) row[start + j] = centre[start + j] + p.noise * normal[j][i];
    }
  }
}

}  // namespace fedasd::random
