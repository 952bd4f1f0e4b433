// CudaEvent: shared by the device, which makes events, and the stream, which sets them. For device/cuda only.
#pragma once

#include <memory>

#include "device/cuda/cuda_stream.h"

struct CUevent_st;

namespace bolide {

class CudaEvent final : public Event {
 public:
  CudaEvent(std::shared_ptr<CudaState> state, CUevent_st* event) : state_(std::move(state)), event_(event) {}
  CudaEvent(const CudaEvent&) = delete;
  ~CudaEvent() override;
  Result<> synchronize() override;
  Result<double> seconds_since(const Event& earlier) const override;
  CUevent_st* handle() const { return event_; }

 private:
  std::shared_ptr<CudaState> state_;
  CUevent_st* event_;
};

}  // namespace bolide
