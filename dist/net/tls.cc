#include "dist/net/tls.h"

#ifdef SLUICE_HAVE_TLS

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dist/net/openssl.h"

namespace sluice::dist {

struct Tls::Impl {
  openssl::Context context;
};

struct TlsSession::Impl {
  int descriptor = -1;  // the session's BIO has its address
  openssl::Session session;
  bool established = false;
  uint64_t sent = 0;        // with this key
  bool unfinished = false;  // a record of which the socket has not taken all
};

namespace {

// Several records at a read.
constexpr size_t kReadAhead = size_t{256} << 10;
// AES-GCM keeps what it promises for 2^24.5 records of one key (RFC 8446, 5.5).
constexpr uint64_t kKeyBytes = uint64_t{64} << 30;
constexpr char kOwn[] = "this process's certificate";  // in errors

// A socket as OpenSSL's own BIO would use it, but that no signal is raised
// where the peer is gone.
int SocketOf(BIO* bio) {
  return *static_cast<const int*>(BIO_get_data(bio));
}
bool Again(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}
int WriteBio(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t n =
      send(SocketOf(bio), data, static_cast<size_t>(size), MSG_NOSIGNAL);
  if (n < 0 && Again(errno)) BIO_set_retry_write(bio);
  return static_cast<int>(n);
}
int ReadBio(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t n = recv(SocketOf(bio), data, static_cast<size_t>(size), 0);
  if (n < 0 && Again(errno)) BIO_set_retry_read(bio);
  if (n == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(n);
}
long ControlBio(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) {
    return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  }
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD* SocketMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK,
                                    "sluice socket");
    BIO_meth_set_write(made, WriteBio);
    BIO_meth_set_read(made, ReadBio);
    BIO_meth_set_ctrl(made, ControlBio);
    return made;
  }();
  return method;
}

// The identity that a certificate names, if it names one and no other.
std::optional<Identity> IdentityOf(X509* certificate) {
  auto* const names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  std::optional<Identity> found;
  int count = 0;
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    const auto identity = ParseIdentity(
        {reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
         static_cast<size_t>(ASN1_STRING_length(uri))});
    if (!identity.ok()) continue;
    found = *identity;
    ++count;
  }
  GENERAL_NAMES_free(names);
  return count == 1 ? found : std::nullopt;
}

// All of a PEM text, one at least. Errors begin with `whose`.
Result<std::vector<openssl::Certificate>> CertificatesOf(
    const std::string& pem, const std::string& whose) {
  const openssl::Bio bio = openssl::Reading(pem);
  std::vector<openssl::Certificate> certificates;
  while (true) {
    openssl::Certificate certificate(
        PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (certificate == nullptr) break;
    certificates.push_back(std::move(certificate));
  }
  const bool whole =
      ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (whole && !certificates.empty()) {
    ERR_clear_error();  // that there is no more
    return certificates;
  }
  return InvalidArgument(whose + ": " + openssl::TakeError());
}

Status Trust(const std::string& pem, SSL_CTX* context) {
  const std::string whose = "the authority's certificate";
  SLUICE_ASSIGN_OR_RETURN(const auto all, CertificatesOf(pem, whose));
  for (const openssl::Certificate& certificate : all) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context),
                            certificate.get()) != 1) {
      return InvalidArgument(whose + ": " + openssl::TakeError());
    }
  }
  return {};
}

// A password would be asked for on the terminal.
int NoPassword(char*, int, int, void*) {
  return -1;
}

// The certificate, and behind it those that lie between it and the authority,
// which peers are sent with it.
Status UseOwn(const Credentials& credentials, SSL_CTX* context) {
  SLUICE_ASSIGN_OR_RETURN(const auto chain,
                          CertificatesOf(credentials.certificate, kOwn));
  bool used = SSL_CTX_use_certificate(context, chain[0].get()) == 1;
  for (size_t i = 1; i < chain.size(); ++i) {
    used = used && SSL_CTX_add1_chain_cert(context, chain[i].get()) == 1;
  }
  if (!used) {
    return InvalidArgument(fmt::format("{}: {}", kOwn, openssl::TakeError()));
  }
  const openssl::Bio text = openssl::Reading(credentials.key);
  const openssl::Key key(
      PEM_read_bio_PrivateKey(text.get(), nullptr, NoPassword, nullptr));
  if (key == nullptr || SSL_CTX_use_PrivateKey(context, key.get()) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return InvalidArgument("this process's key: " + openssl::TakeError());
  }
  return {};
}

