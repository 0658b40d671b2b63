/* Variables of the environment, and those that a program sets for itself. */
#ifndef PS_INTERNAL_ENV_H_
#define PS_INTERNAL_ENV_H_

#include <cstdlib>
#include <memory>
#include <string>
#include <unordered_map>

namespace ps {

class Environment {
 public:
  static Environment* Get() { return Shared().get(); }
  static std::shared_ptr<Environment> _GetSharedRef() { return Shared(); }

  /* Sets variables for this library alone; they go before those of the process. To be called before Start. */
  static Environment* Init(const std::unordered_map<std::string, std::string>& variables) {
    Get()->kvs = variables;
    return Get();
  }

  /* The value of a variable, or null. */
  const char* find(const char* name) const {
    const auto found = kvs.find(name);
    return found == kvs.end() ? std::getenv(name) : found->second.c_str();
  }

  const std::unordered_map<std::string, std::string>& variables() const { return kvs; }

 private:
  Environment() = default;

  static std::shared_ptr<Environment>& Shared() {
    static std::shared_ptr<Environment> shared(new Environment());
    return shared;
  }

  std::unordered_map<std::string, std::string> kvs;
};

}  // namespace ps

#endif  // PS_INTERNAL_ENV_H_
