// SPDX-License-Identifier: Apache-2.0
/// @file
/// The end of links. A late message must not meet a new communicator under a reused number, so a link is given back
/// only once all its peers have said goodbye.
#pragma once

#include <memory>
#include <vector>

#include "transports/link.hpp"

namespace davit {

/// Says goodbye to `peers` and waits a moment for theirs; else that is looked after by later calls. @param is_sound
/// whether any can be expected; if not, the link is left to the end of the process.
void part_with(std::unique_ptr<Link> link, std::vector<int> peers, bool is_sound);
/// Gives back the links whose peers have said goodbye by now.
void sweep_links();

}  // namespace davit
