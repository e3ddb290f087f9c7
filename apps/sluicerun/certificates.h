// Certificates for jobs that something else starts: Slurm, Kubernetes, mpirun.
#ifndef SLUICE_APPS_SLUICERUN_CERTIFICATES_H_
#define SLUICE_APPS_SLUICERUN_CERTIFICATES_H_

#include <string>
#include <utility>
#include <vector>

namespace sluice::launcher {

// Files of a folder that SLUICE_CERTIFICATES may name, by name: ca.pem and,
// for each rank, worker-RANK.pem and worker-RANK.key; ps-I.pem and ps-I.key for
// each parameter server.
using CertificateFiles = std::vector<std::pair<std::string, std::string>>;

// The authority that signed them is forgotten. Throws Error, also in a build
// without OpenSSL.
CertificateFiles NewCertificates(int size, int servers, int days);
// Reads the files of `size` ranks and `servers` servers from a folder. Throws
// Error.
CertificateFiles ReadCertificates(const std::string& folder, int size,
                                  int servers);

// Writes new ones into the folder, which is made, for its owner alone, unless
// it is there and empty. Throws Error.
void WriteCertificates(const std::string& folder, int size, int servers,
                       int days);

}  // namespace sluice::launcher

#endif  // SLUICE_APPS_SLUICERUN_CERTIFICATES_H_
