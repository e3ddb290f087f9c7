// One process of a cluster: its links to the others, and what it is asked and
// asks through them. Control is calls, each with one answer; steps are runs,
// each ordered by one frame and ended by one.
#ifndef SLUICE_DIST_CLUSTER_TASK_H_
#define SLUICE_DIST_CLUSTER_TASK_H_

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dist/cluster/message.h"
#include "dist/collective/hello.h"
#include "dist/collective/options.h"
#include "dist/rendezvous/link.h"
#include "dist/rendezvous/linked_rendezvous.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "graph/session/cluster.h"

namespace sluice::dist {

struct TaskOptions {
  std::string name;   // "/job:worker/task:1", of the cluster's only one
  std::string token;  // what tasks of this cluster know, and no other; not ""
  // A task that moves nothing and shows no sign of life for so long is gone.
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(10);
  Transport transport = Transport::kAuto;
  // Told of refusals, without a newline. May be empty.
  std::function<void(std::string_view)> note;
};

struct TaskAddress {
  std::string name, host;
  int port = 0;
};

// Thread-safe.
class Task final : public Link::Owner {
 public:
  using LinkPtr = std::shared_ptr<Link>;
  // What others ask for. Called by the threads of links; must not wait for what
  // they bring.
  class Service {
   public:
    virtual Result<Message> Called(const LinkPtr& from,
                                   const Message& message) = 0;
    // Answered by Task::SayRan.
    virtual void Ordered(const LinkPtr& from, const RunKey& run, uint64_t step,
                         const OrderBody& order) = 0;
    virtual void Aborted(const RunKey& run, const Status& status) = 0;
    virtual void Gone(const LinkPtr& link) = 0;

   protected:
    ~Service() = default;
  };

  // `service` may be null, must outlive it, and is not called any more when
  // Stop returns.
  Task(TaskOptions options, Service* service);
  ~Task();
  void Stop();

  const std::string& name() const { return options_.name; }
  const std::shared_ptr<LinkedRendezvous>& rendezvous() const {
    return rendezvous_;
  }
  // From now on others may connect, on the loopback alone. Port 0: one of the
  // system's choice; the port is returned.
  Result<int> Listen(int port);

  // The link to a task, made where there is none that lives.
  Result<LinkPtr> Reach(const TaskAddress& task, Deadline deadline);
  // The one that there is; null where there is none, or it has ended.
  LinkPtr Find(const std::string& name) const;
  // Waits for the answer; the error is the other's, with its name, or says that
  // it is gone.
  Result<Message> Call(const LinkPtr& to, const Message& message);
  // As RemoteParts::Start has it.
  void Order(const LinkPtr& to, const RunKey& run, uint64_t step,
             const OrderBody& order, RunEnd& end);
  void SayRan(Link& to, const RunKey& run, const Status& status);

  Status Take(Link& link, const Frame& frame) override;
  void Ended(Link& link, const Status& why) override;

 private:
  struct Waiting {  // for an answer
    const Link* link;
    std::optional<Result<Message>> answer;
  };
  struct Half {  // of a link of which one stream has come
    std::string task, number;
    Socket socket;
  };
  struct Introduction {
    std::string task, number;
    bool to = false;  // from who connects
  };

  Result<LinkPtr> Connect(const TaskAddress& task, Deadline deadline);
  Status Introduce(Socket& socket, const Introduction& who, Deadline deadline);
  Result<Introduction> HearOf(Socket& socket, Deadline deadline);
  Result<LinkPtr> Join(std::string peer, Socket to, Socket from, int rank,
                       Deadline deadline);
  void Admit();
  Status AdmitOne(Guest guest);
  LinkPtr PointerTo(const Link& link) const;
  Result<std::vector<std::byte>> Payload(Link& link, const Frame& frame);
  Status TakeCall(Link& link, const Frame& frame);
  Status TakeAnswer(Link& link, const Frame& frame);
  Status TakeOrder(Link& link, const Frame& frame);
  Status TakeRan(Link& link, const Frame& frame);

  const TaskOptions options_;
  Service* const service_;
  std::shared_ptr<LinkedRendezvous> rendezvous_;
  std::optional<Door> door_;
  std::vector<Half> halves_;  // of the thread that admits
  std::thread admits_;

  Mutex connect_mutex_;  // one connection at a time, and never two to a task
  mutable Mutex mutex_;
  CondVar answered_;
  bool stop_ GUARDED_BY(mutex_) = false;
  // All that there were: who ends a link is its own thread.
  std::vector<LinkPtr> links_ GUARDED_BY(mutex_);
  uint64_t last_call_ GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Waiting> calls_ GUARDED_BY(mutex_);
  using Run = std::pair<const Link*, uint64_t>;
  std::map<Run, RunEnd*> runs_ GUARDED_BY(mutex_);
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_CLUSTER_TASK_H_
