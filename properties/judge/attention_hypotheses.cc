#include "properties/judge/attention_hypotheses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "ref/attention/probes.h"

namespace attncheck::properties {
namespace {

using Columns = std::vector<ref::KeyColumn>;
using Shared = std::shared_ptr<const AttentionProblem>;
using Change = std::function<void(AttentionProblem&)>;

/// The LSE alone, as a logarithm of base 2.
Hypothesis lse_of_base_2(const Shared& problem) {
    return {"lse is log2", [problem] {
                auto tensors = value_tensors(*problem);
                std::erase_if(tensors, [](const TierTensor& tensor) { return tensor.role != Role::lse; });
                for (TierTensor& tensor : tensors)
                    for (double& value : tensor.noise.value) value /= std::log(2.0);
                return tensors;
            },
            "lse"};
}

/// The LSE alone, without the maximum that is taken off the logits.
Hypothesis lse_without_maximum(const Shared& problem) {
    return {"lse is the logarithm of the row sum without the row maximum", [problem] {
                const AttentionNumbers numbers(*problem);
                const auto rows = static_cast<std::size_t>(problem->query_rows());
                std::vector<double> output(rows * static_cast<std::size_t>(problem->shape.value_dim)), row_max(rows);
                TierTensor lse;
                lse.name = "lse";
                lse.noise.value.resize(rows);
                ref::dense_attention<double>(problem->forward(numbers), output, row_max, lse.noise.value);
                for (double& value : lse.noise.value) value = std::log(value);
                return std::vector{std::move(lse)};
            },
            "lse"};
}

/// Changes the columns of a row in place.
using ColumnChange = std::function<void(std::int64_t t, std::int64_t n, Columns& columns)>;

bool before(const ref::KeyColumn& a, const ref::KeyColumn& b) { return a.key < b.key; }

/// The problem with a change, which is made when it is asked for: a problem may be large.
Hypothesis with_change(std::string text, Shared problem, Change change, bool queries_only = false) {
    return {std::move(text), [problem = std::move(problem), change = std::move(change), queries_only] {
                AttentionProblem changed = *problem;
                change(changed);
                auto tensors = value_tensors(changed);
                if (queries_only)
                    std::erase_if(tensors, [](const TierTensor& tensor) {
                        return tensor.row_word != "query";
                    });
                return tensors;
            }};
}

/// Attention in tiles of keys whose earlier sums keep their weights when a later tile has a larger logit: P V, and the
/// row sum, too, or not.
class UnscaledTiles {
public:
    UnscaledTiles(Shared problem, std::int64_t tile, bool of_sum)
        : shared_(std::move(problem)), problem_(*shared_), tile_(tile), of_sum_(of_sum) {}

