// One client's objective and gradient, straight from the formulas: no shifts shared between softmaxes, no
// identities.  Terms are double; sums are long double, for they must not lose to the kernels' over many classes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "asd/options.h"

namespace reference {

using fedasd::Divergence;
using fedasd::Options;
using Row = std::vector<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// log softmax(x / tau) over the classes besides `excluded` (-1: over all); -inf for that one.
inline Row log_softmax(const Row& x, double tau, int64_t excluded = -1) {
  Row y(x.size());
  double top = -kInfinity;
  long double sum = 0;
  for (size_t c = 0; c < x.size(); ++c) {
    y[c] = int64_t(c) == excluded ? -kInfinity : x[c] / tau;
    top = std::max(top, y[c]);
  }
  for (double v : y) sum += std::exp(v - top);
  const double log_sum = double(std::log(sum));
  for (double& v : y) v = (v - top) - log_sum;
  return y;
}

// p x, and 0 for p = 0 whatever x is: a class without probability counts as nothing.
inline double times(double p, double x) { return p == 0 ? 0 : p * x; }

inline double entropy(const Row& log_p) {
  long double h = 0;
  for (double v : log_p) h -= times(std::exp(v), v);
  return double(h);
}

// With one class there is no class besides the true one, and not_true means nothing.
inline int64_t excluded(const Options& o, const Row& logits, int64_t label) {
  return o.not_true && logits.size() > 1 ? label : -1;
}

// What the objective needs of the teacher in one row.
struct Teacher {
  Row log_s;
  double log_weight = 0;
};

inline Teacher teacher(const Options& o, const Row& t, int64_t label, double proportion) {
  const double h = entropy(log_softmax(t, o.entropy_temperature));
  return {log_softmax(t, o.temperature, excluded(o, t, label)),
          -o.entropy_power * h - o.prior_power * std::log(proportion)};
}

// How much rounding a row amplifies: the absolute error of its logarithms, in units of the roundoff.
inline double condition(const Row& logits, double tau) {
  double largest = 0;
  for (double v : logits)
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  return 1 + largest / std::min(tau, 1.0) + std::log(double(logits.size()));
}

struct Result {
  double loss = 0, loss_scale = 0;
  double largest_alpha = 1;                   // more than 1 only with a normalizer
  std::vector<Row> gradient, gradient_scale;  // errors are measured in roundoffs of the scale
};

// `label` -1: an ignored row.  `normalizer`: the mean weight that alpha is relative to; 0: that of these rows.
inline Result objective(const Options& o, const std::vector<Row>& student, const std::vector<Teacher>& teachers,
                        const std::vector<int64_t>& label, double normalizer = 0) {
  Result result;
  double total_weight = 0, valid = 0, top = -kInfinity;
  for (size_t i = 0; i < label.size(); ++i)
    if (label[i] >= 0) top = std::max(top, teachers[i].log_weight);
  auto weight = [&](size_t i) { return o.adaptive ? std::exp(teachers[i].log_weight - top) : 1.0; };
  for (size_t i = 0; i < label.size(); ++i) {
    if (label[i] < 0) continue;
    total_weight += weight(i);
    ++valid;
  }
  if (normalizer != 0) total_weight = normalizer * valid * std::exp(-top);

  for (size_t i = 0; i < label.size(); ++i) {
    const size_t classes = student[i].size();
    Row gradient(classes, 0.0), scale(classes, 0.0);
    if (label[i] >= 0) {
      const Row log_q = log_softmax(student[i], o.temperature, excluded(o, student[i], label[i]));
      const Row log_u = log_softmax(student[i], 1.0);
      const Row& log_s = teachers[i].log_s;
      const double alpha = weight(i) / total_weight;
      result.largest_alpha = std::max(result.largest_alpha, alpha);
      const double condition_number = condition(student[i], o.temperature) + condition(log_s, 1.0);

      auto ratio = [&](size_t c) {  // log(q/s) or log(q/m), 0 where q is; kl has no need of it
        const double q = std::exp(log_q[c]), m = (std::exp(log_s[c]) + q) / 2;
        if (q == 0 || o.divergence == Divergence::kl) return 0.0;
        return log_q[c] - (o.divergence == Divergence::js ? std::log(m) : log_s[c]);
      };
      long double kl = 0, js_s = 0, q_ratio = 0, size = 0;
      for (size_t c = 0; c < classes; ++c) {
        const double q = std::exp(log_q[c]), s = std::exp(log_s[c]), m = (s + q) / 2;
        kl += times(s, log_s[c] - log_q[c]);
        js_s += times(s, log_s[c] - std::log(m));
        q_ratio += q * ratio(c);
        size += q * std::fabs(ratio(c));
      }
      const double mean = double(q_ratio), js = double(js_s + q_ratio) / 2;
      const double d = o.divergence == Divergence::kl ? double(kl) : o.divergence == Divergence::js ? js : mean;
      result.loss += times(o.asd_weight, alpha * d) - times(o.ce_weight, log_u[size_t(label[i])] / valid);
      result.loss_scale += (o.asd_weight * alpha * (1 + d) + o.ce_weight / valid) * condition_number;

      for (size_t c = 0; c < classes; ++c) {
        const double q = std::exp(log_q[c]), s = std::exp(log_s[c]), u = std::exp(log_u[c]),
                     truth = int64_t(c) == label[i];
        double g = q - s;
        if (o.divergence == Divergence::reverse_kl) g = q * (ratio(c) - mean);
        if (o.divergence == Divergence::js) g = q * (ratio(c) - mean) / 2;
        const double asd = o.asd_weight * alpha / o.temperature;
        gradient[c] = asd * g + o.ce_weight * (u - truth) / valid;
        scale[c] =
            (asd * (q * (1 + double(size)) + s + std::fabs(g)) + o.ce_weight * (u + truth) / valid) * condition_number;
      }
    }
    result.gradient.push_back(gradient);
    result.gradient_scale.push_back(scale);
  }
  return result;
}

}  // namespace reference
