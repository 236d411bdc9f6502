// attncheck-worker: loads one candidate library and runs the calls it is told to, so that whatever
// the candidate does to its process stays there. Started by the suite (worker_candidate.cc) as:
// attncheck-worker SOCKET_FD ARENA_FD LIB [LIBS]
// LIBS is for a LIB that stands in front of other libraries.
#include <attncheck/candidate.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "properties/candidate/exported_entries.h"
#include "properties/candidate/protocol.h"

namespace {

using namespace attncheck::properties;

using EntryPoint = int (*)(const void*);

int g_socket = -1;

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
std::string first_line(const char* text) {
    std::string line(text, strnlen(text, kLongestWord));
    return line.substr(0, line.find('\n'));
}

void say_hello(std::string text) {
    text.resize(std::min<std::size_t>(text.size(), kLongestHello));
    const Hello hello{kHelloMagic, static_cast<std::uint32_t>(text.size())};
    write_all(g_socket, &hello, sizeof hello);
    write_all(g_socket, text.data(), text.size());
}

/// Tells the suite where the fault was, then dies of the same signal.
void on_fault(int signal_number, siginfo_t* info, void* context) {
    Reply reply{};
    reply.kind = Reply::fault;
    reply.signal = signal_number;
    reply.address = reinterpret_cast<std::uint64_t>(info->si_addr);
#if defined(__x86_64__)
    reply.is_write = (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
    (void)context;
#endif
    write_all(g_socket, &reply, sizeof reply);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void install_fault_handler() {
    static char stack[64 * 1024];
    stack_t alternate{};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND;
    for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(s, &action, nullptr);
}

void protect(std::uint64_t table_address, std::uint32_t count, int protection) {
    const auto* table = reinterpret_cast<const std::uint64_t*>(table_address);
    for (std::uint32_t i = 0; i < count; ++i)
        mprotect(reinterpret_cast<void*>(table[2 * i]), table[2 * i + 1], protection);
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
    std::atomic<std::uint32_t> ready{0};
    std::atomic<bool> cancelled{false};
    std::vector<std::thread> threads;
    try {
        for (std::uint32_t i = 0; i < count; ++i)
            threads.emplace_back([&, i] {
                ++ready;
                while (ready.load() < count && !cancelled.load()) {
                }
                if (!cancelled.load()) work(i);
            });
    } catch (const std::system_error&) {
        cancelled = true;
    }
    for (auto& thread : threads) thread.join();
    return !cancelled.load();
}

Reply serve(const Request& request, void* library) {
    Reply reply{};
    EntryPoint entry[kMaxCalls] = {};
    for (std::uint32_t i = 0; i < request.calls; ++i)
        entry[i] = reinterpret_cast<EntryPoint>(entry_named(library, request.op[i]));
    fill_heap(request.heap);
    protect(request.guards, request.guard_count, PROT_NONE);
    protect(request.inputs, request.input_count, PROT_READ);
    const auto start = std::chrono::steady_clock::now();
    const auto seconds = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    const auto repeat = [&](std::uint32_t i) {
        std::uint32_t k = 0;
        do
            reply.status[i] =
                entry[i](reinterpret_cast<const void*>(request.arguments[i]));
        while (++k < request.repetitions && seconds() < request.enough_s);
    };
    if (request.calls == 1)
        repeat(0);
    else if (!at_once(request.calls, repeat))
        reply.kind = Reply::not_run;
    reply.seconds = seconds();
    protect(request.guards, request.guard_count, PROT_READ | PROT_WRITE);
    protect(request.inputs, request.input_count, PROT_READ | PROT_WRITE);
    siginfo_t child{};
    reply.has_children = waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0;
    constexpr std::int64_t kKibPerMib = 1024;
    rusage usage{};
    if (getrusage(RUSAGE_SELF, &usage) == 0) reply.peak_mib = usage.ru_maxrss / kKibPerMib;
    return reply;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4 && argc != 5) {
        std::fprintf(stderr, "attncheck-worker is started by attncheck and is of no use alone\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // a daemon of the candidate's stays below this process
    g_socket = std::atoi(argv[1]);
    fcntl(g_socket, F_SETFD, FD_CLOEXEC);  // a program that the candidate starts cannot hold it
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (mmap(reinterpret_cast<void*>(kArenaAddress), kArenaBytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, std::atoi(argv[2]),
             0) == MAP_FAILED) {
        say_hello("cannot map the shared arena");
        return 2;
    }
    close(std::atoi(argv[2]));
    install_fault_handler();

    void* library = dlopen(argv[3], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        say_hello(dlerror());
        return 2;
    }
    const auto symbol = [&](const std::string& name) { return dlsym(library, name.c_str()); };
    const auto implements =
        reinterpret_cast<int (*)(const char*)>(symbol(kAdapterImplements));
    if (argc == 5) {
        const auto open = reinterpret_cast<const char* (*)(const char*)>(symbol(kAdapterOpen));
        if (!open || !implements) {
            say_hello(std::string(argv[3]) + " stands in front of no other libraries");
            return 2;
        }
        if (const char* problem = open(argv[4])) {
            say_hello(problem);
            return 2;
        }
    }
    const auto abi_version = reinterpret_cast<std::uint32_t (*)()>(symbol("attncheck_abi_version"));
    const auto name = reinterpret_cast<const char* (*)()>(symbol("attncheck_candidate_name"));
    if (!abi_version || !name) {
        say_hello(std::string(argv[3]) + " does not export " +
                  (abi_version ? "attncheck_candidate_name" : "attncheck_abi_version"));
        return 2;
    }
    if (abi_version() != ATTNCHECK_ABI_VERSION) {
        say_hello(std::string(argv[3]) + " has ABI version " + std::to_string(abi_version()) +
                  ", expected " + std::to_string(ATTNCHECK_ABI_VERSION));
        return 2;
    }
    const auto precision = reinterpret_cast<const char* (*)()>(symbol("attncheck_precision"));
    const auto features = reinterpret_cast<const char* (*)()>(symbol("attncheck_features"));
    std::string names, lines = features && features() ? features() : "";
    std::replace(lines.begin(), lines.end(), '\n', ';');
    for (const std::string& entry : exported_entries(library))
        if (!implements || implements(entry.c_str())) names += entry + ' ';
    const char* declared = precision ? precision() : nullptr;
    const char* named = name();
    say_hello(std::string("ok\n") + first_line(named ? named : "(unnamed)") + '\n' +
              first_line(declared ? declared : "") + '\n' + first_line(lines.c_str()) + '\n' + names);

    Request request;
    while (read_all(g_socket, &request, sizeof request)) {
        const Reply reply = serve(request, library);
        if (!write_all(g_socket, &reply, sizeof reply)) break;
    }
    _exit(kConnectionLost);  // the candidate's own destructors are not under test
}
