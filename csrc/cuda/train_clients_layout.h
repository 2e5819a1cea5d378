// How a client lies in its block's shared memory while it trains, and how many bytes that takes.  No CUDA headers: a
// host without a GPU can ask too.
//
// Of each layer: weights [out, in] as in the client's vector, and its bias; the inputs of a batch [batch, in]; the
// gradient of its outputs [batch, out], which holds the derivative of the activation until it comes.  The logits are
// the inputs of a layer that does not exist.  Everything is padded to whole fours with zeros that stay zeros: no
// product has a rest.  The gradient of the parameters has no place, see train_clients_update.cuh.
#pragma once

#include <cstdint>
#include <string>

#include "../chain/problem.h"

namespace fedasd::cuda {

constexpr int kTrainLayers = 16;         // at most: they travel with the launch
constexpr int64_t kTrainScratch = 1024;  // bytes for sums over the block

struct TrainLayer {
  int in = 0, out = 0;
  Activation activation = Activation::none;
  int stride = 0;                            // between rows of weights
  int weight = 0, bias = -1;                 // in shared memory, in elements; bias < 0: none
  int input = 0, gradient = 0;               // the same
  int64_t weight_place = 0, bias_place = 0;  // in the client's vector
};

struct TrainLayout {
  TrainLayer layers[kTrainLayers];
  int depth = 0, batch = 0;  // batch: rows at once
  int logits = 0;
  int elements = 0;   // of all; rows and labels of the batch, two int each, lie behind them
  int64_t bytes = 0;  // of dynamic shared memory
};

FEDASD_HD int64_t fours(int64_t n) { return (n + 3) / 4 * 4; }
// Between rows of weights: an odd number of fours, so that eight neighbouring rows, which eight threads read 16 bytes
// each of at once, lie in different banks.
FEDASD_HD int64_t weight_stride(int64_t in) { return fours(in) / 4 % 2 ? fours(in) : fours(in) + 4; }

// Bytes of shared memory that a block needs: parameters, and the activations of a batch.
inline int64_t shared_bytes(const ChainTraining& p) {
  int64_t elements = p.batch_size * fours(p.layers.back().out);
  for (const ChainLayer& layer : p.layers) {
    elements += fours(layer.out) * weight_stride(layer.in) + (layer.bias < 0 ? 0 : fours(layer.out));
    elements += p.batch_size * (fours(layer.in) + fours(layer.out));
  }
  return kTrainScratch + elements * size_of(p.type) + p.batch_size * 2 * int64_t(sizeof(int));
}

// Why a block with so many bytes of shared memory cannot train such a client; empty: it can.
inline std::string why_not_trained(const ChainTraining& p, int64_t limit) {
  if (p.layers.size() > size_t(kTrainLayers))
    return "it has " + std::to_string(p.layers.size()) + " layers, and one launch takes at most " +
           std::to_string(kTrainLayers);
  const int64_t needed = shared_bytes(p);
  if (needed > limit)
    return "a client takes " + std::to_string(needed) + " bytes of shared memory, and a block of this GPU has " +
           std::to_string(limit);
  return "";
}

// Only for what fits a device: places are 32 bits.
inline TrainLayout layout_of(const ChainTraining& p) {
  TrainLayout layout;
  layout.depth = int(p.layers.size());
  layout.batch = int(p.batch_size);
  int end = 0;
  auto place = [&](int64_t elements) {
    const int begin = end;
    end += int(elements);
    return begin;
  };
  for (int l = 0; l < layout.depth; ++l) {
    const ChainLayer& from = p.layers[size_t(l)];
    TrainLayer& to = layout.layers[l];
    to.in = int(from.in);
    to.out = int(from.out);
    to.activation = from.activation;
    to.stride = int(weight_stride(from.in));
    to.weight = place(fours(from.out) * to.stride);
    if (from.bias >= 0) to.bias = place(fours(from.out));
    to.input = place(p.batch_size * fours(from.in));
    to.gradient = place(p.batch_size * fours(from.out));
    to.weight_place = from.weight;
    to.bias_place = from.bias;
  }
  layout.logits = place(p.batch_size * fours(p.layers.back().out));
  layout.elements = end;
  layout.bytes = shared_bytes(p) - kTrainScratch;
  return layout;
}

}  // namespace fedasd::cuda
