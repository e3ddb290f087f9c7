// The driver's answers about io/remote, which tests/crosscheck compares with
// botocore and Python's configparser.
#ifndef SLUICE_TESTS_CROSSCHECK_REMOTE_ANSWERS_H_
#define SLUICE_TESTS_CROSSCHECK_REMOTE_ANSWERS_H_

#include <nlohmann/json.hpp>

namespace sluice {

// By what request["do"] is; an empty list of pairs may be left out:
//
//   sign      {method, host, path, query, headers, payload, credentials: [3],
//             region, service, time}: {headers, path, query}, the last two as
//             they are sent
//   address   {endpoint, region, style, bucket, key}: {url}
//   ini       {text}: {sections}
//   settings  {variables}: {credentials: null or [3], region, endpoint, style}
//
// or {error}. Null for other requests.
nlohmann::json RemoteAnswer(const nlohmann::json& request);

}  // namespace sluice

#endif  // SLUICE_TESTS_CROSSCHECK_REMOTE_ANSWERS_H_
