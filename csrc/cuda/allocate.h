// How a caller lends memory.
#pragma once

#include <cstddef>
#include <functional>

namespace fedasd::cuda {

// Gives memory that may be reused when the work queued on the stream so far is done.  Its content does not matter.
using Allocate = std::function<void*(size_t bytes)>;

}  // namespace fedasd::cuda
