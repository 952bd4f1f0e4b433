// ONNX model > Graph of general ops. Functions are expanded, subgraphs become bodies, initialisers constants.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/onnx_file.h"
#include "ir/graph.h"
#include "ir/op_def.h"

namespace bolide {

struct OnnxProgram {
  struct Port {
    std::string name;
    OnnxType type;  // its texts are views of the file
  };
  std::shared_ptr<const void> file;   // what types and constants are views of
  std::vector<Port> inputs, outputs;  // in the order of the graph's
  Graph graph;
  std::vector<std::pair<std::string, int64_t>> opsets;
  std::string producer;
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Errors name the file, the node and what is wrong: kUnsupported for an operator that there is no row for.
// `added`: ops that go before all others of their names, functions of the file too; they must outlive the program.
Result<OnnxProgram> open_onnx(const std::filesystem::path& path, std::span<const OpDef> added = {});
// The same of bytes, which `owner` keeps; external data is looked for in `folder` (empty: nowhere).
Result<OnnxProgram> import_onnx(Bytes file, std::shared_ptr<const void> owner, const std::filesystem::path& folder,
                                const std::string& label, std::span<const OpDef> added = {});

}  // namespace bolide
