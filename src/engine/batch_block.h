// BatchBlock: the arrays of a step, one behind the other in one block, so that a device gets them in one copy. Where
// each array lies depends on the sizes alone: captured work finds the arrays of its sizes at the same addresses.
//
// Thread rules: one thread, the runner's.
#pragma once

#include <array>
#include <memory>

#include "device/device.h"
#include "kernels/batch.h"

namespace bolide {

class BatchBlock {
 public:
  struct Room {
    SymbolValues sizes;              // the largest step
    int32_t block_table_stride = 0;  // blocks of the longest sequence
  };
  // Where the host writes a step. Lengths as BatchInputs has them, for the sizes that begin() was given.
  struct Arrays {
    int32_t* ids;
    int32_t* positions;
    int32_t* rows;
    int32_t* cu_tokens;
    int32_t* context;
    int32_t* rope_length;
    int32_t* block_table;
    int32_t* counts;
    int64_t* slots;
    SamplingRow* sampling;
  };

  // `twin`: kernels read a copy in memory of the device. Without: they read the block itself.
  static Result<BatchBlock> make(Device& device, const Room& room, bool twin);

  // Arrays for the next step, with what earlier steps left in them. Waits until the copy that last read them has ended:
  // the blocks of two steps are in use at once.
  Result<Arrays> begin(const SymbolValues& sizes);
  // Enqueues the copy, if there is a twin, and points `batch` to where kernels read; batch.sizes are those of begin().
  Result<> send(Stream& stream, BatchInputs& batch);

 private:
  BatchBlock() = default;

  struct Half {
    Buffer memory;
    std::unique_ptr<Event> copied;
  };

  Room room_;
  std::array<Half, 2> halves_;
  size_t now_ = 0;
  SymbolValues sizes_;
  bool twin_ = false;
  Buffer twin_memory_;
};

// Makes `arrays`, filled for the sizes `real`, a step of the sizes `padded`: every padding token is a sequence of its
// own. Only steps in which every sequence has one token can be padded, so all three sizes must grow by as many.
void pad(const BatchBlock::Arrays& arrays, const SymbolValues& real, const SymbolValues& padded,
         int32_t block_table_stride);

}  // namespace bolide
