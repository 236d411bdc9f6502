#include "properties/candidate/syscall_filter.h"

#include <asm/sockios.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <initializer_list>

#include "properties/candidate/process_family.h"
#include "properties/candidate/protocol.h"

namespace attncheck::properties {
namespace {

/// Calls that newer kernels have and the installed libseccomp may not know; the same numbers on
/// every architecture.
constexpr int kFchmodat2 = 452, kSetxattrat = 463, kRemovexattrat = 466, kOpenTreeAttr = 467,
              kFileSetattr = 469;

/// Other processes, the kernel, the machine.
constexpr int kRefused[] = {
    SCMP_SYS(ptrace), SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev),
    SCMP_SYS(process_madvise), SCMP_SYS(process_mrelease), SCMP_SYS(pidfd_getfd), SCMP_SYS(kcmp),
    SCMP_SYS(mount), SCMP_SYS(umount), SCMP_SYS(umount2), SCMP_SYS(move_mount), SCMP_SYS(open_tree),
    SCMP_SYS(fsopen), SCMP_SYS(fsconfig), SCMP_SYS(fsmount), SCMP_SYS(fspick),
    SCMP_SYS(mount_setattr), SCMP_SYS(pivot_root), SCMP_SYS(chroot), SCMP_SYS(unshare),
    SCMP_SYS(setns), SCMP_SYS(bpf), SCMP_SYS(keyctl), SCMP_SYS(add_key), SCMP_SYS(request_key),
    SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter), SCMP_SYS(io_uring_register),
    SCMP_SYS(perf_event_open), SCMP_SYS(userfaultfd), SCMP_SYS(open_by_handle_at),
    SCMP_SYS(kexec_load), SCMP_SYS(kexec_file_load), SCMP_SYS(init_module),
    SCMP_SYS(finit_module), SCMP_SYS(delete_module), SCMP_SYS(reboot), SCMP_SYS(swapon),
    SCMP_SYS(swapoff), SCMP_SYS(sethostname), SCMP_SYS(setdomainname), SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime), SCMP_SYS(acct), SCMP_SYS(quotactl), SCMP_SYS(iopl), SCMP_SYS(ioperm),
    SCMP_SYS(syslog), SCMP_SYS(vhangup), SCMP_SYS(fanotify_init), kOpenTreeAttr, SCMP_SYS(seccomp),
    // They outlive their process.
    SCMP_SYS(shmget), SCMP_SYS(msgget), SCMP_SYS(semget), SCMP_SYS(mq_open),
    // Memory that no limit sees.
    SCMP_SYS(memfd_secret)};

/// Landlock has no right for them. A compiler that marks its output executable goes on.
constexpr int kPretended[] = {
    SCMP_SYS(chmod), SCMP_SYS(fchmod), SCMP_SYS(fchmodat), kFchmodat2, SCMP_SYS(chown),
    SCMP_SYS(lchown), SCMP_SYS(fchown), SCMP_SYS(fchownat), SCMP_SYS(utime), SCMP_SYS(utimes),
    SCMP_SYS(futimesat), SCMP_SYS(utimensat), SCMP_SYS(setxattr), SCMP_SYS(lsetxattr),
    SCMP_SYS(fsetxattr), kSetxattrat, SCMP_SYS(removexattr), SCMP_SYS(lremovexattr),
    SCMP_SYS(fremovexattr), kRemovexattrat, kFileSetattr};

constexpr unsigned kNamespaces[] = {CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                    CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET};

class Filter {
public:
    Filter() : context_(seccomp_init(SCMP_ACT_ALLOW)) {}
    ~Filter() {
        if (context_) seccomp_release(context_);
    }
    Filter(const Filter&) = delete;
    Filter& operator=(const Filter&) = delete;

    /// A call that this architecture lacks needs no rule.
    void refuse(int call, std::initializer_list<scmp_arg_cmp> where = {}, int error = EPERM) {
        if (call < 0) return;
        const int result = seccomp_rule_add_array(context_, SCMP_ACT_ERRNO(error), call,
                                                  static_cast<unsigned>(where.size()), where.begin());
        is_complete_ = is_complete_ && result == 0;
    }

    bool load() {
        // Without it every thread would run with speculation barriers where the system still asks
        // for them in filtered processes.
        (void)seccomp_attr_set(context_, SCMP_FLTATR_CTL_SSB, 1);
        return is_complete_ && seccomp_load(context_) == 0;
    }

    bool is_there() const { return context_ != nullptr; }

private:
    scmp_filter_ctx context_;
    bool is_complete_ = true;
};

/// The system takes 32 bits of such arguments: the upper ones may hold anything.
scmp_arg_cmp is(unsigned index, std::uint64_t value) {
    constexpr std::uint64_t kLower = 0xffffffff;
    return {index, SCMP_CMP_MASKED_EQ, kLower, value};
}

scmp_arg_cmp is_not(unsigned index, std::uint64_t value) {
    return {index, SCMP_CMP_NE, value, 0};
}

scmp_arg_cmp has(unsigned index, std::uint64_t bits) {
    return {index, SCMP_CMP_MASKED_EQ, bits, bits};
}

/// Limits and priorities of others: a process names itself by 0.
void refuse_ruling_others(Filter& filter) {
    for (const int call : {SCMP_SYS(setpriority), SCMP_SYS(ioprio_set)})
        filter.refuse(call, {is_not(1, 0)});
    for (const int call :
         {SCMP_SYS(prlimit64), SCMP_SYS(sched_setscheduler), SCMP_SYS(sched_setparam),
          SCMP_SYS(sched_setattr), SCMP_SYS(move_pages), SCMP_SYS(migrate_pages)})
        filter.refuse(call, {is_not(0, 0)});
}