// What its own authority says of a process's certificate: better here than by
// every peer.
Status CheckOwn(SSL_CTX* context) {
  STACK_OF(X509)* between = nullptr;
  SSL_CTX_get0_chain_certs(context, &between);
  X509_STORE_CTX* const check = X509_STORE_CTX_new();
  X509_STORE_CTX_init(check, SSL_CTX_get_cert_store(context),
                      SSL_CTX_get0_certificate(context), between);
  X509_STORE_CTX_set_depth(check, SSL_CTX_get_verify_depth(context));
  const bool good = X509_verify_cert(check) == 1;
  const std::string words =
      X509_verify_cert_error_string(X509_STORE_CTX_get_error(check));
  X509_STORE_CTX_free(check);
  ERR_clear_error();
  if (good) return {};
  return InvalidArgument(fmt::format("{}: {}", kOwn, words));
}

void Configure(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context,
                           "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                           "TLS_CHACHA20_POLY1305_SHA256");
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                     nullptr);
  // Every connection shows its certificate anew. Our frames say how long they
  // are, so that an end without a goodbye cuts nothing off unseen.
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kReadAhead);
  // A chain of a leaf, and what lies between it and a user's authority.
  SSL_CTX_set_verify_depth(context, 4);
}

}  // namespace

bool HasTls() {
  return true;
}

Tls::Tls() : impl_(std::make_unique<Impl>()) {}
Tls::~Tls() = default;

Result<std::shared_ptr<const Tls>> Tls::Create(const Credentials& credentials) {
  std::shared_ptr<Tls> tls(new Tls());
  tls->impl_->context.reset(SSL_CTX_new(TLS_method()));
  SSL_CTX* const context = tls->impl_->context.get();
  if (context == nullptr) return openssl::Failed("no TLS");
  Configure(context);
  SLUICE_RETURN_IF_ERROR(Trust(credentials.authority, context));
  SLUICE_RETURN_IF_ERROR(UseOwn(credentials, context));
  SLUICE_RETURN_IF_ERROR(CheckOwn(context));
  const std::optional<Identity> identity =
      IdentityOf(SSL_CTX_get0_certificate(context));
  if (!identity) {
    return InvalidArgument(
        "this process's certificate does not say who it is: it must name one "
        "URI:sluice://JOB/ROLE/RANK");
  }
  tls->identity_ = *identity;
  std::tm expires = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(SSL_CTX_get0_certificate(context)),
                      &expires) != 1) {
    return InvalidArgument("this process's certificate: " +
                           openssl::TakeError());
  }
  tls->expires_ = std::chrono::system_clock::from_time_t(timegm(&expires));
  return std::shared_ptr<const Tls>(std::move(tls));
}

TlsSession::TlsSession() : impl_(std::make_unique<Impl>()) {}
TlsSession::~TlsSession() = default;

Result<std::unique_ptr<TlsSession>> TlsSession::Create(const Tls& tls,
                                                       TlsSide side,
                                                       int descriptor) {
  std::unique_ptr<TlsSession> made(new TlsSession());
  const MutexLock lock(made->mutex_);
  made->own_ = tls.identity_;
  SSL* const session = SSL_new(tls.impl_->context.get());
  made->impl_->session.reset(session);
  BIO* const bio = BIO_new(SocketMethod());
  if (session == nullptr || bio == nullptr) {
    BIO_free(bio);
    return openssl::Failed("no TLS");
  }
  made->impl_->descriptor = descriptor;
  BIO_set_data(bio, &made->impl_->descriptor);
  BIO_set_init(bio, 1);
  SSL_set_bio(session, bio, bio);
  if (side == TlsSide::kConnects) {
    SSL_set_connect_state(session);
  } else {
    SSL_set_accept_state(session);
  }
  return made;
}

// Ok where it is only not yet possible.
Status TlsSession::Failure(int returned) {
  SSL* const session = impl_->session.get();
  const int system = errno;
  const int kind = SSL_get_error(session, returned);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return {};
  if (kind == SSL_ERROR_ZERO_RETURN) return Unavailable("closed");
  if (kind == SSL_ERROR_SYSCALL) {
    ERR_clear_error();
    if (system == 0 || system == EPIPE || system == ECONNRESET) {
      return Unavailable("closed");
    }
    return Unavailable(std::strerror(system));
  }
  const long verified = SSL_get_verify_result(session);
  std::string words = openssl::TakeError();
  if (verified != X509_V_OK) {
    words = std::string("its certificate: ") +
            X509_verify_cert_error_string(verified);
  }
  return Unavailable("TLS: " + words);
}

