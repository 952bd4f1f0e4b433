// What Python's operators do with values. Errors: kInvalid, operands of the wrong types, overflow, division by zero.
#pragma once

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace bolide::jinja {

Result<Value> arithmetic(Heap& heap, Operator op, const Value& left, const Value& right);
Result<Value> negate(const Value& value);
Result<bool> compare(Heap& heap, Operator op, const Value& left, const Value& right);
Result<bool> equal(Heap& heap, const Value& left, const Value& right, int depth = 0);
Result<bool> less(Heap& heap, const Value& left, const Value& right, int depth = 0);
Result<bool> contains(Heap& heap, const Value& container, const Value& item);

// object.name and object[index]: undefined if there is no such thing, an error if the object is undefined.
Result<Value> attribute(Heap& heap, const Value& object, const Value& name);
Result<Value> item(Heap& heap, const Value& object, const Value& index);
// object[start:stop:step]; missing or None parts take their defaults.
Result<Value> slice(Heap& heap, const Value& object, const Value& start, const Value& stop, const Value& step);

// "text" % value, in jinja_format.cc
Result<Value> percent_format(Heap& heap, const Value& format, const Value& value);
// "text".format(...), in jinja_format.cc
Result<Value> brace_format(Heap& heap, const Value& format, const Args& args);

Error undefined_error(const Value& value);

}  // namespace bolide::jinja
