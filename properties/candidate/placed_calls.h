// Lays the buffers of calls out in the shared arena: each between two guard pages, flush with one
// of them, filled with a pattern; and tells afterwards what the call left there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "properties/candidate/candidate.h"
#include "properties/candidate/placed_buffer.h"
#include "properties/candidate/protocol.h"

namespace attncheck::properties {

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
    /// is_covered: elements are stored into every byte, so that only what is around them is filled.
    PlacedBuffer& add_buffer(std::size_t call, std::string name, std::size_t bytes,
                             std::size_t element_size, std::byte fill,
                             std::vector<std::int64_t> offsets = {}, bool is_covered = false);
    void note_outputs();
    std::uint64_t control(const void* data, std::size_t bytes);
    void place_tensor(std::size_t number, const Call& call, std::size_t index,
                      attncheck_tensor& out);
    /// The buffer of a tensor; views of one allocation have one.
    PlacedBuffer& buffer_for(std::size_t number, const Call& call, std::size_t index);
    /// The address at which an index of zeros lies.
    std::uint64_t first_element(const PlacedBuffer& buffer, const Call& call, const Tensor& tensor) const;

    RunOptions options_;
    Request request_{};
    std::uint64_t arena_bytes_ = 0, next_ = 0, next_control_ = 0;
    std::vector<std::uint64_t> guards_, inputs_, outputs_;
    std::vector<PlacedBuffer> buffers_;
    std::vector<std::size_t> tensor_counts_;  // per call
};

}  // namespace attncheck::properties
