// Python to C++ and back for the functions that a source exports. Far less to compile than pybind11, since torch's part
// (wrap, unpack) is built once, in glue.cpp.
#pragma once

#include <limits>

#include "dice_host.h"

namespace dice {

struct BadArgument : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct PythonError {};  // a Python exception is set already

template <class T>
struct is_vector : std::false_type {};
template <class T>
struct is_vector<std::vector<T>> : std::true_type {};
template <class T>
struct is_optional : std::false_type {};
template <class T>
struct is_optional<std::optional<T>> : std::true_type {};
template <class T>
struct is_tuple : std::false_type {};
template <class... T>
struct is_tuple<std::tuple<T...>> : std::true_type {};
template <class A, class B>
struct is_tuple<std::pair<A, B>> : std::true_type {};
template <class T>
struct is_array_ref : std::false_type {};
template <class T>
struct is_array_ref<c10::ArrayRef<T>> : std::true_type {};
template <class>
inline constexpr bool dice_cannot_bind = false;

inline BadArgument expected(const char* what, PyObject* object) {
  return BadArgument(std::string("expected ") + what + ", got " + Py_TYPE(object)->tp_name);
}

template <class T>
T integer(PyObject* object) {
  PyObject* index = PyFloat_Check(object) ? nullptr : PyNumber_Index(object);
  if (!index) {
    PyErr_Clear();
    throw expected("an int", object);
  }
  bool fits;
  T result;
  if constexpr (std::is_unsigned_v<T>) {
    unsigned long long value = PyLong_AsUnsignedLongLong(index);
    fits = !PyErr_Occurred() && value <= std::numeric_limits<T>::max();
    result = static_cast<T>(value);
  } else {
    long long value = PyLong_AsLongLong(index);
    fits = !PyErr_Occurred() && value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
    result = static_cast<T>(value);
  }
  Py_DECREF(index);
  if (!fits) {
    PyErr_Clear();
    throw BadArgument("an int does not fit its parameter's type");
  }
  return result;
}

// The C++ value of a Python object; T without reference and cv.
template <class T>
T from_python(PyObject* object) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    auto* impl = static_cast<c10::TensorImpl*>(dice_table.unpack(object));
    if (!impl) throw expected("a Tensor", object);
    return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(impl));
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!PyBool_Check(object)) throw expected("a bool", object);
    return object == Py_True;
  } else if constexpr (std::is_integral_v<T>) {
    return integer<T>(object);
  } else if constexpr (std::is_floating_point_v<T>) {
    double value = PyFloat_AsDouble(object);
    if (value == -1.0 && PyErr_Occurred()) {
      PyErr_Clear();
      throw expected("a float", object);
    }
    return static_cast<T>(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &size) : nullptr;
    if (!text) throw expected("a str", object);
    return std::string(text, size_t(size));
  } else if constexpr (std::is_pointer_v<T>) {
    if (object == Py_None) return nullptr;
    return reinterpret_cast<T>(integer<unsigned long long>(object));
  } else if constexpr (is_optional<T>::value) {
    if (object == Py_None) return std::nullopt;
    return from_python<typename T::value_type>(object);
  } else if constexpr (is_vector<T>::value) {
    if (!PyList_Check(object) && !PyTuple_Check(object)) throw expected("a list", object);
    T values;
    for (Py_ssize_t i = 0, n = PySequence_Fast_GET_SIZE(object); i < n; ++i)
      values.push_back(from_python<typename T::value_type>(PySequence_Fast_GET_ITEM(object, i)));
    return values;
  } else {
    static_assert(dice_cannot_bind<T>, "dice_cannot_bind: a parameter type without a conversion");
  }
}

// What is kept while the function runs: a view's owner for views, the value otherwise.
template <class T>
struct Holder {
  using type = T;
};
template <class T>
struct Holder<c10::ArrayRef<T>> {
  using type = std::vector<T>;
};

template <class T>
PyObject* to_python(T&& value);

template <class Tuple, size_t... I>
PyObject* tuple_to_python(Tuple& values, std::index_sequence<I...>) {
  PyObject* result = PyTuple_New(sizeof...(I));
  if (!result) throw PythonError();
  (PyTuple_SET_ITEM(result, I, to_python(std::get<I>(values))), ...);
  return result;
}

template <class Given>
PyObject* to_python(Given&& value) {
  using T = std::remove_cv_t<std::remove_reference_t<Given>>;
  PyObject* result = nullptr;
  if constexpr (std::is_same_v<T, at::Tensor>) {
    if (!value.defined()) Py_RETURN_NONE;
    at::Tensor held = value;
    return dice_table.wrap(held.unsafeReleaseTensorImpl());
  } else if constexpr (std::is_same_v<T, bool>) {
    result = PyBool_FromLong(value);
  } else if constexpr (std::is_integral_v<T> && std::is_unsigned_v<T>) {
    result = PyLong_FromUnsignedLongLong(value);
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    result = PyLong_FromLongLong(static_cast<long long>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    result = PyFloat_FromDouble(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    result = PyUnicode_FromStringAndSize(value.data(), Py_ssize_t(value.size()));
  } else if constexpr (is_optional<T>::value) {
    if (!value) Py_RETURN_NONE;
    return to_python(*value);
  } else if constexpr (is_tuple<T>::value) {
    return tuple_to_python(value, std::make_index_sequence<std::tuple_size_v<T>>());
  } else if constexpr (is_vector<T>::value) {
    result = PyList_New(Py_ssize_t(value.size()));
    if (!result) throw PythonError();
    Py_ssize_t i = 0;
    for (auto&& item : value) {
      typename T::value_type held = item;
      PyList_SET_ITEM(result, i++, to_python(held));
    }
  } else {
    static_assert(dice_cannot_bind<T>, "dice_cannot_bind: a result type without a conversion");
  }
  if (!result) throw PythonError();
  return result;
}

template <class R, class... A, size_t... I>
PyObject* call(R (*function)(A...), [[maybe_unused]] PyObject* const* args, std::index_sequence<I...>) {
  std::tuple<typename Holder<std::remove_cv_t<std::remove_reference_t<A>>>::type...> values{
      from_python<typename Holder<std::remove_cv_t<std::remove_reference_t<A>>>::type>(args[I])...};
  if constexpr (std::is_void_v<R>) {
    function(static_cast<A>(std::get<I>(values))...);
    Py_RETURN_NONE;
  } else {
    auto result = function(static_cast<A>(std::get<I>(values))...);
    return to_python(result);
  }
}

template <class R, class... A>
PyObject* call(const char* name, R (*function)(A...), PyObject* const* args, Py_ssize_t count) {
  try {
    if (count != Py_ssize_t(sizeof...(A)))
      throw BadArgument("takes " + std::to_string(sizeof...(A)) + " arguments, got " + std::to_string(count));
    return call(function, args, std::index_sequence_for<A...>());
  } catch (const PythonError&) {
  } catch (const BadArgument& error) {
    PyErr_SetString(PyExc_TypeError, (std::string(name) + "(): " + error.what()).c_str());
  } catch (const c10::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an exception of unknown type");
  }
  return nullptr;
}

}  // namespace dice

#define DICE_FUNCTION(name)                                                                      \
  static PyObject* dice_py_##name(PyObject*, PyObject* const* args, Py_ssize_t count) {          \
    return ::dice::call(#name, &::name, args, count);                                            \
  }
#define DICE_METHOD(name) {#name, (PyCFunction)(void*)dice_py_##name, METH_FASTCALL, nullptr},
