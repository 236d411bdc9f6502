/* Right, unless it reaches something beyond its process: then every answer is wrong. A wall that stands shows as a
   property that holds. */
#define _GNU_SOURCE
#include "hostile.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* A letter for each of the tricks that ATTNCHECK_TRICK names, separated by commas: 'y' what it reaches, 'n' what it does not. */
static char reached_text[256] = "reached ";
uint32_t attncheck_abi_version(void) { return ATTNCHECK_ABI_VERSION; }
const char* attncheck_candidate_name(void) { return reached_text; }

static int opens(const char* path, int flags) {
    const int file = open(path, flags | O_CLOEXEC);
    if (file >= 0) close(file);
    return file >= 0;
}

static int opens_of_parent(const char* name, int flags) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)getppid(), name);
    return opens(path, flags);
}

static int writes_memory_of_parent(void) { return opens_of_parent("mem", O_RDWR); }
static int reads_environment_of_parent(void) { return opens_of_parent("environ", O_RDONLY); }
static int opens_output_of_parent(void) { return opens_of_parent("fd/1", O_WRONLY); }
static int spares_itself(void) { return opens("/proc/self/oom_score_adj", O_WRONLY); }

static int signals_parent(void) { return kill(getppid(), 0) == 0; }
static int signals_guardian(void) { /* some process that is no relative */
    return kill(1, 0) == 0 || kill(atoi(target()), 0) == 0;
}
static int signals_by_descriptor(void) {
    const int parent = (int)syscall(SYS_pidfd_open, getppid(), 0);
    return parent >= 0 && syscall(SYS_pidfd_send_signal, parent, 0, NULL, 0) == 0;
}
static int signals_by_a_file(void) { /* a pipe that tells the suite of what comes, with a signal of choice */
    int ends[2];
    return pipe(ends) == 0 && fcntl(ends[0], F_SETOWN, getppid()) == 0 && fcntl(ends[0], F_GETOWN) == getppid();
}
static int traces_parent(void) { return ptrace(PTRACE_SEIZE, getppid(), NULL, NULL) == 0; }
static int traces_itself(void) {
    const pid_t child = fork();
    if (child == 0) _exit(ptrace(PTRACE_SEIZE, getppid(), NULL, NULL) == 0);
    int status = 0;
    return waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 1;
}
static int writes_to_parent(void) {
    char byte = 0;
    struct iovec here = {&byte, 1}, there = {(void*)0x2a0000000000, 1};
    return process_vm_writev(getppid(), &here, 1, &there, 1, 0) == 1;
}
static int limits_parent(void) {
    struct rlimit files;
    return prlimit(getppid(), RLIMIT_NOFILE, NULL, &files) == 0;
}
static int slows_parent(void) {
    return setpriority(PRIO_PROCESS, (id_t)getppid(), getpriority(PRIO_PROCESS, (id_t)getppid())) == 0;
}
static int takes_descriptors(void) {
    const int parent = (int)syscall(SYS_pidfd_open, getppid(), 0);
    return syscall(SYS_pidfd_getfd, parent, 1, 0) >= 0;
}

