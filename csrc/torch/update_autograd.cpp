// The ops of the client update: schemas, and what autograd must know.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "op_handle.h"
#include "update.h"

namespace fedasd {
namespace {

// No derivative: the ops stand where an optimizer does, so a gradient that would be lost is refused.
void check_undifferentiated(const at::Tensor& t, const char* name) {
  TORCH_CHECK_VALUE(!t.requires_grad(), name,
                    " requires grad, but the client update has no derivative; call it under torch.no_grad(), or pass ",
                    name, ".detach()");
}
void check_undifferentiated(const std::optional<at::Tensor>& t, const char* name) {
  if (t) check_undifferentiated(*t, name);
}
// Tells autograd that a tensor it saved for a backward pass has changed.
void mark_written(const at::Tensor& t) {
  if (!t.is_inference()) t.unsafeGetTensorImpl()->bump_version();
}
void mark_written(const std::optional<at::Tensor>& t) {
  if (t) mark_written(*t);
}

void local_step(FEDASD_STEP_PARAMETERS) {
  if (at::GradMode::is_enabled()) {
    check_undifferentiated(w, "w");
    check_undifferentiated(g, "g");
    check_undifferentiated(velocity, "velocity");
    check_undifferentiated(linear, "linear");
    check_undifferentiated(decays, "decay");
    check_undifferentiated(lrs, "lr");
    check_undifferentiated(norms, "norms");
  }
  {
    at::AutoDispatchBelowADInplaceOrView below;
    op_handle<LocalStepOp>().call(FEDASD_STEP_ARGUMENTS);
  }
  mark_written(w);
  mark_written(velocity);
  mark_written(norms);
}

void ascend(FEDASD_ASCEND_PARAMETERS) {
  if (at::GradMode::is_enabled()) {
    check_undifferentiated(w, "w");
    check_undifferentiated(g, "g");
    check_undifferentiated(saved, "saved");
  }
  {
    at::AutoDispatchBelowADInplaceOrView below;
    op_handle<AscendOp>().call(FEDASD_ASCEND_ARGUMENTS);
  }
  mark_written(w);
  mark_written(saved);
}

void accumulate(FEDASD_ACCUMULATE_PARAMETERS) {
  if (at::GradMode::is_enabled()) check_undifferentiated(values, "values");
  {
    at::AutoDispatchBelowADInplaceOrView below;
    op_handle<AccumulateOp>().call(FEDASD_ACCUMULATE_ARGUMENTS);
  }
  mark_written(total);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(fedasd, m) {
  m.set_python_module("fedasd_fast.kernels.ops");
  m.def("local_step_" FEDASD_STEP_SCHEMA);
  m.def("ascend_" FEDASD_ASCEND_SCHEMA);
  m.def("accumulate_" FEDASD_ACCUMULATE_SCHEMA);
}

TORCH_LIBRARY_IMPL(fedasd, Autograd, m) {
  m.impl("local_step_", local_step);
  m.impl("ascend_", ascend);
  m.impl("accumulate_", accumulate);
}

}  // namespace fedasd
