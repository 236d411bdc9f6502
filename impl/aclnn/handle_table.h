#ifndef ATTNCHECK_IMPL_ACLNN_HANDLE_TABLE_H
#define ATTNCHECK_IMPL_ACLNN_HANDLE_TABLE_H

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace attncheck::aclnn {

/// A number for a new handle, shared by all tables: no two handles of the process are ever equal,
/// whatever their kinds, so that a stale one cannot come to life again. As an address it lies
/// outside every page a program can have (not canonical on x86-64, above 2^52 on arm64), so code
/// that dereferences a handle faults, and no address of the program is taken for a handle.
inline std::uintptr_t next_ticket() {
    static_assert(sizeof(std::uintptr_t) == 8, "tickets are 64-bit numbers");
    static std::atomic<std::uintptr_t> last{0x0a70'0000'0000'0000};
    return last.fetch_add(64, std::memory_order_relaxed) + 64;
}

/// The live objects of one kind by their handles. Opaque is what the handle points to in the C
/// interface; Object is copied out, so it is a value or a shared_ptr. Safe from any thread.
template <class Opaque, class Object>
class HandleTable {
public:
    Opaque* add(Object object) {
        const std::uintptr_t ticket = next_ticket();
        const std::lock_guard lock(mutex_);
        objects_.emplace(ticket, std::move(object));
        return reinterpret_cast<Opaque*>(ticket);
    }

    std::optional<Object> find(const Opaque* handle) const {
        const std::lock_guard lock(mutex_);
        const auto found = objects_.find(ticket_of(handle));
        return found == objects_.end() ? std::nullopt : std::optional(found->second);
    }

    /// Finds, and removes unless keep(object).
    template <class Keep>
    std::optional<Object> take_unless(const Opaque* handle, Keep keep) {
        const std::lock_guard lock(mutex_);
        const auto found = objects_.find(ticket_of(handle));
        if (found == objects_.end()) return std::nullopt;
        if (keep(std::as_const(found->second))) return found->second;
        std::optional<Object> object(std::move(found->second));
        objects_.erase(found);
        return object;
    }

    std::optional<Object> take(const Opaque* handle) {
        return take_unless(handle, [](const Object&) { return false; });
    }

    /// Removes and returns every object for which choose(object).
    template <class Choose>
    std::vector<Object> take_all(Choose choose) {
        std::vector<Object> taken;
        const std::lock_guard lock(mutex_);
        for (auto at = objects_.begin(); at != objects_.end();) {
            if (!choose(std::as_const(at->second))) {
                ++at;
                continue;
            }
            taken.push_back(std::move(at->second));
            at = objects_.erase(at);
        }
        return taken;
    }

    /// change(object) on the live object; false when there is none.
    template <class Change>
    bool update(const Opaque* handle, Change change) {
        const std::lock_guard lock(mutex_);
        const auto found = objects_.find(ticket_of(handle));
        if (found == objects_.end()) return false;
        change(found->second);
        return true;
    }

    std::vector<Object> all() const {
        std::vector<Object> objects;
        const std::lock_guard lock(mutex_);
        for (const auto& [ticket, object] : objects_) objects.push_back(object);
        return objects;
    }

private:
    static std::uintptr_t ticket_of(const Opaque* handle) {
        return reinterpret_cast<std::uintptr_t>(handle);
    }

    mutable std::mutex mutex_;
    std::unordered_map<std::uintptr_t, Object> objects_;
};

}  // namespace attncheck::aclnn

#endif  // ATTNCHECK_IMPL_ACLNN_HANDLE_TABLE_H
