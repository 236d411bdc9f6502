// Whether JSON fits a JSON Schema: the part of draft 2020-12 that docs/schema/report.json uses.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace attncheck::properties {

class SchemaCheck {
public:
    explicit SchemaCheck(nlohmann::json schema) : schema_(std::move(schema)) {}

    /// The first place that does not fit and why; empty when all of it does. Throws
    /// std::logic_error for a keyword that this check does not know.
    std::string error(const nlohmann::json& value) const { return error(value, schema_, "report"); }

private:
    using Json = nlohmann::json;

    static bool is_of(const Json& value, const std::string& type) {
        if (type == "integer") return value.is_number_integer();
        if (type == "number") return value.is_number();
        return type == (value.is_number() ? "number" : value.type_name());
    }

    std::string error(const Json& value, const Json& schema, const std::string& where) const {
        for (const auto& [keyword, rule] : schema.items()) {
            const std::string wrong = broken(keyword, rule, value, schema, where);
            if (!wrong.empty()) return wrong;
        }
        return {};
    }

    std::string broken(const std::string& keyword, const Json& rule, const Json& value, const Json& schema,
                       const std::string& where) const {
        const std::string shown = where + ": " + value.dump().substr(0, 80);
        if (keyword == "$ref") {
            const std::string path = rule.get<std::string>().substr(1);
            return error(value, schema_.at(Json::json_pointer(path)), where);
        }
        if (keyword == "type") {
            const Json types = rule.is_array() ? rule : Json::array({rule});
            const bool fits = std::any_of(types.begin(), types.end(), [&](const Json& type) {
                return is_of(value, type.get<std::string>());
            });
            return fits ? "" : shown + " is not of type " + rule.dump();
        }
        if (keyword == "enum")
            return std::find(rule.begin(), rule.end(), value) != rule.end() ? "" : shown + " is none of " + rule.dump();
        if (keyword == "minimum") return !value.is_number() || value >= rule ? "" : shown + " is too small";
        if (keyword == "required") {
            for (const Json& name : rule)
                if (!value.contains(name.get<std::string>())) return where + " lacks " + name.dump();
            return {};
        }
        if (keyword == "items") {
            for (std::size_t i = 0; i < value.size(); ++i)
                if (auto wrong = error(value[i], rule, where + "/" + std::to_string(i)); !wrong.empty()) return wrong;
            return {};
        }
        if (keyword == "properties" || keyword == "additionalProperties") return broken_field(keyword, rule, value, schema, where);
        for (const char* words : {"$schema", "$defs", "title", "description"})
            if (keyword == words) return {};
        throw std::logic_error("the check does not know the keyword " + keyword);
    }

    std::string broken_field(const std::string& keyword, const Json& rule, const Json& value, const Json& schema,
                             const std::string& where) const {
        const Json known = schema.value("properties", Json::object());
        for (const auto& [name, field] : value.items()) {
            const bool is_known = known.contains(name);
            if ((keyword == "properties") != is_known) continue;
            if (!is_known && rule == false) return where + " has an unknown field " + name;
            const auto wrong = error(field, is_known ? rule.at(name) : rule, where + "/" + name);
            if (!wrong.empty()) return wrong;
        }
        return {};
    }

    Json schema_;
};

}  // namespace attncheck::properties
