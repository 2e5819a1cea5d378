// Refuses tensors whose memory is gone or too small for their shape, as untyped_storage().resize_(0) leaves them: the
// kernels read through plain pointers.
#pragma once

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>

namespace fedasd {

inline void check_memory(const at::Tensor& t, const char* name) {
  const size_t needed = at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.itemsize(), t.storage_offset());
  const size_t present = t.storage().nbytes();
  TORCH_CHECK_VALUE(needed <= present, name, " has shape ", t.sizes(), ", but its storage holds ", present, " of the ",
                    needed, " bytes that this takes; pass a tensor whose storage was not freed or resized");
}

}  // namespace fedasd
