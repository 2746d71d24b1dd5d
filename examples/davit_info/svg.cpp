// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_info/svg.hpp"

#include <array>
#include <cstdio>

namespace info {
namespace {

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

/// Whatever a file may have put into a name.
std::string escaped(std::string_view words) {
  std::string text;
  for (char const c : words) {
    if (c == '&') {
      text += "&amp;";
    } else if (c == '<') {
      text += "&lt;";
    } else if (c == '>') {
      text += "&gt;";
    } else if (c == '"') {
      text += "&quot;";
    } else {
      text += c >= ' ' && c <= '~' ? c : '?';
    }
  }
  return text;
}

}  // namespace

double width_of(std::string_view words, double size, bool bold) noexcept {
  return static_cast<double>(words.size()) * size * (bold ? 0.61 : 0.56);
}

void Svg::box(double x, double y, double width, double height, Style style, double radius) {
  body_ += "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(width) + "\" height=\"" +
           number(height) + "\" rx=\"" + number(radius) + "\" fill=\"" + style.fill + "\" stroke=\"" + style.edge +
           "\" stroke-width=\"1.3\"/>\n";
}

void Svg::line(double x1, double y1, double x2, double y2, char const* colour, double width) {
  body_ += "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) + "\" y2=\"" + number(y2) +
           "\" stroke=\"" + colour + "\" stroke-width=\"" + number(width) + "\"/>\n";
}

void Svg::text(double x, double y, std::string_view words, double size, double room, char const* colour, Anchor anchor,
               bool bold) {
  std::string fitting(words);
  if (width_of(fitting, size, bold) > room) {
    auto const most = static_cast<std::size_t>(room / width_of("x", size, bold));
    fitting = most > 2 ? fitting.substr(0, most - 2) + ".." : "";
  }
  char const* const anchors = anchor == Anchor::start ? "start" : anchor == Anchor::middle ? "middle" : "end";
  body_ += "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" font-size=\"" + number(size) + "\" fill=\"" + colour +
           "\" text-anchor=\"" + anchors + "\"" + (bold ? " font-weight=\"bold\"" : "") + ">" + escaped(fitting) +
           "</text>\n";
}

std::string Svg::file(double width, double height, std::string_view title) const {
  auto const size = "width=\"" + number(width) + "\" height=\"" + number(height) + "\"";
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" " + size + " viewBox=\"0 0 " + number(width) + " " +
         number(height) + "\" font-family=\"DejaVu Sans, Verdana, Helvetica, Arial, sans-serif\">\n<title>" +
         escaped(title) + "</title>\n<rect " + size + " fill=\"#fbfcfd\"/>\n" + body_ + "</svg>\n";
}

}  // namespace info
