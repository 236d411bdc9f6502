// Lays the buffers of calls out in the shared arena: each between two guard pages, flush with one
// of them, filled with a pattern; and tells afterwards what the call left there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "properties/candidate/candidate.h"
#include "properties/candidate/protocol.h"

namespace attncheck::properties {

inline std::byte* byte_at(std::uint64_t address) { return reinterpret_cast<std::byte*>(address); }

/// Guard pages are all ones, which is NaN in every float type: for whoever opens them to read past a buffer.
inline constexpr std::byte kGuardFill{0xFF};

/// A memfd mapped at kArenaAddress, shared with worker processes. Workers read its size from the file.
class Arena {
public:
    Arena();  ///< throws std::runtime_error when the system refuses
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    /// The arena of this process, as long as somebody holds it: candidates of one suite take turns.
    static std::shared_ptr<Arena> shared();
    int descriptor() const { return fd_; }
    std::uint64_t bytes() const { return bytes_; }
    std::int64_t resident_mib() const;  ///< pages that exist, whoever made them
    /// Returns pages to the system after a large case, and those that were not there before the
    /// call, when the arena had `before_mib`.
    void give_back(std::uint64_t bytes_used, std::int64_t before_mib);

    /// Remembers what lies in ranges {address, bytes} that calls of `owner` wrote to.
    void watch(const void* owner, std::vector<std::uint64_t> ranges);
    /// Whether that changed since `owner` said so, which is forgotten.
    bool was_written_late(const void* owner);

private:
    bool map(std::uint64_t bytes);
    std::uint64_t watched_hash() const;

    int fd_ = -1;
    std::uint64_t bytes_ = 0;
    const void* watching_ = nullptr;
    std::vector<std::uint64_t> watched_;
    std::uint64_t watched_as_ = 0;
};

/// One or several calls as they lie in the arena.
class PlacedCalls {
public:
    /// Throws NoRoom when the buffers need more than `arena_bytes`.
    PlacedCalls(const std::vector<const Call*>& calls, const RunOptions& options, int repetitions,
                std::uint64_t arena_bytes);

    const Request& request() const { return request_; }
    void number(std::uint64_t number) { request_.number = number; }
    /// Of the outputs as they are now; the worker has the same when its calls have returned.
    std::uint64_t output_hash() const;
    /// The beginnings of outputs, for Arena::watch.
    std::vector<std::uint64_t> beginnings_of_outputs() const;
    void stop_repeating_after(double seconds) { request_.enough_s = seconds; }
    std::uint64_t bytes_used() const { return next_; }

    /// Outputs and damage of call k, read back after it returned.
    void collect(std::size_t k, CallResult& result) const;

    /// Buffer whose guard page holds this address: "2 elements past the end of output"; empty if
    /// none.
    std::string locate(std::uint64_t address, std::string& tensor) const;

    /// Element of an input at this address: "element 2 of query"; empty if none.
    std::string locate_in_input(std::uint64_t address, std::string& tensor) const;

private:
    struct Pages {
        std::uint64_t begin = 0, end = 0;
    };
    struct Buffer {
        std::size_t call = 0, index = 0;  // index: of the tensor in its call
        const Tensor* tensor = nullptr;   // the first of its tensors; or an array
        std::string name;
        std::size_t element_size = 1;
        std::uint64_t first_page = 0, pages_end = 0;  // between the guards
        std::uint64_t begin = 0, end = 0;             // the bytes of the strided extent
        std::vector<std::int64_t>
            offsets;  // of logical elements, in elements from `begin`; dense: empty
        std::vector<Pages> pages;  // that elements touch, lowest first; what is between is a guard
        std::vector<std::byte> image;  // these pages as they were before the call, without shared bytes

        /// Bytes of a mask that many calls share fill all of the buffer: they are their own image.
        std::span<const std::uint8_t> shared() const;
        std::string hole_at(std::uint64_t address) const;  // empty: none
    };
    Buffer& add_buffer(std::size_t call, std::string name, std::size_t bytes,
                       std::size_t element_size, std::byte fill,
                       std::vector<std::int64_t> offsets = {});
    void add_pages(Buffer& buffer);
    void note_outputs();
    /// Whether a guard page of the buffer was written: the candidate had opened it.
    static bool is_guard_changed(const Buffer& buffer);
    /// The byte of a buffer's pages that changed first; nothing if none did.
    static const std::byte* first_change(const Buffer& buffer);
    void keep_image(Buffer& buffer) const;
    std::uint64_t control(const void* data, std::size_t bytes);
    /// Moves an output's elements out of its pages and puts the poison back in their place.
    std::vector<std::uint32_t> take_elements(const Buffer& buffer) const;
    void place_tensor(std::size_t number, const Call& call, std::size_t index,
                      attncheck_tensor& out);
    /// The buffer of a tensor; views of one allocation have one.
    Buffer& buffer_for(std::size_t number, const Call& call, std::size_t index);
    /// The address at which an index of zeros lies.
    std::uint64_t first_element(const Buffer& buffer, const Call& call, const Tensor& tensor) const;

    RunOptions options_;
    Request request_{};
    std::uint64_t arena_bytes_ = 0, next_ = 0, next_control_ = 0;
    std::vector<std::uint64_t> guards_, inputs_, outputs_;
    std::vector<Buffer> buffers_;
    std::vector<std::size_t> tensor_counts_;  // per call
};

}  // namespace attncheck::properties
