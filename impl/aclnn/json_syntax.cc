#include "impl/aclnn/json_syntax.h"

namespace attncheck::aclnn {
namespace {

/// Recursive descent; every function consumes its production and says whether it was there.
class JsonReader {
public:
    explicit JsonReader(std::string_view text) : rest_(text) {}

    bool read_document() {
        if (!read_value(0)) return false;
        skip_space();
        return rest_.empty();
    }

private:
    static constexpr int kMaxDepth = 256;

    void skip_space() {
        const std::size_t next = rest_.find_first_not_of(" \t\r\n");
        rest_.remove_prefix(next == std::string_view::npos ? rest_.size() : next);
    }

    bool accept(std::string_view token) {
        if (!rest_.starts_with(token)) return false;
        rest_.remove_prefix(token.size());
        return true;
    }

    bool accept_after_space(std::string_view token) {
        skip_space();
        return accept(token);
    }

    bool accept_any_of(std::string_view characters) {
        if (rest_.empty() || characters.find(rest_.front()) == std::string_view::npos) return false;
        rest_.remove_prefix(1);
        return true;
    }

    bool read_value(int depth) {
        skip_space();
        if (rest_.starts_with('{')) return depth < kMaxDepth && read_object(depth + 1);
        if (rest_.starts_with('[')) return depth < kMaxDepth && read_array(depth + 1);
        if (rest_.starts_with('"')) return read_string();
        return accept("true") || accept("false") || accept("null") || read_number();
    }

    bool read_object(int depth) {
        accept("{");
        if (accept_after_space("}")) return true;
        do {
            skip_space();
            if (!read_string() || !accept_after_space(":") || !read_value(depth)) return false;
        } while (accept_after_space(","));
        return accept("}");
    }

    bool read_array(int depth) {
        accept("[");
        if (accept_after_space("]")) return true;
        do {
            if (!read_value(depth)) return false;
        } while (accept_after_space(","));
        return accept("]");
    }

    bool read_string() {
        if (!accept("\"")) return false;
        while (!rest_.empty()) {
            if (accept("\"")) return true;
            if (accept("\\")) {
                if (!read_escape()) return false;
            } else {
                if (static_cast<unsigned char>(rest_.front()) < 0x20) return false;
                rest_.remove_prefix(1);
            }
        }
        return false;
    }

    bool read_escape() {
        if (!accept("u")) return accept_any_of("\"\\/bfnrt");
        for (int digit = 0; digit < 4; ++digit)
            if (!accept_any_of("0123456789abcdefABCDEF")) return false;
        return true;
    }

    bool read_digits() {
        if (!accept_any_of("0123456789")) return false;
        while (accept_any_of("0123456789")) continue;
        return true;
    }

    bool read_number() {
        accept("-");
        if (!accept("0") && !read_digits()) return false;
        if (accept(".") && !read_digits()) return false;
        if (!accept_any_of("eE")) return true;
        accept_any_of("+-");
        return read_digits();
    }

    std::string_view rest_;
};

}  // namespace

bool is_json(std::string_view text) { return JsonReader(text).read_document(); }

}  // namespace attncheck::aclnn
