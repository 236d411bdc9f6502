// AttentionDecode as cases: fields, how pages are given to sequences, and how a Spec becomes a call.
//
//   attention_decode{dtype=bf16 q=[1,1] kv=[33,16] kv_heads=2 group=4 dim=64 value_dim=64 page=16
//   pages=shuffled shared=prefix spare=1 rest=nan scale=rsqrt data=normal seed=7}
//
// q holds the number of queries, the same for every sequence; kv the lengths. pages, shared and
// spare say which page of the cache a sequence has where (pages.cc), slack and tail what the block
// table holds behind the last page, rest what the slots hold that belong to no sequence.
#pragma once

#include "properties/case/attention_data.h"
#include "properties/laws/attention_parts.h"
#include "properties/operators/operator.h"
#include "ref/operators/attention_decode.h"

namespace attncheck::properties {

/// The order of the pages in the cache: as the sequences use them, the other way round, or any.
enum class PageOrder { ascending, descending, shuffled };
/// Which pages sequences have in common with the first one: half of the full pages that they may, or
/// every page, the last and partly used one among them.
enum class PageSharing { none, prefix, all };
/// Entries of the block table behind the last page of a sequence.
enum class TailEntries { minus_one, huge, foreign, mixed };
/// Where values lie: in a cache of their own, or as the first channels of the keys (multi-head latent attention).
enum class ValuePlace { own, in_keys };
/// The content of slots that are no position of a sequence.
enum class RestValues { normal, nan, infinite, huge };

/// A problem as dense parts: what relations change and build again. Keys and values are the rows of
/// the cache [pages * page_size, Hkv, ...].
struct DecodeParts : AttentionParts {
    ref::DecodeShape shape;
    double scale = 1, softcap = 0;         ///< as passed, binary64
    std::vector<std::int32_t> block_table; ///< [B, table_columns]
    Bits sink;                             ///< fp32 [Hq]; empty: absent
    bool gives_lse = true;
    std::int64_t cache_order = 0;          ///< field `cache`

    std::size_t entry_number(std::size_t b, std::int64_t p) const {
        return b * static_cast<std::size_t>(shape.table_columns) + static_cast<std::size_t>(p);
    }
    /// Page of the cache that holds page p of sequence b.
    std::int32_t& entry(std::size_t b, std::int64_t p) { return block_table[entry_number(b, p)]; }
    std::int32_t entry(std::size_t b, std::int64_t p) const {
        return block_table[entry_number(b, p)];
    }
    /// Row of the cache that holds a position.
    std::int64_t row_of(std::size_t b, std::int64_t position) const {
        return entry(b, position / shape.page_size) * shape.page_size + position % shape.page_size;
    }
};

// ---- pages.cc ----

/// Pages of the cache, and columns of the block table, of these fields.
std::int64_t decode_pages(const Extents& extents);
std::int64_t decode_table_columns(const Extents& extents);
std::vector<std::int32_t> decode_block_table(const Extents& extents);
/// Puts a number into all slots of the cache that are no position of a sequence.
void fill_unowned(DecodeParts& parts, std::uint32_t bits);

// ---- the rest ----

const Description& decode_description();
Call build_decode_call(const Spec& spec);

Spec sample_decode(const Schema& schema, Random& random, int size, Profile profile);
Spec plain_decode(const Schema& schema, Random& random);
std::vector<std::string> decode_labels(const Spec& spec);
std::vector<RequiredClass> decode_required_classes();
/// Legal page and window fields for other lengths; every sequence has `queries` queries.
void set_queries(Spec& spec, std::int64_t queries);

std::unique_ptr<Operator> make_attention_decode();

std::vector<Property> decode_properties();
std::vector<Spec> decode_large_cases(const Schema& schema, std::int64_t length,
                                     std::uint64_t seed);
void add_decode_validation(std::vector<Property>& list);

}  // namespace attncheck::properties
