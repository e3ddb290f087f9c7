// How processes of one host meet without an address, to give each other what
// only they can have.
#ifndef SLUICE_DIST_NET_LOCAL_H_
#define SLUICE_DIST_NET_LOCAL_H_

#include <string>

#include "dist/net/descriptor.h"
#include "dist/net/socket.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// Of the running system, the same for all its containers and for no other
// machine (/proc/sys/kernel/random/boot_id). Empty where it does not say.
std::string BootId();

// 128 bits of the system's randomness in hexadecimal digits, or an error.
Result<std::string> RandomWord();

// A place of a Unix domain's abstract name space, which has no file. Others can
// see its name: who connects has to show that he knows more. Processes of other
// network name spaces cannot connect.
Result<Listener> ListenLocally(const std::string& name);
// Does not wait. kUnavailable where nobody listens.
Result<Socket> ConnectLocally(const std::string& name);
// Who has connected and sent the secret, both before: nothing is waited for,
// and all who have not are sent away. kDeadlineExceeded where nobody has.
Result<Socket> AdmitLocally(Listener& listener, const std::string& secret);

// One descriptor through a socket of the above (SCM_RIGHTS). It stays the
// sender's too.
Status SendDescriptor(int descriptor, Socket& to, Deadline deadline);
// kDataLoss where anything else comes.
Result<Descriptor> ReceiveDescriptor(Socket& from, Deadline deadline);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_NET_LOCAL_H_
