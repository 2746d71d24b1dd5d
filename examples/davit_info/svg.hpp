// SPDX-License-Identifier: Apache-2.0
/// @file
/// Boxes, lines and texts of an SVG picture.
#pragma once

#include <string>
#include <string_view>

namespace info {

struct Style {
  char const* fill;
  char const* edge;
};

class Svg {
 public:
  void box(double x, double y, double width, double height, Style style, double radius = 8);
  void line(double x1, double y1, double x2, double y2, char const* colour, double width = 2);
  enum class Anchor { start, middle, end };
  /// Text that is cut to fit `room`.
  void text(double x, double y, std::string_view words, double size, double room, char const* colour = "#1f2933",
            Anchor anchor = Anchor::start, bool bold = false);
  /// The whole file.
  [[nodiscard]] std::string file(double width, double height, std::string_view title) const;

 private:
  std::string body_;
};

/// How wide a text is drawn, about.
[[nodiscard]] double width_of(std::string_view words, double size, bool bold = false) noexcept;

}  // namespace info
