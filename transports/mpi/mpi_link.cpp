// SPDX-License-Identifier: Apache-2.0
#include "transports/mpi/mpi_link.hpp"

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "davit/error.hpp"

namespace davit {
namespace {

// mpi.h spells its constants with C casts.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
MPI_Request const kNoRequest = MPI_REQUEST_NULL;
MPI_Datatype const kByte = MPI_BYTE;
MPI_Errhandler const kErrorsReturn = MPI_ERRORS_RETURN;
MPI_Status* const kNoStatus = MPI_STATUS_IGNORE;
#pragma GCC diagnostic pop

// Tag 0: frames; the others: one a lane.
constexpr int kFrameTag = 0;
constexpr int tag_of(int lane) noexcept { return 1 + lane; }
// Frames that find their place without a copy by MPI.
constexpr std::size_t kPosted = 8;

void check(int code, char const* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw SystemError("davit: between nodes: " + std::string(call) + ": " + text.data());
}

/// Pieces as one MPI type, to be used at address 0; bytes where they lie in one piece.
class Shape {
 public:
  explicit Shape(std::span<Piece const> pieces) {
    if (pieces.size() == 1) {
      at_ = pieces.front().at;
      count_ = static_cast<int>(pieces.front().bytes);
      return;
    }
    std::vector<int> lengths;
    std::vector<MPI_Aint> places;
    for (auto const& piece : pieces) {
      lengths.push_back(static_cast<int>(piece.bytes));
      places.push_back(0);
      check(MPI_Get_address(piece.at, &places.back()), "MPI_Get_address");
    }
    check(MPI_Type_create_hindexed(static_cast<int>(pieces.size()), lengths.data(), places.data(), kByte, &type_),
          "MPI_Type_create_hindexed");
    check(MPI_Type_commit(&type_), "MPI_Type_commit");
  }
  ~Shape() {
    if (type_ != kByte) MPI_Type_free(&type_);  // what is under way keeps it
  }
  Shape(Shape const&) = delete;
  Shape& operator=(Shape const&) = delete;

  [[nodiscard]] void* at() const noexcept { return at_; }
  [[nodiscard]] int count() const noexcept { return count_; }
  [[nodiscard]] MPI_Datatype type() const noexcept { return type_; }

 private:
  void* at_ = nullptr;
  int count_ = 1;
  MPI_Datatype type_ = kByte;
};

class MpiLink final : public Link {
 public:
  explicit MpiLink(MPI_Comm comm) : comm_(comm) {
    int level = MPI_THREAD_SINGLE;
    check(MPI_Query_thread(&level), "MPI_Query_thread");
    all_threads_ = level >= MPI_THREAD_MULTIPLE;
    check(MPI_Comm_set_errhandler(comm_, kErrorsReturn), "MPI_Comm_set_errhandler");
    for (auto& place : posted_) post(place);
  }

  /// What MPI is not done with is left to it, buffers and communicator alike.
  ~MpiLink() override {
    if (allows_this_thread()) {
      bool is_idle = sends_.empty() && receives_.empty();
      for (auto& place : posted_) {
        MPI_Cancel(&place->request);
        int flag = 0;
        is_idle = MPI_Test(&place->request, &flag, kNoStatus) == MPI_SUCCESS && flag != 0 && is_idle;
      }
      if (is_idle) {
        MPI_Comm_free(&comm_);
        return;
      }
    }
    leave_to_mpi();
  }

  void send(int to, std::vector<std::byte> frame) override {
    auto& send = sends_.emplace_back(Send{kNoRequest, std::move(frame), nullptr});
    check(MPI_Isend(send.frame.data(), static_cast<int>(send.frame.size()), kByte, to, kFrameTag, comm_, &send.request),
          "MPI_Isend");
  }

