// What all connections of a server share. Outlives them.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/http/transport/server.h"

namespace sluice::http {

using Socket = boost::asio::generic::stream_protocol::socket;

struct ServerState {
  ServerLimits limits;
  Handler& handler;
  Allowance& allowance;
  std::function<void(Lane, std::function<Then()>)> aside;  // as Server::aside()
  ServerCounts counts = {};
  bool is_stopping = false;
  std::uint64_t requests = 0;
  std::string id_prefix = {};  // of request ids, another for each start of the server
  std::vector<char> received_piece =
      {};  // where bytes are received, before a connection keeps them
};

}  // namespace sluice::http
