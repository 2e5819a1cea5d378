// The Python module fedasd_fast._stable, for every Python since 3.10 (Py_LIMITED_API).  Importing it registers the ops;
// the package's kernels/stable.py calls them.
#include <Python.h>
#include <torch/headeronly/version.h>
#include <torch/library.h>

#include "../cpu/batch.h"
#include "../torch/chain.h"
#include "../torch/ops.h"
#include "../torch/update.h"

namespace {

PyObject* build_info(PyObject*, PyObject*) {
  return Py_BuildValue("{s:s,s:s,s:s,s:O}", "torch_built", TORCH_VERSION, "compiler", __VERSION__, "cpu_capability",
                       fedasd::cpu::kernels().name, "cuda_architectures", Py_None);
}

PyObject* select_cpu_capability(PyObject*, PyObject* args) {
  const char* name = nullptr;
  if (!PyArg_ParseTuple(args, "s", &name)) return nullptr;
  return PyBool_FromLong(fedasd::cpu::select_kernels(name));
}

// The error that Python code raised while train_clients asked it: torch's dispatcher would lose it.
struct Pending {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
};
thread_local Pending pending;

bool ask(PyObject* stop) {
  const PyGILState_STATE gil = PyGILState_Ensure();
  PyObject* answer = PyErr_CheckSignals() == 0 ? PyObject_CallNoArgs(stop) : nullptr;
  const int truth = answer ? PyObject_IsTrue(answer) : -1;
  Py_XDECREF(answer);
  if (truth < 0) PyErr_Fetch(&pending.type, &pending.value, &pending.traceback);
  PyGILState_Release(gil);
  return truth != 0;
}

// Holds Python's function for as long as it is set.
struct Stop {
  PyObject* function;
  explicit Stop(PyObject* f) : function(Py_NewRef(f)) {}
  Stop(const Stop& other) : function(Py_NewRef(other.function)) {}
  Stop& operator=(const Stop&) = delete;
  ~Stop() {
    if (!Py_IsInitialized()) return;  // a thread that outlives Python
    const PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF(function);
    PyGILState_Release(gil);
  }
  bool operator()() const { return ask(function); }
};

PyObject* set_training_stop(PyObject*, PyObject* stop) {
  if (stop == Py_None) fedasd::training_stop() = nullptr;
  else fedasd::training_stop() = Stop(stop);
  Py_RETURN_NONE;
}

PyObject* raise_pending(PyObject*, PyObject*) {
  if (!pending.type) Py_RETURN_NONE;
  const Pending error = pending;
  pending = {};
  PyErr_Restore(error.type, error.value, error.traceback);
  return nullptr;
}

PyMethodDef methods[] = {
    {"build_info", build_info, METH_NOARGS, "How this library was built, and what it uses on this CPU."},
    {"select_cpu_capability", select_cpu_capability, METH_VARARGS,
     "Choose 'avx512', 'avx2' or 'generic'; False where this CPU does not have it."},
    {"set_training_stop", set_training_stop, METH_O,
     "A function without arguments that train_clients asks now and then: True ends it with an error; None: nobody."},
    {"raise_pending", raise_pending, METH_NOARGS, "Raises what that function raised in this thread, if it did."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_stable",
                          "Compiled kernels of fedasd_fast; the ops are in torch.ops.fedasd.",
                          -1,
                          methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

TORCH_LIBRARY_FRAGMENT(fedasd, m) {
  m.def("asd_objective" FEDASD_OBJECTIVE_SCHEMA " -> Tensor");
  m.def("asd_loss_and_grad" FEDASD_OBJECTIVE_SCHEMA " -> (Tensor loss, Tensor grad)");
  m.def("teacher_cache" FEDASD_CACHE_SCHEMA " -> (Tensor rows, Tensor constant, Tensor log_weight)");
  m.def("local_step_" FEDASD_STEP_SCHEMA);
  m.def("ascend_" FEDASD_ASCEND_SCHEMA);
  m.def("accumulate_" FEDASD_ACCUMULATE_SCHEMA);
}

PyMODINIT_FUNC PyInit__stable() { return PyModule_Create(&definition); }
