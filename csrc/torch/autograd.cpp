// Registers the loss ops: schemas, and the derivative of asd_objective, which the forward pass has already computed.
//
// The node is written by hand in place of torch::autograd::Function, which refuses to run under
// torch.func; a node like those of torch's own ops composes with vmap, grad and torch.compile.
#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

#include <algorithm>

#include "op_handle.h"
#include "ops.h"

namespace fedasd {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// Older releases of torch (2.10) count references to nodes by shared_ptr, newer ones (2.13) by intrusive_ptr.
template <class T>
auto make_node() {
  if constexpr (std::is_same_v<decltype(torch::autograd::Edge::function), std::shared_ptr<Node>>)
    return std::make_shared<T>();
  else return c10::make_intrusive<T>();
}

constexpr const char* kNoDoubleBackward =
    "the fused ASD loss has no second derivative; use implementation='reference' (fedasd_fast.reference), which has";

struct NoDoubleBackward : Node {
  variable_list apply(variable_list&&) override { TORCH_CHECK(false, kNoDoubleBackward); }
  std::string name() const override { return "fedasd::NoDoubleBackward"; }
};

struct AsdBackward : Node {
  SavedVariable gradient;
  bool keep_graph = true;

  std::string name() const override { return "fedasd::AsdBackward"; }
  void will_release_variables() override { keep_graph = false; }
  void release_variables() override { gradient.reset_data(); }

  variable_list apply(variable_list&& upstream) override {
    if (!upstream[0].defined() || !task_should_compute_output(0)) return {at::Tensor()};
    at::Tensor product = scale(gradient.unpack(), upstream[0]);
    if (at::GradMode::is_enabled()) {
      // create_graph: the product is right, its own derivative is not available.
      auto node = make_node<NoDoubleBackward>();
      node->set_next_edges({next_edge(0), torch::autograd::impl::gradient_edge(upstream[0])});
      torch::autograd::set_history(product, node);
    }
    return {std::move(product)};
  }

  // `saved` holds the only other reference besides the SavedVariable's.
  at::Tensor scale(at::Tensor saved, at::Tensor upstream) {
    const bool plain =
        !at::isTensorSubclassLike(saved) && !at::isTensorSubclassLike(upstream) && !at::GradMode::is_enabled();
    if (plain && saved.device().is_cpu() && all_ones(upstream)) {  // on a GPU, looking at it would wait for it
      // loss.backward(): nothing to multiply.  Dropping our reference lets the engine keep the buffer
      // without a copy; if the graph is retained, the caller gets one of its own to do with as it likes.
      if (keep_graph) return saved.clone();
      gradient.reset_data();
      return saved;
    }
    at::Tensor factor = upstream.detach();
    if (factor.dim() == 1) factor = factor.view_symint({factor.sym_size(0), 1, 1});  // [K] against [K, B, C]
    if (plain && !keep_graph) {
      gradient.reset_data();
      if (saved.use_count() == 1 && !saved.is_inference()) return saved.mul_(factor);
    }
    return at::mul(saved, factor).to(saved.scalar_type());
  }

  static bool all_ones(const at::Tensor& factor) {
    const c10::MaybeOwned<at::Tensor> flat = factor.expect_contiguous();
    auto ones = [&](auto* data) { return std::all_of(data, data + flat->numel(), [](auto x) { return x == 1; }); };
    if (flat->scalar_type() == at::kFloat) return ones(flat->const_data_ptr<float>());
    return flat->scalar_type() == at::kDouble && ones(flat->const_data_ptr<double>());
  }
};

void check_undifferentiated(const at::Tensor& t, const char* name) {
  TORCH_CHECK_VALUE(!t.requires_grad(), name, " requires grad, but ASD has no gradient for it; pass ", name,
                    ".detach() or compute it under torch.no_grad()");
}

void check_differentiation(const at::Tensor& student, const std::optional<at::Tensor>& teacher,
                           const std::optional<at::Tensor>& label_prior,
                           const std::optional<at::Tensor>& alpha_normalizer) {
  if (teacher) check_undifferentiated(*teacher, "teacher_logits");
  if (label_prior) check_undifferentiated(*label_prior, "label_prior");
  if (alpha_normalizer) check_undifferentiated(*alpha_normalizer, "alpha_normalizer");
  TORCH_CHECK_NOT_IMPLEMENTED(!torch::autograd::isFwGradDefined(student),
                              "the fused ASD loss has no forward-mode derivative; use implementation='reference'");
}

LossAndGrad asd_loss_and_grad(FEDASD_OBJECTIVE_PARAMETERS) {
  check_differentiation(student_logits, teacher, label_prior, alpha_normalizer);
  at::AutoDispatchBelowADInplaceOrView below;
  return op_handle<AsdLossAndGradOp>().call(FEDASD_OBJECTIVE_ARGUMENTS);
}

at::Tensor asd_objective(FEDASD_OBJECTIVE_PARAMETERS) {
  if (!at::GradMode::is_enabled() || !student_logits.requires_grad()) {
    check_differentiation(student_logits, teacher, label_prior, alpha_normalizer);
    at::AutoDispatchBelowADInplaceOrView below;
    return op_handle<AsdObjectiveOp>().call(FEDASD_OBJECTIVE_ARGUMENTS);
  }
  auto node = make_node<AsdBackward>();
  node->set_next_edges(torch::autograd::collect_next_edges(student_logits));
  auto [loss, gradient] = asd_loss_and_grad(FEDASD_OBJECTIVE_ARGUMENTS);
  torch::autograd::set_history(loss, node);
  node->gradient = SavedVariable(gradient, false);
  return loss;
}

CacheTensors teacher_cache(FEDASD_CACHE_PARAMETERS) {
  check_undifferentiated(teacher_logits, "teacher_logits");
  check_undifferentiated(label_prior, "label_prior");
  at::AutoDispatchBelowADInplaceOrView below;
  return op_handle<TeacherCacheOp>().call(FEDASD_CACHE_ARGUMENTS);
}

}  // namespace

TORCH_LIBRARY(fedasd, m) {
  m.set_python_module("fedasd_fast.kernels.ops");
  m.def("asd_objective" FEDASD_OBJECTIVE_SCHEMA " -> Tensor");
  m.def("asd_loss_and_grad" FEDASD_OBJECTIVE_SCHEMA " -> (Tensor loss, Tensor grad)");
  m.def("teacher_cache" FEDASD_CACHE_SCHEMA " -> (Tensor rows, Tensor constant, Tensor log_weight)");
}

TORCH_LIBRARY_IMPL(fedasd, Autograd, m) {
  m.impl("asd_objective", asd_objective);
  m.impl("asd_loss_and_grad", asd_loss_and_grad);
  m.impl("teacher_cache", teacher_cache);
}

// Autocast has nothing to cast: the kernels take any mix of float types and compute in float32 (or
// float64), and the loss is float32.
TORCH_LIBRARY_IMPL(fedasd, AutocastCPU, m) {
  for (const char* name : {"asd_objective", "asd_loss_and_grad", "teacher_cache"})
    m.impl(name, torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(fedasd, AutocastCUDA, m) {
  for (const char* name : {"asd_objective", "asd_loss_and_grad", "teacher_cache"})
    m.impl(name, torch::CppFunction::makeFallthrough());
}

}  // namespace fedasd
