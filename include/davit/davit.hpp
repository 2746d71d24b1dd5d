// SPDX-License-Identifier: Apache-2.0
/// @file
/// Everything of davit but the bridge from MPI, which is davit/mpi.hpp.
#pragma once

#include "davit/bootstrap.hpp"
#include "davit/communicator.hpp"
#include "davit/dtype.hpp"
#include "davit/error.hpp"
#include "davit/expert_group.hpp"
#include "davit/log.hpp"
#include "davit/options.hpp"
#include "davit/request.hpp"
#include "davit/stats.hpp"
#include "davit/stream.hpp"
#include "davit/version.hpp"
