// SPDX-License-Identifier: Apache-2.0
/// @file
/// Symbol visibility. The library is built with hidden visibility; what carries DAVIT_EXPORT is its interface.
#pragma once

#define DAVIT_EXPORT __attribute__((visibility("default")))
