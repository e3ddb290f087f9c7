// Sockets by which processes of one host meet without an address, to give each
// other descriptors.
#ifndef SLUICE_DIST_NET_LOCAL_H_
#define SLUICE_DIST_NET_LOCAL_H_

#include <string>

#include "dist/net/descriptor.h"
#include "dist/net/socket.h"
#include "engine/status.h"
#include "engine/visibility.h"

namespace SLUICE_INTERNAL sluice {
namespace dist {

// 128 bits of the system's randomness in hexadecimal digits, or an error.
Result<std::string> RandomWord();

// Listens at a name of the abstract Unix domain, which has no file. Others can
// see the name: a peer that connects must show that it knows more. Processes of
// other network name spaces cannot connect.
Result<Listener> ListenLocally(const std::string& name);
// Connects to such a name without waiting. kUnavailable where nobody listens.
Result<Socket> ConnectLocally(const std::string& name);
// Admits a peer that has connected and sent the secret, both before the call:
// nothing is waited for, and peers that have not are sent away.
// kDeadlineExceeded where no peer has.
Result<Socket> AdmitLocally(Listener& listener, const std::string& secret);

// Sends one descriptor through such a socket (SCM_RIGHTS). The sender keeps it,
// too.
Status SendDescriptor(int descriptor, Socket& to, Deadline deadline);
// Receives one descriptor. kDataLoss where anything else comes.
Result<Descriptor> ReceiveDescriptor(Socket& from, Deadline deadline);

}  // namespace dist
}  // namespace sluice

#endif  // SLUICE_DIST_NET_LOCAL_H_