void refuse_signalling_others(Filter& filter) {
    const auto own = static_cast<std::uint64_t>(getpid());
    for (const int call : {SCMP_SYS(kill), SCMP_SYS(tgkill), SCMP_SYS(rt_sigqueueinfo),
                           SCMP_SYS(rt_tgsigqueueinfo)}) {
        filter.refuse(call, {{0, SCMP_CMP_LT, own, 0}});
        filter.refuse(call, {{0, SCMP_CMP_GT, own, 0}});
    }
    filter.refuse(SCMP_SYS(tkill));
    filter.refuse(SCMP_SYS(pidfd_open));
    filter.refuse(SCMP_SYS(pidfd_send_signal));
}

/// A file may send signals too, of any number, to whoever is named as its owner.
void refuse_owning_files(Filter& filter) {
    for (const int command : {F_SETOWN, F_SETOWN_EX})
        filter.refuse(SCMP_SYS(fcntl), {is(1, static_cast<std::uint64_t>(command))});
    for (const std::uint64_t request : {FIOSETOWN, SIOCSPGRP})
        filter.refuse(SCMP_SYS(ioctl), {is(1, request)});
}

/// The file of a corpus, say: who opens it would wait until the lease is broken.
void refuse_leases(Filter& filter) {
    filter.refuse(SCMP_SYS(fcntl), {is(1, F_SETLEASE)});
}

/// Guard pages would be put aside for a moment: nothing that is mapped now lies at a place of the
/// arena, and nothing leaves it. The worker maps the arena once, where nothing is.
void refuse_moving_the_arena(Filter& filter) {
    constexpr std::uint64_t kPlace = ~(kArenaSizes[0] - 1);
    static_assert((kArenaAddress & ~kPlace) == 0);
    const scmp_arg_cmp in_arena{0, SCMP_CMP_MASKED_EQ, kPlace, kArenaAddress};
    filter.refuse(SCMP_SYS(mmap), {in_arena, has(3, MAP_FIXED)});
    filter.refuse(SCMP_SYS(munmap), {in_arena});
    filter.refuse(SCMP_SYS(mremap), {in_arena});
    filter.refuse(SCMP_SYS(mremap), {has(3, MREMAP_FIXED)});
    filter.refuse(SCMP_SYS(remap_file_pages), {in_arena});
}

/// Pairs alone, none of them of datagrams: such a one sends to any address. CUDA refuses to begin
/// where it cannot listen on a local socket, which reaches nobody: nothing connects.
void refuse_sockets(Filter& filter, bool may_listen) {
    constexpr std::uint64_t kKind = 0xf;  // the rest are flags
    if (may_listen) {
        filter.refuse(SCMP_SYS(socket), {is_not(0, AF_UNIX)}, EACCES);
        for (const std::uint64_t kind : {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW})
            filter.refuse(SCMP_SYS(socket), {{1, SCMP_CMP_MASKED_EQ, kKind, kind}}, EACCES);
    } else {
        filter.refuse(SCMP_SYS(socket), {}, EACCES);
    }
    for (const std::uint64_t kind : {SOCK_DGRAM, SOCK_RAW})
        filter.refuse(SCMP_SYS(socketpair), {{1, SCMP_CMP_MASKED_EQ, kKind, kind}}, EACCES);
    filter.refuse(SCMP_SYS(connect), {}, EACCES);
}

/// What the suite knows its processes by, and ends them by.
void refuse_hiding(Filter& filter) {
    filter.refuse(SCMP_SYS(prctl), {is(0, PR_SET_DUMPABLE)});
    filter.refuse(SCMP_SYS(prctl), {is(0, PR_SET_PDEATHSIG), is_not(1, SIGKILL)});
    filter.refuse(SCMP_SYS(prctl), {is(0, PR_SET_CHILD_SUBREAPER), is(1, 0)});
    filter.refuse(SCMP_SYS(setrlimit), {is(0, kMarkedLimit)});
    filter.refuse(SCMP_SYS(prlimit64), {is(1, kMarkedLimit), is_not(2, 0)});
    filter.refuse(SCMP_SYS(clone), {has(0, CLONE_PARENT)});
    // The suite looks at the descriptors of a process: no thread starts with its own or separates
    // them later.
    filter.refuse(SCMP_SYS(clone),
                  {{0, SCMP_CMP_MASKED_EQ, CLONE_THREAD | CLONE_FILES, CLONE_THREAD}});
    filter.refuse(SCMP_SYS(close_range), {has(2, CLOSE_RANGE_UNSHARE)});
}

/// A second filter could let the worker's calls do nothing.
void refuse_filters(Filter& filter) {
    filter.refuse(SCMP_SYS(prctl), {is(0, PR_SET_SECCOMP)});
}

}  // namespace

bool has_syscall_filter() { return true; }

bool enter_syscall_filter(FilterChoice choice) {
    Filter filter;
    if (!filter.is_there()) return false;
    for (const int call : kRefused) filter.refuse(call);
    for (const int call : kPretended) filter.refuse(call, {}, 0);
    for (const unsigned kind : kNamespaces) filter.refuse(SCMP_SYS(clone), {has(0, kind)});
    // Its arguments lie in memory, out of a filter's sight; the C library then takes clone.
    filter.refuse(SCMP_SYS(clone3), {}, ENOSYS);
    refuse_sockets(filter, choice.has_devices);
    refuse_ruling_others(filter);
    refuse_hiding(filter);
    refuse_filters(filter);
    refuse_owning_files(filter);
    refuse_leases(filter);
    refuse_moving_the_arena(filter);
    if (choice.limits_signals) refuse_signalling_others(filter);
    return filter.load();
}

}  // namespace attncheck::properties
