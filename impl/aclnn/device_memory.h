#ifndef ATTNCHECK_IMPL_ACLNN_DEVICE_MEMORY_H
#define ATTNCHECK_IMPL_ACLNN_DEVICE_MEMORY_H

#include <cstddef>
#include <memory>

/// Memory of the "device", and pinned memory of the host: ordinary memory, every live block on
/// record. Blocks that are allocated with ATTNCHECK_ACL_DEBUG=1 are guarded: filled with 0xFF (a
/// NaN in every float type), on separate pages that are closed to everybody but the library,
/// and not given out again soon after they are freed. A program that touches device memory from
/// the host, or a kernel that leaves its block, dies there, as it would fail on hardware.
namespace attncheck::aclnn {

enum class Side { kDevice, kHost };

/// A block of at least `bytes` (> 0), aligned to 64; null when no memory is left. The device has as
/// much memory as the machine.
void* allocate_block(std::size_t bytes, Side side);

/// False when no live block of that side starts there.
bool release_block(void* address, Side side);

void release_device_blocks();

/// All blocks stay open while one exists; openings nest and may overlap between threads. Work on a
/// stream runs with memory open; code of a first phase that reads device memory needs this.
class DeviceMemoryOpening {
public:
    DeviceMemoryOpening();
    ~DeviceMemoryOpening();
    DeviceMemoryOpening(const DeviceMemoryOpening&) = delete;
    DeviceMemoryOpening& operator=(const DeviceMemoryOpening&) = delete;
};

enum class Placement { kInside, kPastTheEnd, kElsewhere };

/// Where [address, address + bytes) lies: inside one live device block; begins inside one and
/// leaves it; or begins outside all of them. A block counts with its padding: its size rounded up
/// to 32, plus 32 bytes.
Placement device_placement(const void* address, std::size_t bytes);

struct Block;

/// One end of a copy: the block it begins in, if any, which stays alive and open as long as this
/// object does.
class CopyEnd {
public:
    CopyEnd(const void* address, std::size_t bytes);
    ~CopyEnd();
    CopyEnd(const CopyEnd&) = delete;
    CopyEnd& operator=(const CopyEnd&) = delete;

    bool in_block() const;      ///< begins in a live block of either side
    bool on_device() const;     ///< begins in a live device block
    bool leaves_block() const;  ///< begins in a live block of either side and runs past its end

private:
    std::shared_ptr<Block> block_;  // null outside all blocks
    bool leaves_block_ = false;
};

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_DEVICE_MEMORY_H
