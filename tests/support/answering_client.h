// A server as a function.
#ifndef SLUICE_TESTS_SUPPORT_ANSWERING_CLIENT_H_
#define SLUICE_TESTS_SUPPORT_ANSWERING_CLIENT_H_

#include <functional>

#include "io/remote/http/http.h"

namespace sluice::testing {

class AnsweringClient : public remote::HttpClient {
 public:
  Result<remote::HttpResponse> Send(
      const remote::HttpRequest& request) override {
    return answer(request);
  }
  std::function<Result<remote::HttpResponse>(const remote::HttpRequest&)>
      answer;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_ANSWERING_CLIENT_H_
