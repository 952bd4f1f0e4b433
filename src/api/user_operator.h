// Operators that a program adds, as rows that the importer knows.
//
// Thread rules: immutable once made; moving keeps what rows point to.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "bolide/network.h"
#include "ir/op_def.h"

namespace bolide {

class UserOperators {
 public:
  UserOperators() = default;
  // kInvalid: one without a name or a function, of a version below 1, or two of one name and version.
  static Result<UserOperators> make(const std::vector<UserOperator>& operators);

  std::span<const OpDef> rows() const { return rows_; }

 private:
  std::shared_ptr<const std::vector<UserOperator>> operators_;  // what rows point to
  std::vector<OpDef> rows_;
};

}  // namespace bolide
