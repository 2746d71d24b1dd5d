// SPDX-License-Identifier: Apache-2.0
/// @file
/// What davit throws. Two families: the caller's mistake (UsageError and its child MismatchError: the next correct call
/// works) and the world's failure (TimeoutError, PeerError of a death, SystemError: the communicator is failed for
/// good, every later call raises the same at once; make a new one). Nothing in the library calls abort or exit, and no
/// destructor throws.
///
/// | error         | when                                                               | afterwards                  |
/// |---------------|--------------------------------------------------------------------|-----------------------------|
/// | UsageError    | an argument cannot be: its name, its value, the bound              | the call is void, go on     |
/// | PeerError     | another rank refused this call (its reason is in the text)         | the call is void, go on     |
/// | MismatchError | ranks disagree: both values                                        | drained, go on              |
/// | PeerError     | a rank died, closed or failed (`Communicator::usable()` is false)  | the communicator is failed  |
/// | TimeoutError  | a wait passed its deadline: rank, phase, communicator, call number | the communicator is failed  |
/// | SystemError   | the operating system or MPI refused something: what, and figures   | the communicator is failed  |
///
/// SystemError at set-up (a full /dev/shm, say) leaves nothing behind, and the set-up may be tried again.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "davit/export.hpp"

namespace davit {

/// Base of everything davit throws on purpose.
class DAVIT_EXPORT Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller's mistake on this rank, found before anything moved.
class DAVIT_EXPORT UsageError : public Error {
 public:
  using Error::Error;
};

/// Ranks disagree about counts, settings or the operation. The text names the field (or the pair) and both values.
class DAVIT_EXPORT MismatchError : public UsageError {
 public:
  using UsageError::UsageError;
};

/// Another rank refused the call, died, failed or closed its communicator.
class DAVIT_EXPORT PeerError : public Error {
 public:
  PeerError(std::string const& text, int rank) : Error(text), rank_(rank) {}
  /// The rank at fault, in the communicator of the call.
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// A wait passed its deadline. The text names the missing rank, the phase, the communicator and the call's number.
class DAVIT_EXPORT TimeoutError : public Error {
 public:
  TimeoutError(std::string const& text, int rank) : Error(text), rank_(rank) {}
  /// The first rank that was waited for; -1 where none can be named.
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// The operating system, MPI or a device refused something.
class DAVIT_EXPORT SystemError : public Error {
 public:
  using Error::Error;
};

}  // namespace davit