Status TlsSession::CheckPeer() {
  const openssl::Certificate certificate(
      SSL_get1_peer_certificate(impl_->session.get()));
  const std::optional<Identity> identity =
      certificate == nullptr ? std::nullopt : IdentityOf(certificate.get());
  if (!identity) return Unavailable("TLS: its certificate names nobody");
  if (identity->job != own_.job) {
    return Unavailable(
        fmt::format("TLS: its certificate is of job '{}', not "
                    "'{}'",
                    identity->job, own_.job));
  }
  peer_ = *identity;
  return {};
}

Result<bool> TlsSession::Handshake() {
  const MutexLock lock(mutex_);
  if (impl_->established) return true;
  ERR_clear_error();
  errno = 0;
  const int n = SSL_do_handshake(impl_->session.get());
  if (n != 1) {
    SLUICE_RETURN_IF_ERROR(Failure(n));
    return false;
  }
  SLUICE_RETURN_IF_ERROR(CheckPeer());
  impl_->established = true;
  return true;
}

short TlsSession::events() const {
  const MutexLock lock(mutex_);
  return SSL_want_write(impl_->session.get()) ? POLLOUT : POLLIN;
}

Result<size_t> TlsSession::Send(std::span<const std::byte> bytes) {
  const MutexLock lock(mutex_);
  if (!impl_->established) return Unavailable("TLS: no handshake");
  SSL* const session = impl_->session.get();
  ERR_clear_error();
  errno = 0;
  if (impl_->sent > kKeyBytes && !impl_->unfinished) {
    impl_->sent = 0;
    if (SSL_key_update(session, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
      return openssl::Failed("TLS: no new key");
    }
  }
  // A write of nothing is none.
  if (bytes.empty()) return size_t{0};
  size_t taken = 0;
  const int n = SSL_write_ex(session, bytes.data(), bytes.size(), &taken);
  impl_->unfinished = n != 1;
  if (n != 1) {
    SLUICE_RETURN_IF_ERROR(Failure(n));
    return size_t{0};
  }
  impl_->sent += taken;
  return taken;
}

Result<size_t> TlsSession::Receive(std::span<std::byte> bytes) {
  const MutexLock lock(mutex_);
  if (!impl_->established) return Unavailable("TLS: no handshake");
  if (bytes.empty()) return size_t{0};
  ERR_clear_error();
  errno = 0;
  size_t received = 0;
  const int n =
      SSL_read_ex(impl_->session.get(), bytes.data(), bytes.size(), &received);
  if (n != 1) SLUICE_RETURN_IF_ERROR(Failure(n));
  return received;
}

bool TlsSession::pending() const {
  const MutexLock lock(mutex_);
  return SSL_has_pending(impl_->session.get()) == 1;
}

}  // namespace sluice::dist

#else

namespace sluice::dist {
namespace {

Status NoTls() {
  return Unimplemented("no TLS: this build has no OpenSSL 3");
}

}  // namespace

struct Tls::Impl {};
struct TlsSession::Impl {};

bool HasTls() {
  return false;
}
Tls::Tls() = default;
Tls::~Tls() = default;
Result<std::shared_ptr<const Tls>> Tls::Create(const Credentials&) {
  return NoTls();
}
TlsSession::TlsSession() = default;
TlsSession::~TlsSession() = default;
Result<std::unique_ptr<TlsSession>> TlsSession::Create(const Tls&, TlsSide,
                                                       int) {
  return NoTls();
}
Status TlsSession::Failure(int) {
  return NoTls();
}
Status TlsSession::CheckPeer() {
  return NoTls();
}
Result<bool> TlsSession::Handshake() {
  return NoTls();
}
short TlsSession::events() const {
  return 0;
}
Result<size_t> TlsSession::Send(std::span<const std::byte>) {
  return NoTls();
}
Result<size_t> TlsSession::Receive(std::span<std::byte>) {
  return NoTls();
}
bool TlsSession::pending() const {
  return false;
}

}  // namespace sluice::dist

#endif
