// The Python module: importing it registers the ops; its functions tell how it was built.
#include <pybind11/pybind11.h>
#include <torch/version.h>

#include <string>

#include "../cpu/batch.h"

PYBIND11_MODULE(_C, m) {
  m.doc() = "Compiled kernels of fedasd_fast; the ops are in torch.ops.fedasd.";
  m.def("build_info", [] {
    pybind11::dict info;
    info["torch_built"] = TORCH_VERSION;
    info["compiler"] = __VERSION__;
    info["cpu_capability"] = fedasd::cpu::kernels().name;
#if defined(FEDASD_CUDA_ARCHITECTURES)
    info["cuda_architectures"] = FEDASD_CUDA_ARCHITECTURES;
#else
    info["cuda_architectures"] = pybind11::none();
#endif
    return info;
  });
  m.def("select_cpu_capability", [](const std::string& name) { return fedasd::cpu::select_kernels(name.c_str()); },
        pybind11::arg("name"), "Choose 'avx512', 'avx2' or 'generic'; False where this CPU does not have it.");
}