    std::vector<TierTensor> tensors() const {
        const ref::AttentionShape& s = problem_.shape;
        const AttentionNumbers numbers(problem_);
        const auto places = ref::sequence_places(problem_.kv_lengths, s.kv_rows);
        TierTensor output;
        output.name = problem_.output_name;
        output.noise.value.resize(static_cast<std::size_t>(problem_.query_rows() * s.value_dim));
        for (std::int64_t row = 0; row < problem_.query_rows(); ++row)
            fill_row(numbers, places, row, output.noise.value.data() + row * s.value_dim);
        return {std::move(output)};
    }

private:
    void fill_row(const AttentionNumbers& numbers, const std::vector<ref::SequencePlace>& places,
                  std::int64_t row, double* output) const {
        const ref::AttentionShape& s = problem_.shape;
        const std::int64_t width = s.head_dim, head = row % s.query_heads,
                           kv_head = head / s.group();
        Columns columns;
        if (!problem_.columns(row / s.query_heads, head, columns) || columns.empty()) return;
        std::ranges::sort(columns, before);
        std::vector<double> logits, largest;  // of each column, and up to the end of its tile
        for (const ref::KeyColumn& column : columns) {
            const double* const key = numbers.key.data() + (column.key * s.kv_heads + kv_head) * width;
            double logit = numbers.scale *
                           std::inner_product(key, key + width, numbers.query.data() + row * width, 0.0);
            if (numbers.softcap > 0) logit = numbers.softcap * std::tanh(logit / numbers.softcap);
            logits.push_back(logit + column.bias);
        }
        largest = logits;
        const auto tile_of = [&](std::size_t c) {
            return places[static_cast<std::size_t>(columns[c].key)].position / tile_;
        };
        for (std::size_t c = 1; c < largest.size(); ++c) largest[c] = std::max(largest[c], largest[c - 1]);
        for (std::size_t c = largest.size() - 1; c-- > 0;)
            if (tile_of(c) == tile_of(c + 1)) largest[c] = largest[c + 1];
        double sum = problem_.sink.empty()
                         ? 0
                         : std::exp(problem_.sink[static_cast<std::size_t>(head)] - largest.back());
        for (std::size_t c = 0; c < logits.size(); ++c) {
            const double weight = std::exp(logits[c] - largest[c]);
            sum += of_sum_ ? weight : std::exp(logits[c] - largest.back());
            if (!columns[c].kept) continue;
            const double* const value =
                numbers.value.data() + (columns[c].key * s.kv_heads + kv_head) * s.value_dim;
            for (std::int64_t d = 0; d < s.value_dim; ++d) output[d] += weight * value[d] / numbers.keep_prob;
        }
        for (std::int64_t d = 0; d < s.value_dim; ++d) output[d] /= sum;
    }

    Shared shared_;
    const AttentionProblem& problem_;
    std::int64_t tile_;
    bool of_sum_;
};

using Logit = std::function<double(double score, double bias)>;

/// Makes each logit the given function of its score and its bias. A gradient takes the difference from the score for a bias.
void replace_logits(AttentionProblem& problem, Logit logit) {
    const AttentionNumbers numbers(problem);
    const ref::AttentionShape s = problem.shape;
    problem.softcap = 0;
    problem.columns = [columns = problem.columns, query = numbers.query, key = numbers.key, s, scale = problem.scale,
                       logit = std::move(logit)](std::int64_t t, std::int64_t n, Columns& to) {
        if (!columns(t, n, to)) return false;
        const double* const row = query.data() + (t * s.query_heads + n) * s.head_dim;
        for (ref::KeyColumn& column : to) {
            const double* const other = key.data() + (column.key * s.kv_heads + n / s.group()) * s.head_dim;
            const double score = scale * std::inner_product(row, row + s.head_dim, other, 0.0);
            column.bias = logit(score, column.bias) - score;
        }
        return true;
    };
}

class Lister {
public:
    explicit Lister(const AttentionProblem& problem)
        : shared_(std::make_shared<const AttentionProblem>(problem)), problem_(*shared_) {}

    std::vector<Hypothesis> list() {
        masks();
        arguments();
        features();
        heads();
        scales();
        tiles();
        return std::move(out_);
    }

private:
    void add(const char* text, Change change, bool queries_only = false) {
        out_.push_back(with_change(text, shared_, std::move(change), queries_only));
    }

    void add_columns(const char* text, ColumnChange change) {
        add(text, [change = std::move(change)](AttentionProblem& changed) {
            changed.columns = [columns = changed.columns, change](std::int64_t t, std::int64_t n, Columns& to) {
                if (!columns(t, n, to)) return false;
                change(t, n, to);
                return true;
            };
        });
    }

