// What a session gives the tasks of a cluster: their parts, with all that says
// how these compute; here a double takes it down.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/local_rendezvous.h"
#include "graph/builder.h"
#include "graph/compile/extract.h"
#include "graph/compile/step_part.h"
#include "graph/session/cluster.h"
#include "graph/session/session.h"
#include "tests/support/described.h"
#include "tests/support/error_text.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ErrorOf;

struct Notes {
  std::vector<StepPart> parts;
  std::vector<RunOrder> orders;
  std::vector<Status> released;
  Status end;  // of runs
  uint64_t generation = 1;
};

// All runs end at once.
class NotingParts final : public RemoteParts {
 public:
  explicit NotingParts(Notes& notes) : notes_(notes) {}
  void Start(const RunOrder& order, RunEnd& end) override {
    notes_.orders.push_back(order);
    end.Ended(notes_.end);
  }
  void Release(const RunKey&, const Status& status) override {
    notes_.released.push_back(status);
  }

 private:
  Notes& notes_;
};

class NotingSession final : public ClusterSession {
 public:
  NotingSession(Notes& notes, std::vector<std::string> devices)
      : notes_(notes), devices_(std::move(devices)) {}
  std::shared_ptr<Rendezvous> rendezvous() override { return rendezvous_; }
  Result<uint64_t> Connect() override { return notes_.generation; }
  std::vector<std::string> Descriptions() const override {
    std::vector<std::string> texts;
    for (const DeviceDescription& one : testing::Described(devices_)) {
      texts.push_back(one.ToText());
    }
    return texts;
  }
  Result<std::unique_ptr<RemoteParts>> Register(
      const std::string& device,
      const std::vector<const StepPart*>& parts) override {
    for (const StepPart* whole : parts) {
      SLUICE_ASSIGN_OR_RETURN(StepPart part, ParsePart(PrintPart(*whole)));
      CHECK(TaskOf(part.device) == TaskOf(device));
      notes_.parts.push_back(std::move(part));
    }
    return std::unique_ptr<RemoteParts>(std::make_unique<NotingParts>(notes_));
  }
  Result<Tensor> Read(const std::string&, const std::string&) override {
    return Unimplemented("the double has no values");
  }
  Status Write(const std::string&, const std::string&, const Tensor&) override {
    return {};
  }
  Result<bool> IsInitialized(const std::string&, const std::string&) override {
    return true;
  }

 private:
  Notes& notes_;
  const std::vector<std::string> devices_;
  const std::shared_ptr<Rendezvous> rendezvous_ =
      std::make_shared<LocalRendezvous>();
};

class NotingCluster final : public Cluster {
 public:
  explicit NotingCluster(Notes& notes) : notes_(notes) {}
  Result<std::unique_ptr<ClusterSession>> Open(
      const Request& request) override {
    return std::unique_ptr<ClusterSession>(
        std::make_unique<NotingSession>(notes_, request.devices));
  }
  Result<std::string> Ask(const std::string&, const std::string&) override {
    return Unimplemented("it answers no questions");
  }

 private:
  Notes& notes_;
};

const std::string kOne = "/job:worker/task:0/cpu:0";
const std::string kOther = "/job:worker/task:1/cpu:0";

// Variables of two tasks, of which nothing comes back.
struct Updates {
  Graph graph;
  Output v, w;
  std::vector<Operation> both;

  Updates() {
    {
      const DeviceScope there(graph, kOne);
      v = graph.Variable("v", Zeros({4, 4}));
      both.push_back(Assign(v, MatMul(v, v)));
    }
    const DeviceScope there(graph, kOther);
    w = graph.Variable("w", Zeros({2}));
    both.push_back(AssignAdd(w, graph.Constant(Tensor(DType::kFloat32, {2}))));
  }
  SessionOptions Options(Notes& notes) const {
    SessionOptions options;
    options.devices = {"/cpu:0", kOne, kOther};
    options.cluster = std::make_shared<NotingCluster>(notes);
    return options;
  }
};

