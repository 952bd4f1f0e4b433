// Executor: runs plans over one arena. Outside kernels a step costs a pointer read and a call.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/function_ref.h"
#include "plan/plan.h"

namespace bolide {

// Sees each step of a run: profile, dumps, calibration. Null in production. With a device whose work runs later, the
// seconds are the device's, and what the steps wrote is still there only if the observer asks for values.
class StepObserver {
 public:
  enum class Sees : uint8_t {
    kTimes,     // called for all steps once all have run; the first step of a group has the seconds of all, others 0
    kValues,    // called after each step, run by itself; the device waits meanwhile, and the times count that wait
    kLaunches,  // called for the first step of each group when it has been launched and may not have run yet; no times
    // Called once, with step 0 and the time of the whole plan as it runs in production, replayed where it is. It runs
    // twice, which changes no result: the second time the device need not wait for the host, and that one is timed. A
    // plan that is to be replayed and was not captured yet is run unseen.
    kWhole,
  };
  template <class F>
    requires(std::is_invocable_v<F&, const Plan&, size_t, const Launch&, double>)
  StepObserver(F& see, Sees sees = Sees::kTimes) : see_(see), sees_(sees) {}  // NOLINT(google-explicit-constructor)

  void operator()(const Plan& plan, size_t step, const Launch& launch, double seconds) const {
    see_(plan, step, launch, seconds);
  }
  Sees sees() const { return sees_; }

 private:
  FunctionRef<void(const Plan&, size_t step, const Launch&, double seconds)> see_;
  Sees sees_;
};

class Executor {
 public:
  // Activations in host memory, steps timed by the host's clock.
  Executor() = default;
  // Activations in memory of the device, steps timed by its events. The device must outlive the executor.
  explicit Executor(Device& device) : device_(&device) {}

  // Makes the arena at least so large: what is replayed then need not be captured again for a larger plan's sake.
  // Waits for the stream if the arena has to move.
  Result<> reserve(size_t arena_bytes, Stream& stream);

  // One execution of the plan for this batch, whose sizes are at most the plan's bucket. Grows the arena if the plan
  // needs more than any before; binds operands again only when plan or sizes changed. `batch` and what it points to
  // must stay valid until the work has run. Error kCancelled: `cancel` was set before a step of the plan; those before
  // it have run. Without an observer only.
  Result<> run(const Plan& plan, const Graph& graph, const BatchInputs& batch, Stream& stream,
               const StepObserver* observer = nullptr, const std::atomic<bool>* cancel = nullptr);

  // The same for batches that come again and again at the same addresses with the same sizes: the first replay launches
  // the plan's steps, the second captures them (Stream::capture), and those that follow launch what was captured. A
  // plan that cannot be captured is run. An observer sees the whole (StepObserver::Sees::kWhole).
  Result<> replay(const Plan& plan, const Graph& graph, const BatchInputs& batch, Stream& stream,
                  const StepObserver* observer = nullptr);

  // An output of the last run, valid until the next. The name must be one of the graph's outputs.
  TensorView output(std::string_view name) const;
  size_t arena_bytes() const { return arena_.size(); }
  // Plans that have been captured.
  int captured_count() const;

 private:
  struct InputView {
    size_t index;  // into views
    const int32_t* BatchInputs::* field;
  };
  // A plan with the addresses of one batch.
  struct Bound {
    const Plan* plan = nullptr;
    const Graph* graph = nullptr;
    SymbolValues sizes;
    BatchInputs batch;
    std::vector<TensorView> views;
    std::vector<InputView> inputs;
    std::vector<Launch> launches;
    std::vector<const Kernel*> kernels;  // of the launches
    int runs = 0;                        // replays with these addresses
    bool capturable = true;
    std::unique_ptr<Captured> captured;

    void set_batch(const BatchInputs& batch);
    Result<> launch(const StepGroup& group, Stream& stream) const;
    Result<> launch_all(Stream& stream, const std::atomic<bool>* cancel = nullptr) const;
  };

  void bind(Bound& bound, const Plan& plan, const Graph& graph, const SymbolValues& sizes) const;
  Result<> observe(const Bound& bound, Stream& stream, const StepObserver& observer);
  Result<> observe_whole(const Bound& bound, Stream& stream, const StepObserver& observer);
  Result<> observe_launches(const Bound& bound, Stream& stream, const StepObserver& observer);
  Result<> make_events(size_t count);

  Device* device_ = nullptr;
  Buffer arena_;
  std::unique_ptr<Bound> loose_;                            // of run
  std::map<const Plan*, std::unique_ptr<Bound>> replayed_;  // of replay
  const Bound* last_ = nullptr;
  std::vector<std::unique_ptr<Event>> events_;
};

}  // namespace bolide
