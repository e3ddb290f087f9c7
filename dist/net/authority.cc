#include "dist/net/authority.h"

#include <utility>

#ifdef SLUICE_HAVE_TLS

#include <openssl/rand.h>

#include <array>

#include "dist/net/openssl.h"

namespace sluice::dist {

struct Authority::Impl {
  openssl::Key key;
  openssl::Certificate certificate;
};

namespace {

// Certificates are for these, and no more.
constexpr char kForAuthority[] = "critical,keyCertSign";
constexpr char kForProcess[] = "critical,digitalSignature";
constexpr std::chrono::seconds kClockSkew = std::chrono::hours(1);
// The authority's own outlives all that it signs; the launcher forgets its key.
constexpr std::chrono::seconds kLongest = std::chrono::hours(24 * 3650);

bool Extend(X509* certificate, X509* issuer, int nid, const std::string& text) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension =
      X509V3_EXT_conf_nid(nullptr, &context, nid, text.c_str());
  const bool added =
      extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

bool SetSerial(X509* certificate) {
  std::array<unsigned char, 16> bytes;
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    return false;
  }
  bytes[0] &= 0x7f;  // a number above 0
  BIGNUM* const number =
      BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr);
  const bool set =
      number != nullptr &&
      BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  return set;
}

bool SetTimes(X509* certificate, std::chrono::seconds valid) {
  return X509_gmtime_adj(X509_getm_notBefore(certificate),
                         -static_cast<long>(kClockSkew.count())) != nullptr &&
         X509_gmtime_adj(X509_getm_notAfter(certificate),
                         static_cast<long>(valid.count())) != nullptr;
}

// Of version 3, named so, with that key and not yet signed; null where it
// fails.
openssl::Certificate NewCertificate(const std::string& name, EVP_PKEY* key,
                                    std::chrono::seconds valid) {
  openssl::Certificate certificate(X509_new());
  X509* const x = certificate.get();
  const auto* const text = reinterpret_cast<const unsigned char*>(name.data());
  const bool made =
      x != nullptr && X509_set_version(x, X509_VERSION_3) == 1 &&
      SetSerial(x) && SetTimes(x, valid) && X509_set_pubkey(x, key) == 1 &&
      X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_UTF8,
                                 text, static_cast<int>(name.size()), -1,
                                 0) == 1;
  if (!made) certificate.reset();
  return certificate;
}

bool Sign(X509* certificate, X509* issuer, EVP_PKEY* key) {
  return X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) ==
             1 &&
         X509_sign(certificate, key, EVP_sha256()) > 0;
}

// Empty where it fails.
std::string PemOf(X509* certificate) {
  const openssl::Bio bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(bio.get(), certificate) != 1) return {};
  return openssl::Written(bio.get());
}
std::string PemOf(EVP_PKEY* key) {
  const openssl::Bio bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr,
                               nullptr) != 1) {
    return {};
  }
  return openssl::Written(bio.get());
}

}  // namespace

Result<Authority> Authority::Create(const std::string& job) {
  SLUICE_RETURN_IF_ERROR(ParseIdentity(UriOf({job, "authority", 0})).status());
  auto impl = std::make_unique<Impl>();
  impl->key.reset(EVP_EC_gen("P-256"));
  if (impl->key == nullptr) return openssl::Failed("no key to be made");
  impl->certificate =
      NewCertificate("Sluice job " + job, impl->key.get(), kLongest);
  X509* const x = impl->certificate.get();
  if (x == nullptr ||
      !Extend(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !Extend(x, x, NID_key_usage, kForAuthority) ||
      !Extend(x, x, NID_subject_key_identifier, "hash") ||
      !Sign(x, x, impl->key.get())) {
    return openssl::Failed("no authority to be made");
  }
  return Authority(job, std::move(impl));
}

Result<Credentials> Authority::Issue(const std::string& role, int rank,
                                     std::chrono::seconds valid) const {
  const Identity identity{job_, role, rank};
  SLUICE_RETURN_IF_ERROR(ParseIdentity(UriOf(identity)).status());
  const openssl::Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return openssl::Failed("no key to be made");
  const openssl::Certificate certificate =
      NewCertificate(identity.Name(), key.get(), valid);
  X509* const x = certificate.get();
  X509* const issuer = impl_->certificate.get();
  if (x == nullptr ||
      !Extend(x, issuer, NID_basic_constraints, "critical,CA:FALSE") ||
      !Extend(x, issuer, NID_key_usage, kForProcess) ||
      !Extend(x, issuer, NID_ext_key_usage, "serverAuth,clientAuth") ||
      !Extend(x, issuer, NID_authority_key_identifier, "keyid") ||
      !Extend(x, issuer, NID_subject_alt_name, "URI:" + UriOf(identity)) ||
      !Sign(x, issuer, impl_->key.get())) {
    return openssl::Failed("no certificate to be made");
  }
  Credentials credentials = {PemOf(issuer), PemOf(x), PemOf(key.get())};
  if (credentials.authority.empty() || credentials.certificate.empty() ||
      credentials.key.empty()) {
    return openssl::Failed("no certificate to be written");
  }
  return credentials;
}

}  // namespace sluice::dist

#else

namespace sluice::dist {

struct Authority::Impl {};

Result<Authority> Authority::Create(const std::string&) {
  return Unimplemented("no certificates: this build has no OpenSSL");
}
Result<Credentials> Authority::Issue(const std::string&, int,
                                     std::chrono::seconds) const {
  return Unimplemented("no certificates: this build has no OpenSSL");
}

}  // namespace sluice::dist

#endif

namespace sluice::dist {

Authority::Authority(std::string job, std::unique_ptr<Impl> impl)
    : job_(std::move(job)), impl_(std::move(impl)) {}
Authority::Authority(Authority&&) noexcept = default;
Authority::~Authority() = default;

}  // namespace sluice::dist
