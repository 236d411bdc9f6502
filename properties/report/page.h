// The parts of the HTML page; CMake writes these functions from properties/report/page/ and from
// the plotting library that it finds.
#pragma once

#include <string_view>

namespace attncheck::properties {

std::string_view page_html();
std::string_view page_css();
std::string_view page_js();
/// Chart.js (chartjs.org, MIT); empty where the build found none: tables take the place of plots.
std::string_view page_library();

}  // namespace attncheck::properties
