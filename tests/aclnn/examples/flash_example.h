// What the flash attention examples share: one head, 256 queries and keys of 128 channels, all
// ones, a mask without marks, lengths where the layout is packed. C++11.
#ifndef ATTNCHECK_TESTS_ACLNN_EXAMPLES_FLASH_EXAMPLE_H
#define ATTNCHECK_TESTS_ACLNN_EXAMPLES_FLASH_EXAMPLE_H

#include "example.h"

namespace example {

const int64_t kRows = 256, kChannels = 128, kRopeChannels = 64;

struct FlashExample {
    Device device;
    aclDataType type;  // of the half tensors; float vectors are uploaded whatever it says
    Shape rows, rope_rows, statistics;
    Buffer query, key, value, query_rope, key_rope, mask;
    aclIntArray *prefix, *query_lengths, *key_lengths, *query_start, *key_start;
    char padded_layout[4], packed_layout[4], same_as_input[14];

    int Open(aclDataType element_type, bool packed) {
        CHECK(device.Open());
        type = element_type;
        rows = Shape{kRows, 1, kChannels};
        rope_rows = Shape{kRows, 1, kRopeChannels};
        statistics = packed ? Shape{kRows, 1, 8} : Shape{1, 1, kRows, 8};
        std::snprintf(padded_layout, sizeof padded_layout, "SBH");
        std::snprintf(packed_layout, sizeof packed_layout, "TND");
        std::snprintf(same_as_input, sizeof same_as_input, "same_as_input");
        CHECK(query.Fill<float>(1, rows, type));
        CHECK(key.Fill<float>(1, rows, type));
        CHECK(value.Fill<float>(1, rows, type));
        CHECK(query_rope.Fill<float>(1, rope_rows, type));
        CHECK(key_rope.Fill<float>(1, rope_rows, type));
        CHECK(mask.Fill<uint8_t>(0, Shape{kRows, kRows}, ACL_UINT8));
        const int64_t zero = 0, end = kRows;
        prefix = aclCreateIntArray(&zero, 1);
        query_start = aclCreateIntArray(&zero, 1);
        key_start = aclCreateIntArray(&zero, 1);
        query_lengths = aclCreateIntArray(&end, 1);
        key_lengths = aclCreateIntArray(&end, 1);
        return 0;
    }
    // The arrays leak.
    int Close() {
        Buffer* const all[] = {&query, &key, &value, &query_rope, &key_rope, &mask};
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) CHECK(all[i]->Free());
        return device.Close();
    }
};

struct FlashForward : FlashExample {
    Buffer row_max, row_sum, output;

    int Open(aclDataType element_type, bool packed) {
        CHECK(FlashExample::Open(element_type, packed));
        CHECK(row_max.Fill<float>(3, statistics, ACL_FLOAT));
        CHECK(row_sum.Fill<float>(3, statistics, ACL_FLOAT));
        return output.Fill<float>(0, rows, type);
    }
    int PrintAndClose() {
        CHECK(PrintFloats(output, CountOf(rows)));
        CHECK(PrintFloats(row_max, CountOf(statistics)));
        CHECK(PrintFloats(row_sum, CountOf(statistics)));
        CHECK(row_max.Free());
        CHECK(row_sum.Free());
        CHECK(output.Free());
        return Close();
    }
};

// Statistics of 3 and an output of 1 do not fit the inputs; the operator takes them as they are.
struct FlashBackward : FlashExample {
    Buffer output_grad, row_max, row_sum, output, dq, dk, dv, dq_rope, dk_rope;

    int Open(aclDataType element_type, bool packed) {
        CHECK(FlashExample::Open(element_type, packed));
        CHECK(output_grad.Fill<float>(1, rows, type));
        CHECK(row_max.Fill<float>(3, statistics, ACL_FLOAT));
        CHECK(row_sum.Fill<float>(3, statistics, ACL_FLOAT));
        CHECK(output.Fill<float>(1, rows, type));
        CHECK(dq.Fill<float>(0, rows, type));
        CHECK(dk.Fill<float>(0, rows, type));
        CHECK(dv.Fill<float>(0, rows, type));
        CHECK(dq_rope.Fill<float>(0, rope_rows, type));
        return dk_rope.Fill<float>(0, rope_rows, type);
    }
    int PrintAndClose(bool with_rope) {
        CHECK(PrintFloats(dq, CountOf(rows)));
        if (with_rope) CHECK(PrintFloats(dq_rope, CountOf(rope_rows)));
        CHECK(PrintFloats(dk, CountOf(rows)));
        if (with_rope) CHECK(PrintFloats(dk_rope, CountOf(rope_rows)));
        CHECK(PrintFloats(dv, CountOf(rows)));
        Buffer* const all[] = {&output_grad, &row_max, &row_sum, &output, &dq,
                               &dk,          &dv,      &dq_rope, &dk_rope};
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) CHECK(all[i]->Free());
        return Close();
    }
};

}  // namespace example

#endif  // ATTNCHECK_TESTS_ACLNN_EXAMPLES_FLASH_EXAMPLE_H
