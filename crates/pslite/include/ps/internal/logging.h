/* CHECK and LOG, as programs of ps-lite use them. If dmlc-core's header of the same macros was included before, that one counts. */
#ifndef PS_INTERNAL_LOGGING_H_
#define PS_INTERNAL_LOGGING_H_

#ifndef DMLC_LOGGING_H_
#define DMLC_LOGGING_H_

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace dmlc {

/* Thrown by a check that fails, and by a call of ps:: that fails. */
struct Error : public std::runtime_error {
  explicit Error(const std::string& text) : std::runtime_error(text) {}
};

inline void InitLogging(const char* /*program*/) {}

/* One line, written at once when it is complete: lines of several threads do not mix. */
class LogMessage {
 public:
  LogMessage(const char* file, int line) {
    char time_of_day[16] = "";
    const std::time_t now = std::time(nullptr);
    struct tm local;
    if (localtime_r(&now, &local) != nullptr) std::strftime(time_of_day, sizeof(time_of_day), "%H:%M:%S", &local);
    stream_ << '[' << time_of_day << "] " << file << ':' << line << ": ";
  }
  LogMessage(const LogMessage&) = delete;
  LogMessage& operator=(const LogMessage&) = delete;
  ~LogMessage() {
    stream_ << '\n';
    std::cerr << stream_.str() << std::flush;
  }
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

/* The same, and then an Error. */
class LogMessageFatal {
 public:
  LogMessageFatal(const char* file, int line) { text_ << file << ':' << line << ": "; }
  LogMessageFatal(const LogMessageFatal&) = delete;
  LogMessageFatal& operator=(const LogMessageFatal&) = delete;
  ~LogMessageFatal() noexcept(false) {
    std::cerr << text_.str() + "\n" << std::flush;
    throw Error(text_.str());
  }
  std::ostream& stream() { return text_; }

 private:
  std::ostringstream text_;
};

/* Makes both branches of a conditional expression void. */
struct LogMessageVoidify {
  void operator&(std::ostream&) {}
};

template <typename Pointer>
inline Pointer CheckNotNull(const char* file, int line, const char* what, Pointer pointer) {
  if (pointer == nullptr) LogMessageFatal(file, line).stream() << "Check failed: " << what << " is null";
  return pointer;
}

}  // namespace dmlc

#define LOG_INFO ::dmlc::LogMessage(__FILE__, __LINE__)
#define LOG_WARNING LOG_INFO
#define LOG_ERROR LOG_INFO
#define LOG_FATAL ::dmlc::LogMessageFatal(__FILE__, __LINE__)
#define LOG_QFATAL LOG_FATAL

#define LOG(severity) LOG_##severity.stream()
#define LG LOG_INFO.stream()
#define VLOG(level) LOG_INFO.stream()
#define LOG_IF(severity, condition) !(condition) ? (void)0 : ::dmlc::LogMessageVoidify() & LOG(severity)
#define LOG_EVERY_N(severity, n) LOG(severity)

#define CHECK(condition)                   \
  (condition) ? (void)0                    \
              : ::dmlc::LogMessageVoidify() & LOG(FATAL) << "Check failed: " #condition << ' '
#define CHECK_LT(x, y) CHECK((x) < (y))
#define CHECK_GT(x, y) CHECK((x) > (y))
#define CHECK_LE(x, y) CHECK((x) <= (y))
#define CHECK_GE(x, y) CHECK((x) >= (y))
#define CHECK_EQ(x, y) CHECK((x) == (y))
#define CHECK_NE(x, y) CHECK((x) != (y))
#define CHECK_NOTNULL(x) ::dmlc::CheckNotNull(__FILE__, __LINE__, #x, x)

#ifdef NDEBUG
#define LOG_DFATAL LOG_ERROR
#define DFATAL ERROR
#define DLOG_IF(severity, condition) LOG_IF(severity, false && (condition))
#define DCHECK(condition) CHECK(true || (condition))
#else
#define LOG_DFATAL LOG_FATAL
#define DFATAL FATAL
#define DLOG_IF(severity, condition) LOG_IF(severity, condition)
#define DCHECK(condition) CHECK(condition)
#endif
#define DLOG(severity) DLOG_IF(severity, true)
#define DCHECK_LT(x, y) DCHECK((x) < (y))
#define DCHECK_GT(x, y) DCHECK((x) > (y))
#define DCHECK_LE(x, y) DCHECK((x) <= (y))
#define DCHECK_GE(x, y) DCHECK((x) >= (y))
#define DCHECK_EQ(x, y) DCHECK((x) == (y))
#define DCHECK_NE(x, y) DCHECK((x) != (y))

#endif  // DMLC_LOGGING_H_

#ifndef LL
#define LL LOG(ERROR)
#endif

#endif  // PS_INTERNAL_LOGGING_H_