    void masks() {
        const auto hide = [](bool last) {
            return [last](std::int64_t, std::int64_t, Columns& columns) {
                if (columns.empty()) return;
                columns.erase(last ? std::max_element(columns.begin(), columns.end(), before)
                                   : std::min_element(columns.begin(), columns.end(), before));
            };
        };
        add_columns("mask shifted by one key (last visible key hidden)", hide(true));
        add_columns("mask shifted by one key (first visible key hidden)", hide(false));
        const auto places = ref::sequence_places(problem_.kv_lengths, problem_.shape.kv_rows);
        const auto show = [places](std::int64_t step) {
            return [places, step](std::int64_t, std::int64_t, Columns& columns) {
                if (columns.empty()) return;
                ref::KeyColumn edge =
                    step > 0 ? *std::max_element(columns.begin(), columns.end(), before)
                             : *std::min_element(columns.begin(), columns.end(), before);
                const auto sequence = places[static_cast<std::size_t>(edge.key)].sequence;
                edge.key += step;
                if (edge.key >= 0 && edge.key < std::ssize(places) &&
                    places[static_cast<std::size_t>(edge.key)].sequence == sequence)
                    columns.push_back(edge);
            };
        };
        add_columns("mask shifted by one key (one key too many at the end)", show(1));
        add_columns("mask shifted by one key (one key too many at the beginning)", show(-1));
        const auto queries =
            ref::sequence_places(problem_.query_lengths, problem_.shape.query_rows);
        add_columns("last key of each sequence left out",
                    [places](std::int64_t, std::int64_t, Columns& columns) {
                        std::erase_if(columns, [&](const ref::KeyColumn& column) {
                            const ref::SequencePlace& place = places[static_cast<std::size_t>(column.key)];
                            return place.position + 1 == place.length;
                        });
                    });
        add_columns("mask not applied",
                    [places, queries](std::int64_t t, std::int64_t, Columns& columns) {
                        const auto sequence = queries[static_cast<std::size_t>(t)].sequence;
                        // Those that are visible keep their bias and their drop bit.
                        std::vector<bool> visible(places.size());
                        for (const ref::KeyColumn& column : columns)
                            visible[static_cast<std::size_t>(column.key)] = true;
                        for (std::int64_t key = 0; key < std::ssize(places); ++key) {
                            const auto at = static_cast<std::size_t>(key);
                            if (places[at].sequence == sequence && !visible[at])
                                columns.push_back({key, 0, true});
                        }
                    });
    }

    void arguments() {
        if (!problem_.misreadings) return;
        for (Misreading& one : problem_.misreadings(problem_))
            add(one.text.c_str(), [columns = std::move(one.columns)](AttentionProblem& changed) {
                changed.columns = [rows = changed.columns, columns](std::int64_t t, std::int64_t n, Columns& to) {
                    Columns ignored;
                    return rows(t, n, ignored) && columns(t, n, to);
                };
            });
    }

    void features() {
        add_columns("bias not applied", [](std::int64_t, std::int64_t, Columns& columns) {
            for (auto& column : columns) column.bias = 0;
        });
        if (problem_.softcap > 0) softcaps();
        if (!problem_.sink.empty())
            add("sink not applied", [](AttentionProblem& changed) { changed.sink.clear(); });
        add_columns("dropout not applied", [](std::int64_t, std::int64_t, Columns& columns) {
            for (auto& column : columns) column.kept = true;
        });
        if (problem_.statistics == Statistics::lse && !problem_.gradient)
            out_.push_back(lse_of_base_2(shared_)), out_.push_back(lse_without_maximum(shared_));
        if (problem_.keep_prob != 1)
            add("factor 1/keep_prob left out", [](AttentionProblem& changed) { changed.keep_prob = 1; });
    }

    void softcaps() {
        add("softcap not applied", [](AttentionProblem& changed) { changed.softcap = 0; });
        const auto add_logit = [&](const char* text, Logit logit) {
            add(text, [logit = std::move(logit)](AttentionProblem& changed) { replace_logits(changed, logit); });
        };
        const double scale = problem_.scale;
        const auto capped = [cap = problem_.softcap](double score) { return cap * std::tanh(score / cap); };
        if (problem_.gradient)
            return add_logit("slope of the softcap left out of dS",
                             [=](double score, double bias) { return capped(score) + bias; });
        add_logit("bias added before the softcap", [=](double score, double bias) { return capped(score + bias); });
        add_logit("softcap applied twice",
                  [=](double score, double bias) { return capped(capped(score)) + bias; });
        if (scale != 0)
            add_logit("softcap applied before the scale",
                      [=](double score, double bias) { return scale * capped(score / scale) + bias; });
    }