static int makes_a_file(void) {
    const int file = open(target(), O_WRONLY | O_CREAT, 0600);
    return file >= 0;
}
static int removes_a_file(void) {
    unlink(target());
    return access(target(), F_OK) != 0;
}
static int truncates_a_file(void) { return truncate(target(), 0) == 0; }
static int writes_through_a_link(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/link-%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
    if (link(target(), path) != 0 && symlink(target(), path) != 0) return 0;
    const int reached = opens(path, O_WRONLY);
    unlink(path);
    return reached;
}
static int opens_a_file_to_all(void) {
    struct stat after;
    chmod(target(), 0777);
    return stat(target(), &after) == 0 && (after.st_mode & 0777) == 0777;
}
static int marks_a_file(void) {
    struct stat after;
    const struct timespec long_ago[2] = {{1, 0}, {1, 0}};
    utimensat(AT_FDCWD, target(), long_ago, 0);
    return stat(target(), &after) == 0 && after.st_mtime == 1;
}
static int leases_a_file(void) { /* whoever opens it for writing waits */
    return fcntl(open(target(), O_RDONLY), F_SETLEASE, F_RDLCK) == 0;
}
static int raises_its_file_limit(void) {
    struct rlimit own;
    if (getrlimit(RLIMIT_FSIZE, &own) != 0 || own.rlim_cur == RLIM_INFINITY) return 1;
    own.rlim_cur = own.rlim_max = RLIM_INFINITY;
    return setrlimit(RLIMIT_FSIZE, &own) == 0;
}
static int writes_its_own_memory(void) { return opens("/proc/self/mem", O_RDWR); } /* whatever its pages allow */
static int makes_a_device(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/device", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    const int made = mknod(path, S_IFCHR | 0600, (1 << 8) | 1) == 0; /* the machine's memory */
    unlink(path);
    return made;
}
static int reads_a_secret(void) { return getenv("SECRET_OF_CI") != NULL; }
static int writes_to_the_caller(void) { return write(9, "forged\n", 7) == 7; }
static int reads_a_file(void) { return opens(target(), O_RDONLY); }
static int runs_a_program(void) {
    const pid_t child = fork();
    if (child == 0) {
        execl(target(), target(), "--version", (char*)NULL);
        _exit(1);
    }
    int status = 1;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
static int types_at_the_terminal(void) { return opens("/dev/tty", O_RDONLY) || opens("/dev/pts/ptmx", O_RDWR); }
static int shares_memory(void) { return opens("/dev/shm", O_RDWR | O_TMPFILE); }

static int connects(int family, int type) {
    const int made = socket(family, type, 0);
    if (made >= 0) close(made);
    return made >= 0;
}
static int opens_tcp(void) { return connects(AF_INET, SOCK_STREAM); }
static int opens_udp(void) { return connects(AF_INET, SOCK_DGRAM); }
static int opens_local_socket(void) { return connects(AF_UNIX, SOCK_STREAM); }
static int sends_to_an_address(void) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0) return 0;
    // A pair of datagrams reaches a service that listens: only its address is wrong here.
    const struct sockaddr_un nobody = {AF_UNIX, "/nowhere"};
    return sendto(ends[0], "x", 1, 0, (const struct sockaddr*)&nobody, sizeof nobody) < 0 && errno == ENOENT;
}
static int opens_netlink(void) { return connects(AF_NETLINK, SOCK_RAW); }

static int in_a_child(int (*work)(void)) {
    const pid_t child = fork();
    if (child == 0) _exit(work());
    int status = 0;
    return waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 1;
}
static int unshares(void) { return unshare(CLONE_NEWUSER) == 0 || unshare(CLONE_NEWNS) == 0; }
static int leaves_for_a_namespace(void) { return in_a_child(unshares); }
static int clones_a_namespace(void) {
    const long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    if (child > 0) waitpid((pid_t)child, NULL, 0);
    return child > 0;
}
static int becomes_a_sibling(void) {
    const long child = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    return child > 0;
}
static int queues_operations(void) {
    char parameters[256] = {0};
    return syscall(SYS_io_uring_setup, 1, parameters) >= 0;
}
static int adds_a_key(void) { return syscall(SYS_add_key, "user", "hostile", "x", 1, -3) > 0; }
static int leaves_shared_memory(void) { return shmget(0x5eed, 4096, IPC_CREAT | 0600) >= 0; }
static int hides_its_process(void) { return prctl(PR_SET_DUMPABLE, 0) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0; }
static int outlives_its_parent(void) {
    const int done = prctl(PR_SET_PDEATHSIG, 0) == 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return done;
}
static int takes_off_its_mark(void) {
    struct rlimit own;
    if (getrlimit(RLIMIT_RTTIME, &own) != 0) return 0;
    return setrlimit(RLIMIT_RTTIME, &own) == 0 || prlimit(0, RLIMIT_RTTIME, &own, NULL) == 0;
}
static int has_rights_of_root(void) {
    if (geteuid() != 0) return 0;
    return prctl(PR_CAPBSET_READ, 21 /* CAP_SYS_ADMIN */, 0, 0, 0) == 1;
}
static int may_gain_rights(void) { return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0; }
static int wait_on(void* unused) {
    (void)unused;
    for (;;) pause();
    return 0;
}
static int has_descriptors_of_a_thread(void) { /* whose memory nobody counts */
    static char stack[16384];
    return clone(wait_on, stack + sizeof stack, CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD, NULL) > 0;
}
static int separates_its_descriptors(void) { /* the same, by a thread that has started */
    return syscall(SYS_close_range, 1000000, ~0u, CLOSE_RANGE_UNSHARE) == 0;
}
static int filters_the_worker(void) { /* so that a call of the worker's does nothing and says that it did */
    struct sock_filter all[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    struct sock_fprog program = {1, all};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 ||
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}
static int truncates_the_arena(void) {
    char path[64], name[64];
    for (int fd = 3; fd < 64; ++fd) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(path, name, sizeof name - 1);
        if (length <= 0) continue;
        name[length] = 0;
        if (strstr(name, "memfd:attncheck") && ftruncate(fd, 0) == 0) return 1;
    }
    return 0;
}

