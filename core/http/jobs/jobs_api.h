// /v1/files and /v1/batches: the folder of a server, and what the API answers about it.
//
// Threads: start() and stop() by one thread; the others by any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "core/http/jobs/batch_runner.h"
#include "core/http/jobs/batch_store.h"
#include "core/http/jobs/file_store.h"
#include "core/http/transport/message.h"

namespace sluice::http {

inline constexpr std::uint64_t upload_bytes_max = std::uint64_t{256} << 20;

class JobsApi {
 public:
  // Makes the folder, and locks it: throws UsageError when another server has it, and
  // std::system_error. All files together take at most `bytes_max` bytes (FileStore). `system` must
  // outlive it.
  JobsApi(const std::filesystem::path& folder, std::uint64_t bytes_max,
          files::SystemCalls& system = files::kernel());
  ~JobsApi();
  JobsApi(const JobsApi&) = delete;
  JobsApi& operator=(const JobsApi&) = delete;

  // Batches run from start() to stop(), those of earlier servers too.
  void start(serve::Service& service, BatchSettings settings);
  void stop();

  // The sink for the body of POST /v1/files, and what to answer when all of it has come.
  std::shared_ptr<BodySink> begin_upload(const RequestHead& head);
  static Response end_upload(BodySink& sink);

  // All throw ApiError. `query` is that of the request (list_query.h).
  Response list_files(std::string_view query = {}) const;
  Response file(std::string_view id) const;
  Response file_content(std::string_view id) const;
  Response delete_file(std::string_view id);
  Response create_batch(std::string_view body);
  Response list_batches(std::string_view query = {}) const;
  Response batch(std::string_view id) const;
  Response cancel_batch(std::string_view id);

 private:
  class Lock;
  class Upload;

  StoredFile found(std::string_view id) const;
  BatchRunner& runner() SLUICE_REQUIRES(mutex_);

  files::SystemCalls& system_;
  std::unique_ptr<Lock> lock_;
  FileStore files_;
  BatchStore batches_;
  base::Mutex mutex_;
  std::unique_ptr<BatchRunner> runner_ SLUICE_GUARDED_BY(mutex_);
  std::string model_name_ SLUICE_GUARDED_BY(mutex_);
};

}  // namespace sluice::http
