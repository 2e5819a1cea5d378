// The Python module fedasd_fast._C.  Importing it registers the ops.  It has build information, and calls of the ops
// that are faster than torch.ops: small federated batches spend more time in argument parsing than in the kernel, so
// positional arguments are unpacked one by one and the dispatcher is called without boxing.  Autograd, fake tensors,
// vmap and every other dispatch rule are the same in both calls.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/version.h>

#include <string>
#include <vector>

#include "../cpu/batch.h"
#include "chain.h"
#include "op_handle.h"
#include "ops.h"
#include "random.h"
#include "update.h"

namespace {

// Converts a positional argument to the type of the op's parameter; returns null, or what was expected instead.
const char* read(PyObject* object, at::Tensor& value) {
  if (!THPVariable_Check(object)) return "a torch.Tensor";
  value = THPVariable_Unpack(object);
  return nullptr;
}
// The Python error that is set says less than the argument's name and what is expected of it.  An interrupt stays.
const char* instead_of_error(const char* expected) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) throw python_error();
  PyErr_Clear();
  return expected;
}
const char* read(PyObject* object, double& value) {
  value = PyFloat_AsDouble(object);
  return value == -1.0 && PyErr_Occurred() ? instead_of_error("a number") : nullptr;
}
template <class T>
const char* read(PyObject* object, std::optional<T>& value) {
  return object == Py_None ? nullptr : read(object, value.emplace());
}
const char* read(PyObject* object, int64_t& value) {
  value = PyLong_AsLongLong(object);
  return value == -1 && PyErr_Occurred() ? instead_of_error("an integer of at most 64 bits") : nullptr;
}
template <class T>
const char* read(PyObject* object, std::vector<T>& value) {
  constexpr const char* expected = std::is_same_v<T, double> ? "a list of numbers" : "a list of integers";
  const auto items = pybind11::reinterpret_steal<pybind11::object>(PySequence_Fast(object, expected));
  if (!items) return instead_of_error(expected);
  value.resize(size_t(PySequence_Fast_GET_SIZE(items.ptr())));
  for (size_t i = 0; i < value.size(); ++i)
    if (read(PySequence_Fast_GET_ITEM(items.ptr(), Py_ssize_t(i)), value[i])) return expected;
  return nullptr;
}
const char* read(PyObject* object, bool& value) {
  const int truth = PyObject_IsTrue(object);
  value = truth > 0;
  return truth < 0 ? instead_of_error("True or False") : nullptr;
}
const char* read(PyObject* object, std::string_view& value) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &size) : nullptr;
  if (!text) return PyErr_Occurred() ? instead_of_error("a str") : "a str";
  value = {text, size_t(size)};
  return nullptr;
}

// The kernels take dense memory; the dispatcher's refusal of other layouts would not name the argument.
template <class T>
void check_layout(PyObject*, const T&, const std::string&) {}
void check_layout(PyObject* object, const at::Tensor& value, const std::string& name) {
  if (value.layout() == at::kStrided) return;
  const std::string layout = pybind11::str(pybind11::handle(object).attr("layout"));
  TORCH_CHECK_VALUE(false, name, " has layout ", layout, "; expected a dense one: call .to_dense()");
}
void check_layout(PyObject* object, const std::optional<at::Tensor>& value, const std::string& name) {
  if (value) check_layout(object, *value, name);
}

template <class T>
void read(PyObject* object, T& value, const c10::Argument& argument) {
  if (const char* expected = read(object, value)) {
    const std::string type = Py_TYPE(object)->tp_name;  // of a class of an extension: with its module
    TORCH_CHECK_TYPE(false, argument.name(), " is a ", type.substr(type.rfind('.') + 1), "; expected ", expected);
  }
  check_layout(object, value, argument.name());
}

PyObject* wrap(const at::Tensor& t) { return THPVariable_Wrap(t); }
template <class... Tensors>
PyObject* wrap(const std::tuple<Tensors...>& tensors) {
  auto own = [](const at::Tensor& t) { return pybind11::reinterpret_steal<pybind11::object>(wrap(t)); };
  return std::apply([&](const auto&... t) { return PyTuple_Pack(sizeof...(t), own(t).ptr()...); }, tensors);
}

