// The labels of a case of decoding, and the classes that a run must reach.
#include "properties/operators/labels.h"

#include "properties/operators/attention_decode/case.h"

namespace attncheck::properties {

using Int = std::int64_t;

std::vector<std::string> decode_labels(const Spec& spec) {
    Labels labels(spec, {"logits", "scale", "sink", "cache", "values", "pages", "shared", "rest", "tail"});
    const auto& kv = spec.lists[1];
    const Int page = spec.number("page"), window = spec.number("window_left"),
              queries = longest(spec.lists[0]);
    labels.add(queries == 1, "one_query");
    labels.add(queries > 1, "several_queries");
    labels.add(kv.size() > 1, "several_sequences");
    labels.some([](Int, Int length) { return length == 0; }, "no_keys");
    labels.some([](Int q, Int length) { return 0 < length && length < q; }, "fewer_keys");
    labels.some([page](Int, Int length) { return length % page != 0; }, "ragged_page");
    labels.some([page](Int, Int length) { return length > 0 && length % page == 0; }, "full_page");
    labels.some([page](Int, Int length) { return length > page; }, "several_pages");
    labels.add(page == 1, "page_of_one");
    labels.add(page > 64, "large_page");
    labels.add(page % 16 == 0, "even_page");
    labels.add(window >= 0, "window");
    labels.add(spec.number("softcap") > 0, "softcap");
    if (spec.number("softcap") > 0) labels.value_of("softcap_unit");
    labels.some([window, queries](Int, Int length) {
        return window >= 0 && length - queries > window;
    }, "hidden_past");
    labels.add(spec.number("spare") > 0, "spare_pages");
    labels.add(spec.number("slack") > 0, "slack_entries");
    labels.add(spec.number("group") > 1, "grouped_heads");
    labels.add(spec.number("kv_heads") > 1, "several_kv_heads");
    labels.add(spec.number("value_dim") != spec.number("dim"), "other_value_dim");
    labels.add(spec.number("dim") % 16 != 0, "odd_dim");
    labels.add(spec.number("lse") != 0, "lse_absent");
    labels.layouts();
    labels.edited();
    return labels.take();
}

std::vector<RequiredClass> decode_required_classes() {
    return Required(decode_description())
        .share(25, {"one_query", "several_queries", "several_sequences", "grouped_heads"})
        .share(20, {"fp16", "bf16", "fp32", "several_kv_heads", "ragged_page", "several_pages"})
        .share(10, {"window", "softcap", "hidden_past", "full_page", "odd_dim", "even_page", "spare_pages",
                    "slack_entries", "other_value_dim", "strided"})
        .share(3, {"no_keys", "fewer_keys", "page_of_one", "large_page", "lse_absent"})
        .share(2, {"broadcast", "reversed"})
        .rare(0.2, {"one_buffer"})
        .recipes(0.5)
        .values(1, "logits")
        .values(1, "scale")
        .values(2, "sink")
        .values(1, "softcap_unit")
        .values(5, "cache")
        .values(2, "values")
        .values(5, "pages")
        .values(5, "shared")
        .values(1, "rest")
        .values(5, "tail")
        .take();
}

}  // namespace attncheck::properties
