// OpenSSL's objects with owners, and its errors as ours. Only for files that
// are built where OpenSSL was found.
#ifndef SLUICE_DIST_NET_OPENSSL_H_
#define SLUICE_DIST_NET_OPENSSL_H_

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>

#include "engine/status.h"

namespace sluice::dist::openssl {

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
template <typename T, auto Free>
using Owned = std::unique_ptr<T, Freed<Free>>;

using Bio = Owned<BIO, BIO_free_all>;
using Certificate = Owned<X509, X509_free>;
using Key = Owned<EVP_PKEY, EVP_PKEY_free>;
using Context = Owned<SSL_CTX, SSL_CTX_free>;
using Session = Owned<SSL, SSL_free>;

// The oldest error that this thread's calls have left, in words; clears all.
inline std::string TakeError() {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  const char* const words =
      error == 0 ? nullptr : ERR_reason_error_string(error);
  return words == nullptr ? "unknown error" : words;
}

inline Status Failed(std::string_view what) {
  return Unavailable(std::string(what) + ": " + TakeError());
}

inline Bio Reading(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}
inline std::string Written(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(size)};
}

}  // namespace sluice::dist::openssl

#endif  // SLUICE_DIST_NET_OPENSSL_H_