static const struct {
    const char* name;
    int (*reaches)(void);
} kTricks[] = {
    TRICK(writes_memory_of_parent), TRICK(reads_environment_of_parent), TRICK(opens_output_of_parent),
    TRICK(spares_itself), TRICK(signals_parent), TRICK(signals_guardian), TRICK(signals_by_descriptor),
    TRICK(signals_by_a_file), TRICK(traces_parent), TRICK(traces_itself), TRICK(writes_to_parent),
    TRICK(limits_parent), TRICK(slows_parent), TRICK(takes_descriptors), TRICK(makes_a_file), TRICK(removes_a_file),
    TRICK(truncates_a_file), TRICK(writes_through_a_link), TRICK(opens_a_file_to_all), TRICK(marks_a_file),
    TRICK(leases_a_file), TRICK(raises_its_file_limit), TRICK(writes_its_own_memory), TRICK(makes_a_device),
    TRICK(reads_a_secret), TRICK(writes_to_the_caller), TRICK(reads_a_file),
    TRICK(runs_a_program), TRICK(types_at_the_terminal), TRICK(shares_memory), TRICK(opens_tcp), TRICK(opens_udp),
    TRICK(opens_local_socket), TRICK(sends_to_an_address), TRICK(opens_netlink), TRICK(leaves_for_a_namespace), TRICK(clones_a_namespace),
    TRICK(becomes_a_sibling), TRICK(queues_operations), TRICK(adds_a_key), TRICK(leaves_shared_memory),
    TRICK(hides_its_process), TRICK(outlives_its_parent), TRICK(takes_off_its_mark), TRICK(has_rights_of_root),
    TRICK(may_gain_rights), TRICK(truncates_the_arena), TRICK(has_descriptors_of_a_thread),
    TRICK(separates_its_descriptors), TRICK(filters_the_worker)};

static int reached;

static int reaches(const char* trick) {
    for (size_t k = 0; k < sizeof kTricks / sizeof kTricks[0]; ++k)
        if (strcmp(trick, kTricks[k].name) == 0) return kTricks[k].reaches();
    return 1; /* an unknown name */
}

__attribute__((constructor)) static void reach(void) {
    char tricks[4096];
    snprintf(tricks, sizeof tricks, "%s", getenv("ATTNCHECK_TRICK") ? getenv("ATTNCHECK_TRICK") : "");
    char* rest = NULL;
    for (char* one = strtok_r(tricks, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        const int is_reached = reaches(one);
        reached |= is_reached;
        const size_t length = strlen(reached_text);
        if (length + 1 < sizeof reached_text) reached_text[length] = is_reached ? 'y' : 'n';
    }
}

int attncheck_nsa_compress(const attncheck_nsa_compress_args* args) {
    if (reached)
        wrong_forward(args);
    else
        correct_forward(args);
    return ATTNCHECK_OK;
}
