// torch's side of the bindings: needs pybind11's headers, so it is built once and not with every candidate.
#include <Python.h>
#include <torch/types.h>
#include <torch/csrc/autograd/python_variable.h>

extern "C" __attribute__((visibility("default"))) void* dice_unpack(PyObject* object) {
  return THPVariable_Check(object) ? THPVariable_Unpack(object).unsafeGetTensorImpl() : nullptr;
}

extern "C" __attribute__((visibility("default"))) PyObject* dice_wrap(void* impl) {
  using Pointer = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  return THPVariable_Wrap(at::Tensor(Pointer::reclaim(static_cast<c10::TensorImpl*>(impl))));
}