    /// K and V with one head for every query head: that of head source(n).
    static void spread_kv_heads(AttentionProblem& changed,
                                const std::function<std::int64_t(std::int64_t)>& source) {
        const ref::AttentionShape s = changed.shape;
        changed.shape.kv_heads = s.query_heads;
        const auto spread = [&](const Bits& from, std::int64_t width) {
            Bits to;
            for (std::int64_t row = 0; row < s.kv_rows; ++row)
                for (std::int64_t n = 0; n < s.query_heads; ++n) {
                    const auto first = from.begin() + (row * s.kv_heads + source(n)) * width;
                    to.insert(to.end(), first, first + width);
                }
            return to;
        };
        changed.key = spread(changed.key, s.head_dim);
        changed.value = spread(changed.value, s.value_dim);
    }

    void add_kv_heads(const char* text, std::function<std::int64_t(std::int64_t)> source) {
        add(text, [source = std::move(source)](AttentionProblem& changed) { spread_kv_heads(changed, source); }, true);
    }

    void heads() {
        const std::int64_t kv_heads = problem_.shape.kv_heads, group = problem_.shape.group();
        if (kv_heads > 1) {
            add_kv_heads("key/value head of the neighbour read",
                         [=](std::int64_t n) { return (n / group + 1) % kv_heads; });
            if (group > 1)
                add_kv_heads("query head h reads key/value head h mod Hkv instead of h / (Hq / Hkv)",
                             [=](std::int64_t n) { return n % kv_heads; });
            add_kv_heads("key/value head 0 read by all heads", [](std::int64_t) { return std::int64_t{0}; });
        }
        if (group == 1 || !problem_.gradient) return;
        add_columns("only the last head of a group counts",
                    [group](std::int64_t, std::int64_t n, Columns& columns) {
                        if (n % group != group - 1) columns.clear();
                    });
        add_columns("only the first head of a group counts",
                    [group](std::int64_t, std::int64_t n, Columns& columns) {
                        if (n % group != 0) columns.clear();
                    });
    }

    void scales() {
        const auto add_scale = [&](const char* text, double scale) {
            if (scale != problem_.scale)
                add(text, [scale](AttentionProblem& changed) { changed.scale = scale; });
        };
        if (problem_.gradient) return;  // gains show it there
        add_scale("scale left out", 1);
        add_scale("scale applied twice", problem_.scale * problem_.scale);
        add_scale("absolute value of the scale taken", std::fabs(problem_.scale));
        add_scale("scale negated", -problem_.scale);
        const auto dim = static_cast<double>(problem_.shape.head_dim),
                   value_dim = static_cast<double>(problem_.shape.value_dim);
        add_scale("scale taken as 1/sqrt(D)", 1 / std::sqrt(dim));
        add_scale("scale taken as 1/D", 1 / dim);
        add_scale("scale taken as 1/sqrt(Dv)", 1 / std::sqrt(value_dim));
    }

    /// The usual sizes that cut some sequence.
    void tiles() {
        if (problem_.gradient || problem_.kv_lengths.empty()) return;
        const std::int64_t longest = *std::ranges::max_element(problem_.kv_lengths);
        for (const std::int64_t tile : ref::kProbedTiles)
            for (const bool of_sum : {false, true})
                if (tile < longest)
                    out_.push_back({fmt::format("{} of earlier tiles of {} keys not rescaled",
                                                of_sum ? "output and row sum" : "output", tile),
                                    [unscaled = UnscaledTiles(shared_, tile, of_sum)] { return unscaled.tensors(); },
                                    problem_.output_name});
    }

    Shared shared_;
    const AttentionProblem& problem_;  ///< the same
    std::vector<Hypothesis> out_;
};

}  // namespace

std::vector<Hypothesis> attention_hypotheses(const AttentionProblem& problem) {
    return Lister(problem).list();
}

}  // namespace attncheck::properties