// The type that holds an argument while the op runs.
template <class Parameter>
struct Kept {
  using type = std::decay_t<Parameter>;
};
template <class T>
struct Kept<at::ArrayRef<T>> {
  using type = std::vector<T>;
};

template <class Result, class... Parameters>
PyObject* call(const c10::TypedOperatorHandle<Result(Parameters...)>& op, PyObject* const* args, Py_ssize_t count) {
  TORCH_CHECK_TYPE(count == Py_ssize_t(sizeof...(Parameters)), "expected ", sizeof...(Parameters), " arguments, got ",
                   count);
  std::tuple<typename Kept<Parameters>::type...> values;
  const c10::Argument* argument = op.schema().arguments().data();
  std::apply([&](auto&... value) { (read(*args++, value, *argument++), ...); }, values);
  auto run = [&] {
    pybind11::gil_scoped_release no_gil;
    return std::apply([&](const auto&... value) { return op.call(value...); }, values);
  };
  if constexpr (std::is_void_v<Result>) {
    run();
    Py_RETURN_NONE;
  } else {
    return wrap(run());
  }
}

template <class Op>
PyObject* fast_call(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  return call(fedasd::op_handle<Op>(), args, count);
  END_HANDLE_TH_ERRORS
}

// A Python function with the op's own name.
template <class Op>
PyMethodDef method() {
  constexpr size_t kNamespace = sizeof("fedasd::") - 1;
  return {Op::name + kNamespace, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(fast_call<Op>)),
          METH_FASTCALL, "The op of this name in torch.ops.fedasd; positional arguments only."};
}

PyMethodDef fast_calls[] = {method<fedasd::AsdObjectiveOp>(), method<fedasd::AsdLossAndGradOp>(),
                            method<fedasd::LocalStepOp>(),    method<fedasd::AscendOp>(),
                            method<fedasd::AccumulateOp>(),   method<fedasd::TrainClientsOp>(),
                            {nullptr, nullptr, 0, nullptr}};

// While Python's function `stop` is set, calls of train_clients from this thread ask it some twenty times a second, and
// give signal handlers, which are Python code, their turn: an interrupt need not wait for the end of a long call.
void set_training_stop(const pybind11::object& stop) {
  if (stop.is_none()) {
    fedasd::training_stop() = nullptr;
    return;
  }
  fedasd::training_stop() = [stop] {
    const pybind11::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) {
      python_error error;
      error.persist();  // it is thrown on after the GIL is released
      throw error;
    }
    return stop().cast<bool>();
  };
}

pybind11::dict build_info() {
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
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "Compiled kernels of fedasd_fast; the ops are in torch.ops.fedasd.";
  m.def("build_info", build_info, "How this library was built, and what it uses on this CPU.");
  m.def("select_cpu_capability", [](const std::string& name) { return fedasd::cpu::select_kernels(name.c_str()); },
        pybind11::arg("name"), "Choose 'avx512', 'avx2' or 'generic'; False where this CPU does not have it.");
  fedasd::define_random(m);
  m.def("set_training_stop", set_training_stop, pybind11::arg("stop"),
        "A function without arguments that train_clients asks now and then: True ends it with an error; None: nobody.");
  m.def("why_not_trained_on_gpu",
        [](const std::vector<int64_t>& layers, int64_t batch_size, bool f64, int64_t limit) {
    return fedasd::why_not_trained_on_gpu(layers, batch_size, f64, limit);
  }, pybind11::arg("layers"), pybind11::arg("batch_size"), pybind11::arg("f64"), pybind11::arg("limit"),
        "Why train_clients cannot train such clients on a GPU whose blocks have `limit` bytes of shared memory; empty: "
        "it can.");
  if (PyModule_AddFunctions(m.ptr(), fast_calls) != 0) throw pybind11::error_already_set();
}