TEST_CASE("how a step computes travels with each of its parts") {
  for (const bool deterministic : {false, true}) {
    for (const ExecutorMode executor :
         {ExecutorMode::kAuto, ExecutorMode::kSerial, ExecutorMode::kDataflow,
          ExecutorMode::kChecked}) {
      for (const Precision precision :
           {Precision::kFloat32, Precision::kTf32, Precision::kBFloat16}) {
        Notes notes;
        const Updates updates;
        SessionOptions options = updates.Options(notes);
        options.deterministic = deterministic;
        options.executor = executor;
        options.precision = precision;
        options.seed = 70 + static_cast<uint64_t>(executor);
        Session session(updates.graph, options);
        session.Prepare({}, {}, updates.both);
        REQUIRE(notes.parts.size() == 2);
        for (const StepPart& part : notes.parts) {
          CHECK(part.settings.deterministic == deterministic);
          CHECK(part.settings.executor == executor);
          CHECK(part.settings.precision == precision);
          CHECK(part.settings.seed == options.seed);
          CHECK(FeedTypes(*part.graph)->empty());
          CHECK(FetchTypes(*part.graph)->empty());
        }
      }
    }
  }
}

TEST_CASE("each run has its step, and what failed is said when it is over") {
  Notes notes;
  const Updates updates;
  Session session(updates.graph, updates.Options(notes));
  PreparedStep step = session.Prepare({}, {}, updates.both);
  session.set_step(41);
  step.Run({}, {});
  step.Run({}, {});
  REQUIRE(notes.orders.size() == 4);
  CHECK(notes.orders[0].key == notes.orders[1].key);
  CHECK_FALSE(notes.orders[1].key == notes.orders[2].key);
  CHECK(notes.orders[0].step == 41);
  CHECK(notes.orders[3].step == 42);
  notes.end = Unavailable("task 1 has gone");
  CHECK(Contains(ErrorOf([&] { step.Run({}, {}); }), "task 1 has gone"));
  REQUIRE(notes.released.size() == 6);
  CHECK(notes.released[0].ok());
  CHECK(notes.released[5].code() == Code::kUnavailable);
  notes.end = {};
  step.Run({}, {});
  CHECK(notes.orders.back().step == 43);
}

TEST_CASE("parts are registered once, and again for a task that came back") {
  Notes notes;
  const Updates updates;
  Session session(updates.graph, updates.Options(notes));
  session.Run({}, updates.both[0]);
  session.Run({}, updates.both[0]);
  CHECK(notes.parts.size() == 1);
  ++notes.generation;
  session.Run({}, updates.both[0]);
  CHECK(notes.parts.size() == 2);
}

TEST_CASE("what a session over several tasks cannot do it says") {
  Notes notes;
  const Updates updates;
  Session session(updates.graph, updates.Options(notes));
  CHECK(Contains(ErrorOf([&] { session.Freeze(); }), "cannot be frozen"));
  CHECK(Contains(ErrorOf([&] { session.FindNonFinite({}, {updates.v}); }),
                 "other tasks' devices"));
  SessionOptions own = updates.Options(notes);
  own.rendezvous = std::make_shared<LocalRendezvous>();
  CHECK(Contains(ErrorOf([&] { Session(updates.graph, own); }),
                 "takes the cluster's rendezvous"));
  own.rendezvous = nullptr;
  own.cluster = nullptr;
  CHECK(Contains(ErrorOf([&] { Session(updates.graph, own); }),
                 "another process's"));
}

// Each would be the whole of a group of one, without a word.
TEST_CASE("workers do not meet on another task's device") {
  Notes notes;
  const Updates updates;
  Graph graph;
  const DeviceScope there(graph, kOne);
  const Output v = graph.Variable("v", Zeros({2}));
  const Output mean = AllReduce(v);
  const Output all = AllGather(v);
  Session session(graph, updates.Options(notes));
  for (const Output& met : {mean, all}) {
    CHECK(Contains(ErrorOf([&] { session.Run({}, met); }),
                   "devices of their own process alone"));
  }
}

}  // namespace
}  // namespace sluice
