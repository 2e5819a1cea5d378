// Calls a registered op through the dispatcher, without boxing its arguments.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace fedasd {

// `Op` holds the op's name and C++ signature (ops.h, update.h).  It is looked up once, at the first call.
template <class Op>
const c10::TypedOperatorHandle<typename Op::Signature>& op_handle() {
  static const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, "").template typed<typename Op::Signature>();
  return handle;
}

}  // namespace fedasd