  std::optional<Frame> receive() override {
    for (;;) {
      if (taken_) {
        post(posted_[next_]);
        next_ = (next_ + 1) % kPosted;
        taken_ = false;
      }
      int flag = 0;
      MPI_Status status;
      check(MPI_Test(&posted_[next_]->request, &flag, &status), "MPI_Test");
      if (flag == 0) return std::nullopt;
      int bytes = 0;
      check(MPI_Get_count(&status, kByte, &bytes), "MPI_Get_count");
      taken_ = true;
      if (bytes > 0)
        return Frame{status.MPI_SOURCE, std::span(posted_[next_]->bytes).first(static_cast<std::size_t>(bytes))};
      gone_.insert(status.MPI_SOURCE);
    }
  }

  void send_from(int to, int lane, std::span<Piece const> pieces, std::shared_ptr<void> keep) override {
    Shape const shape(pieces);
    auto& send = sends_.emplace_back(Send{kNoRequest, {}, std::move(keep)});
    check(MPI_Isend(shape.at(), shape.count(), shape.type(), to, tag_of(lane), comm_, &send.request), "MPI_Isend");
  }

  Transfer receive_into(int from, int lane, std::span<Piece const> pieces, std::shared_ptr<void> keep) override {
    Shape const shape(pieces);
    auto& receive = receives_[++transfers_];
    receive = {kNoRequest, std::move(keep)};
    check(MPI_Irecv(shape.at(), shape.count(), shape.type(), from, tag_of(lane), comm_, &receive.request), "MPI_Irecv");
    return transfers_;
  }

  bool has_come(Transfer transfer) override {
    auto const receive = receives_.find(transfer);
    int flag = 0;
    check(MPI_Test(&receive->second.request, &flag, kNoStatus), "MPI_Test");
    if (flag != 0) receives_.erase(receive);
    return flag != 0;
  }

  bool flush() override {
    for (auto send = sends_.begin(); send != sends_.end();) {
      int flag = 0;
      check(MPI_Test(&send->request, &flag, kNoStatus), "MPI_Test");
      send = flag != 0 ? sends_.erase(send) : std::next(send);
    }
    return sends_.empty();
  }

  bool leave(std::span<int const> peers) override {
    if (!has_said_goodbye_) {
      for (int const peer : peers) send(peer, {});
      has_said_goodbye_ = true;
    }
    while (receive()) continue;
    return flush() && std::ranges::all_of(peers, [this](int peer) { return gone_.contains(peer); });
  }

  bool allows_this_thread() const noexcept override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    return finalized == 0 && (all_threads_ || std::this_thread::get_id() == maker_);
  }
  bool allows_all_threads() const noexcept override { return all_threads_; }

 private:
  struct Posted {
    MPI_Request request = kNoRequest;
    std::vector<std::byte> bytes = std::vector<std::byte>(kFrameBytes);
  };
  struct Send {
    MPI_Request request;
    std::vector<std::byte> frame;
    std::shared_ptr<void> keep;
  };

  struct Receive {
    MPI_Request request;
    std::shared_ptr<void> keep;
  };

  void leave_to_mpi() {
    for (auto& place : posted_) static_cast<void>(place.release());
    static_cast<void>(new std::list<Send>(std::move(sends_)));
    static_cast<void>(new std::map<Transfer, Receive>(std::move(receives_)));
  }

  void post(std::unique_ptr<Posted>& place) {
    if (place == nullptr) place = std::make_unique<Posted>();
    check(MPI_Irecv(place->bytes.data(), static_cast<int>(kFrameBytes), kByte, MPI_ANY_SOURCE, kFrameTag, comm_,
                    &place->request),
          "MPI_Irecv");
  }

  MPI_Comm comm_;
  bool all_threads_ = false;
  std::thread::id maker_ = std::this_thread::get_id();
  std::array<std::unique_ptr<Posted>, kPosted> posted_;
  std::size_t next_ = 0;  ///< the oldest of these
  bool taken_ = false;    ///< it has come, and is being read
  std::set<int> gone_;    ///< ranks that have said goodbye
  bool has_said_goodbye_ = false;
  std::list<Send> sends_;
  std::map<Transfer, Receive> receives_;
  Transfer transfers_ = 0;
};

}  // namespace

std::unique_ptr<Link> make_mpi_link(MPI_Comm comm) { return std::make_unique<MpiLink>(comm); }

}  // namespace davit
