#include "properties/candidate/worker_service.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

#include "properties/candidate/content_hash.h"
#include "properties/candidate/process_state.h"

namespace attncheck::properties {
namespace {

int g_socket = -1;
std::uint64_t g_number = 0;  ///< of the request that is being answered

bool write_all(int fd, const void* data, std::size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;  // a signal handler of the candidate
        if (n <= 0) return false;
        at += n;
        bytes -= static_cast<std::size_t>(n);
    }
    return true;
}

bool read_all(int fd, void* data, std::size_t bytes) {
    char* at = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t n = read(fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= static_cast<std::size_t>(n);
    }
    return true;
}

/// The first line of a text of the candidate's, as far as it fits.
std::string first_line(const std::string& text) {
    return text.substr(0, std::min(text.find('\n'), kLongestWord));
}

void say_hello(std::string text) {
    text.resize(std::min<std::size_t>(text.size(), kLongestHello));
    const Hello hello{kHelloMagic, static_cast<std::uint32_t>(text.size())};
    write_all(g_socket, &hello, sizeof hello);
    write_all(g_socket, text.data(), text.size());
}

/// Tells the suite where the fault was, then dies of the same signal.
void on_fault(int signal_number, siginfo_t* info, void* context) {
    if (info->si_code <= 0) {  // raised by a call of kill or raise: no address
        signal(signal_number, SIG_DFL);
        raise(signal_number);
        return;
    }
    Reply reply{};
    reply.number = g_number;
    reply.kind = Reply::fault;
    reply.signal = signal_number;
    reply.address = reinterpret_cast<std::uint64_t>(info->si_addr);
#if defined(__x86_64__)
    reply.is_write = (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
    (void)context;
#endif
    if (g_number > 0) write_all(g_socket, &reply, sizeof reply);  // else the library is being loaded
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

void install_fault_handler() {
    static char stack[64 * 1024];
    stack_t alternate{};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND;
    for (const int s : kFaults) sigaction(s, &action, nullptr);
}

/// A fault that another handler gets is hidden from the suite.
bool has_fault_handler() {
    return std::ranges::all_of(kFaults, [](int number) {
        struct sigaction action{};
        return sigaction(number, nullptr, &action) == 0 && action.sa_sigaction == on_fault;
    });
}

void protect(std::uint64_t table_address, std::uint32_t count, int protection) {
    const auto* table = reinterpret_cast<const std::uint64_t*>(table_address);
    for (std::uint32_t i = 0; i < count; ++i)
        mprotect(reinterpret_cast<void*>(table[2 * i]), table[2 * i + 1], protection);
}

std::uint64_t hash_of_ranges(std::uint64_t table_address, std::uint32_t count) {
    const auto* table = reinterpret_cast<const std::uint64_t*>(table_address);
    std::uint64_t hash = 0;
    for (std::uint32_t i = 0; i < count; ++i)
        hash = hash_of(reinterpret_cast<const void*>(table[2 * i]), table[2 * i + 1], hash);
    return hash;
}

/// Fills heap memory that comes and goes, so that a kernel which takes fresh memory for zeros shows
/// in its first call. Large blocks come from the heap too: the system's own are zero.
void fill_heap(std::uint32_t fill) {
#if defined(M_PERTURB)
    static std::uint32_t filled = 0;
    if (filled == 0) {
        constexpr int kMostOnHeap = 32 << 20;  // what the C library allows
        mallopt(M_MMAP_THRESHOLD, kMostOnHeap);
        mallopt(M_TRIM_THRESHOLD, 2 * kMostOnHeap);
    }
    if (filled != fill) mallopt(M_PERTURB, static_cast<int>(fill));
    filled = fill;
#else
    (void)fill;
#endif
}

/// Runs work(0) to work(count - 1), each on its own thread, when all threads are there. False
/// when the system has no more: that is not the candidate's fault.
bool at_once(std::uint32_t count, const std::function<void(std::uint32_t)>& work) {
    constexpr int kSpins = 10'000;  // some ten microseconds
    std::atomic<std::uint32_t> ready{0};
    std::atomic<bool> cancelled{false};
    std::vector<std::thread> threads;
    try {
        for (std::uint32_t i = 0; i < count; ++i)
            threads.emplace_back([&, i] {
                ++ready;
                // Where cores are fewer than threads, one that only spins keeps the others from coming.
                for (int spins = 0; ready.load() < count && !cancelled.load(); ++spins)
                    if (spins > kSpins) std::this_thread::yield();
                if (!cancelled.load()) work(i);
            });
    } catch (const std::system_error&) {
        cancelled = true;
    }
    for (auto& thread : threads) thread.join();
    return !cancelled.load();
}

Reply run(const Request& request, const ServedCandidate& candidate) {
    Reply reply{};
    reply.number = g_number = request.number;
    ServedEntry entry[kMaxCalls];
    for (std::uint32_t i = 0; i < request.calls; ++i) entry[i] = candidate.entry(request.op[i]);
    fill_heap(request.heap);
    protect(request.guards, request.guard_count, PROT_NONE);
    protect(request.inputs, request.input_count, PROT_READ);
    install_fault_handler();  // the library had its own, perhaps
    const ProcessState before = ProcessState::now();
    const auto start = std::chrono::steady_clock::now();
    const auto seconds = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    const auto repeat = [&](std::uint32_t i) {
        std::uint32_t k = 0;
        do
            reply.status[i] = entry[i](reinterpret_cast<const void*>(request.arguments[i]),
                                       reply.message[i]);
        while (++k < request.repetitions && seconds() < request.enough_s);
    };
    if (request.calls == 1)
        repeat(0);
    else if (!at_once(request.calls, repeat))
        reply.kind = Reply::not_run;
    reply.seconds = seconds();
    reply.output_hash = hash_of_ranges(request.outputs, request.output_count);
    reply.changes = changes_between(before, ProcessState::now());
    if (!has_fault_handler()) reply.changes |= kChangedHandler;
    protect(request.guards, request.guard_count, PROT_READ | PROT_WRITE);
    protect(request.inputs, request.input_count, PROT_READ | PROT_WRITE);
    siginfo_t child{};
    reply.has_children = waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0;
    constexpr std::int64_t kKibPerMib = 1024;
    rusage usage{};
    if (getrusage(RUSAGE_SELF, &usage) == 0) reply.peak_mib = usage.ru_maxrss / kKibPerMib;
    return reply;
}

}  // namespace

bool open_worker(int socket, int arena) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // a daemon of the candidate's stays below this process
    g_socket = socket;
    fcntl(g_socket, F_SETFD, FD_CLOEXEC);  // a program that the candidate starts cannot hold it
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    struct stat file{};
    if (fstat(arena, &file) != 0 ||
        mmap(reinterpret_cast<void*>(kArenaAddress), static_cast<std::size_t>(file.st_size),
             PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, arena,
             0) == MAP_FAILED) {
        refuse("cannot map the shared arena");
        return false;
    }
    close(arena);
    install_fault_handler();
    return true;
}

void refuse(const std::string& why) { say_hello(why); }

void serve(const ServedCandidate& candidate) {
    std::string names, lines = candidate.features;
    std::replace(lines.begin(), lines.end(), '\n', ';');
    for (const std::string& entry : candidate.entries) names += entry + ' ';
    say_hello("ok\n" + first_line(candidate.name) + '\n' + first_line(candidate.precision) + '\n' +
              first_line(lines) + '\n' + names);
    Request request;
    while (read_all(g_socket, &request, sizeof request)) {
        const Reply reply = run(request, candidate);
        if (!write_all(g_socket, &reply, sizeof reply)) break;
    }
}

}  // namespace attncheck::properties
