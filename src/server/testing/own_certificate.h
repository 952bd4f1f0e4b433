// A certificate that is made for a test.
#pragma once

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <string>

#include <fmt/format.h>

namespace bolide::server::test {

template <class T, void (*kFree)(T*)>
struct Free {
  void operator()(T* it) const { kFree(it); }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY, EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Free<X509, X509_free>>;

// A folder with a key and a certificate of "localhost" that it has signed itself.
class OwnCertificate {
 public:
  OwnCertificate() : key_(EVP_EC_gen("P-256")), made_(X509_new()) {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("bolide-tls-{:08x}", std::random_device()());
    std::filesystem::create_directory(folder_);
    X509* x = made_.get();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key_.get());
    X509_NAME* name = X509_get_subject_name(x);
    const auto* text = reinterpret_cast<const unsigned char*>("localhost");
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0);
    X509_set_issuer_name(x, name);
    EXPECT_GT(X509_sign(x, key_.get(), EVP_sha256()), 0);
    std::FILE* file = std::fopen(key_path().c_str(), "w");
    EXPECT_EQ(PEM_write_PrivateKey(file, key_.get(), nullptr, nullptr, 0, nullptr, nullptr), 1);
    std::fclose(file);
    file = std::fopen(path().c_str(), "w");
    EXPECT_EQ(PEM_write_X509(file, x), 1);
    std::fclose(file);
  }
  ~OwnCertificate() { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ / "certificate.pem"; }
  std::string key_path() const { return folder_ / "key.pem"; }
  X509* x509() const { return made_.get(); }

 private:
  Key key_;
  Certificate made_;
  std::filesystem::path folder_;
};

}  // namespace bolide::server::test
