// A generated checkpoint as a Hugging Face folder.
#pragma once

#include <filesystem>

#include "base/function_ref.h"
#include "synth/synth_weights.h"

namespace bolide {

inline constexpr uint64_t kShardBytesMax = 4'000'000'000;

struct SynthWritten {
  int64_t tensors = 0;
  int files = 0;       // of weights
  uint64_t bytes = 0;  // of weights
};
// Bytes of tensors that are written, and all that will be.
using SynthProgress = FunctionRef<void(uint64_t done, uint64_t total)>;

// Writes the request in the type that its own has in folders (SynthType::in_folders): tokenizer.json, safetensors files
// of at most `shard_bytes_max` (a single larger tensor has its own), their index if they are several, and config.json
// last: a folder without it is unfinished. Errors: kInvalid (the folder is there and not empty, or no folder has the
// type), kUnavailable (too little space), kNotFound (no folder to make it in). What was written before an error is
// removed.
Result<SynthWritten> write_synth_folder(const SynthRequest& wanted, const std::filesystem::path& folder, int threads,
                                        const SynthProgress* progress = nullptr,
                                        uint64_t shard_bytes_max = kShardBytesMax);

}  // namespace bolide
