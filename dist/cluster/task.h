// One process of a cluster: its links to the others, and what it is asked and
// asks through them. Control is calls, each with one answer; steps are runs,
// each ordered by one frame and ended by one.
#ifndef SLUICE_DIST_CLUSTER_TASK_H_
#define SLUICE_DIST_CLUSTER_TASK_H_

#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/cluster/introduction.h"
#include "dist/cluster/message.h"
#include "dist/cluster/options.h"
#include "dist/collective/hello.h"
#include "dist/net/tls.h"
#include "dist/rendezvous/link.h"
#include "dist/rendezvous/linked_rendezvous.h"
#include "engine/status.h"
#include "engine/thread_annotations.h"
#include "graph/session/cluster.h"

namespace sluice::dist {

// The name of the task that a certificate is of.
std::string TaskNameOf(const Identity& identity);

// Thread-safe.
class Task final : public Link::Owner {
 public:
  using LinkPtr = std::shared_ptr<Link>;
  // Answers what other tasks ask for. Called by the threads of links; must not
  // wait for what these threads bring.
  class Service {
   public:
    virtual Result<Message> Called(const LinkPtr& from,
                                   const Message& message) = 0;
    // A run is ordered; its end is answered by Task::SayRan.
    virtual void Ordered(const LinkPtr& from, const RunKey& run, uint64_t step,
                         const OrderBody& order) = 0;
    virtual void Aborted(const RunKey& run, const Status& status) = 0;
    // The task that a link is to has reached this one by it, once or again.
    virtual void Came(const Link& link) = 0;
    virtual void Gone(const LinkPtr& link) = 0;

   protected:
    ~Service() = default;
  };

  // The TLS context of a task's options: null where these have no credentials.
  // An error where the credentials are not the task's own, or other options are
  // wrong.
  static Result<std::shared_ptr<const Tls>> TlsOf(const TaskOptions& options);
  // `tls` is TlsOf's. `service` may be null, must outlive it, and is not called
  // any more when Stop returns.
  Task(TaskOptions options, std::shared_ptr<const Tls> tls, Service* service);
  ~Task();
  void Stop();

  const std::string& name() const { return options_.name; }
  const std::shared_ptr<LinkedRendezvous>& rendezvous() const {
    return rendezvous_;
  }
  // Lets others connect from now on. Returns the port.
  Result<int> Listen(Listener listener);

  // The link to a task, made where there is none that lives. Waits for one that
  // is not there yet, and says so; without `awaits_listener` that is gone.
  Result<LinkPtr> Reach(const ClusterTask& task, Deadline deadline,
                        bool awaits_listener = true);
  // The link to a task that has not ended; null where there is none.
  LinkPtr Find(const std::string& name) const;
  // Why a task that was there is gone and not there again; ok: all are there.
  // To a task with a service others come and go, each master under a name of
  // its own: it does not remember them when it has given back their links.
  Status Lost() const;
  Status Lost(const std::string& name) const;  // that of one
  // As Lost, but each is asked whether it is there: of a run that has failed
  // others may hear sooner than of why, which is the end of a link not theirs.
  // Waits for the answers, or until the links of those that owe one have ended.
  Status AskLost();
  void ForgetLost(const std::string& name);
  // Asks a task and waits for the answer; an error is the other task's, with
  // its name, or says that it is gone.
  Result<Message> Call(const LinkPtr& to, const Message& message);
  // Call in two parts, so that several calls may be under way: each must be
  // waited for once.
  uint64_t StartCall(const LinkPtr& to, const Message& message);
  Result<Message> WaitCall(const LinkPtr& to, uint64_t call);
  // Orders a run: see RemoteParts::Start.
  void Order(const LinkPtr& to, const RunKey& run, uint64_t step,
             const OrderBody& order, RunEnd& end);
  void SayRan(Link& to, const RunKey& run, const Status& status);

  Status Take(Link& link, const Frame& frame) override;
  void Ended(Link& link, const Status& why) override;
  void Beat(Link& link) override;

 private:
  struct Waiting {  // for an answer
    const Link* link;
    std::optional<Result<Message>> answer;
  };
  struct Half {  // of a link of which one stream has come
    std::string task, number;
    Socket socket;
    Deadline until;
  };
  // A guest that is being let in, on a thread of its own, so that one that
  // stands still holds up nobody else.
  struct Admission {
    std::string who;
    std::future<Status> done;
  };

  Result<LinkPtr> Connect(const ClusterTask& task, Deadline deadline,
                          bool awaits_listener);
  Result<Socket> Dial(const ClusterTask& task, Deadline deadline,
                      bool awaits_listener);
  Status CheckReached(const Socket& socket, const std::string& name) const;
  Status Introduce(Socket& socket, const Introduction& who, Deadline deadline);
  Result<Introduction> HearOf(Socket& socket, Deadline deadline);
  Result<LinkPtr> Join(std::string peer, Socket to, Socket from, int rank,
                       Deadline deadline);
  void Admit();
  void Begin(Guest guest);
  void Reap(std::chrono::milliseconds patience);
  Status AdmitOne(Guest guest) EXCLUDES(mutex_);
  // The first stream of the task that has sent the second, which may be heard
  // first.
  Result<Socket> HalfOf(const Introduction& who, Deadline deadline)
      EXCLUDES(mutex_);
  LinkPtr PointerTo(const Link& link) const;
  LinkPtr Living(const std::string& name) const REQUIRES(mutex_);  // see Find
  void BuryEnded() EXCLUDES(mutex_);
  Status Broken(const std::string& name) const REQUIRES(mutex_);
  // `refused`: why there was no room for it, so that it was dropped.
  Status Payload(Link& link, const Frame& frame, std::vector<std::byte>* bytes,
                 Status* refused);
  Status TakeCall(Link& link, const Frame& frame);
  Status TakeAnswer(Link& link, const Frame& frame);
  Status TakeOrder(Link& link, const Frame& frame);
  Status TakeRan(Link& link, const Frame& frame);

  const TaskOptions options_;
  const std::shared_ptr<const Tls> tls_;  // null: without encryption
  Service* const service_;
  std::shared_ptr<LinkedRendezvous> rendezvous_;
  // Used by the thread that admits alone.
  std::optional<Door> door_;
  std::vector<Admission> admissions_;
  std::thread admits_;

  Mutex connect_mutex_;  // one connection at a time, and never two to a task
  mutable Mutex mutex_;
  CondVar answered_, half_came_;
  std::vector<Half> halves_ GUARDED_BY(mutex_);
  bool stop_ GUARDED_BY(mutex_) = false;
  std::vector<LinkPtr> links_ GUARDED_BY(mutex_);
  // Links that have ended and told so by the last call of their own thread:
  // another thread must join that one.
  std::vector<LinkPtr> ended_ GUARDED_BY(mutex_);
  // By name; of a task without a service, whose others are the same for ever.
  std::map<std::string, Status> lost_ GUARDED_BY(mutex_);
  uint64_t last_call_ GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Waiting> calls_ GUARDED_BY(mutex_);
  using Run = std::pair<const Link*, uint64_t>;
  std::map<Run, RunEnd*> runs_ GUARDED_BY(mutex_);
};

}  // namespace sluice::dist

#endif  // SLUICE_DIST_CLUSTER_TASK_H_
