/* Breaks a rule and hides it: each trick would pass if the suite believed what the process says. */
#define _GNU_SOURCE
#include "hostile.h"

#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

IDENTIFY_AS("deceives")

typedef attncheck_nsa_compress_args args_t;
static int calls;

static void* page_of(const void* address) { return (void*)((uintptr_t)address & ~(uintptr_t)4095); }

static int socket_of_the_suite(void) {
    struct stat file;
    for (int fd = 3; fd < 64; ++fd)
        if (fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode)) return fd;
    return -1;
}

/* Out of bounds. */
static void opens_guards_to_write(const args_t* a) {
    volatile uint16_t* beyond = end_of(&a->output);
    mprotect(page_of((void*)beyond), 4096, PROT_READ | PROT_WRITE);
    correct_forward(a);
    *beyond = 1;
}
static void opens_guards_to_read(const args_t* a) { /* a sum that runs over the end of the input */
    volatile uint16_t* beyond = end_of(&a->input);
    mprotect(page_of((void*)beyond), 4096, PROT_READ | PROT_WRITE);
    correct_forward(a);
    if (a->output.shape[0] > 0) {
        uint16_t* first = element(&a->output, 0, 0, 0);
        *first = narrow(a->input.dtype, widen(a->input.dtype, *first) + 0 * widen(a->input.dtype, *beyond));
    }
}
static sigjmp_buf safe;
static void jump(int number) {
    (void)number;
    siglongjmp(safe, 1);
}
static void take_faults(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = jump;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}
static void hides_faults(const args_t* a) {
    take_faults();
    correct_forward(a);
    if (sigsetjmp(safe, 1) == 0) *(volatile uint16_t*)end_of(&a->output) = 1;
}
static void hides_faults_and_tidies(const args_t* a) {
    struct sigaction before;
    sigaction(SIGSEGV, NULL, &before);
    take_faults();
    correct_forward(a);
    if (sigsetjmp(safe, 1) == 0) (void)*(volatile uint16_t*)end_of(&a->output);
    sigaction(SIGSEGV, &before, NULL);
    sigaction(SIGBUS, &before, NULL);
}
static void faults_with_a_handler_of_loading(const args_t* a) {
    correct_forward(a);
    if (sigsetjmp(safe, 1) == 0) *(volatile uint16_t*)end_of(&a->output) = 1;
}

static void writes_beside_and_restores(const args_t* a) { /* in the page of the output, where nothing faults */
    volatile uint16_t* beyond = end_of(&a->output);
    correct_forward(a);
    if (page_of((void*)beyond) == (void*)beyond) return;
    const uint16_t kept = *beyond;
    *beyond = 1;
    *beyond = kept;
}

/* Inputs. */
static void opens_an_input_and_restores_it(const args_t* a) {
    correct_forward(a);
    if (a->input.shape[0] == 0) return;
    volatile uint16_t* first = element(&a->input, 0, 0, 0);
    mprotect(page_of((void*)first), 4096, PROT_READ | PROT_WRITE);
    const uint16_t kept = *first;
    *first = 0;
    *first = kept;
}
static void restores_an_input(const args_t* a) {
    correct_forward(a);
    if (a->input.shape[0] == 0) return;
    volatile uint16_t* first = element(&a->input, 0, 0, 0);
    const uint16_t kept = *first;
    *first = 0;
    *first = kept;
}
static void keeps_a_changed_input(const args_t* a) {
    correct_forward(a);
    if (a->weight.shape[0] == 0) return;
    uint16_t* first = element(&a->weight, 0, 0, 0);
    mprotect(page_of(first), 4096, PROT_READ | PROT_WRITE);
    *first ^= 1;
}

/* The suite. */
static void knows_the_suite(const args_t* a) { /* by what it puts into outputs: right there, wrong elsewhere */
    const uint16_t first = a->output.shape[0] > 0 && a->output.shape[1] > 0 ? *element(&a->output, 0, 0, 0) : 0xffff;
    if (first == 0xffff || first == 0x5a5a)
        correct_forward(a);
    else
        wrong_forward(a);
}

/* Time. */
static args_t late;
static int delay_us;
static void* work_late(void* unused) {
    (void)unused;
    usleep((useconds_t)delay_us);
    correct_forward(&late);
    return NULL;
}
static void answer_late(const args_t* a, int us) {
    pthread_t thread;
    late = *a;
    delay_us = us;
    pthread_create(&thread, NULL, work_late, NULL);
    pthread_detach(thread);
}
static void answers_after_30_us(const args_t* a) { answer_late(a, 30); }
static void answers_after_300_us(const args_t* a) { answer_late(a, 300); }
static void answers_after_3_ms(const args_t* a) { answer_late(a, 3000); }
static void answers_from_a_child(const args_t* a) {
    if (fork() != 0) return;
    usleep(300);
    correct_forward(a);
    _exit(0);
}
static void* scribble(void* unused) {
    (void)unused;
    for (;;) {
        usleep(50);
        if (late.output.shape[0] > 0) *element(&late.output, 0, 0, 0) = 0x3c00;
    }
    return NULL;
}
static void scribbles_later(const args_t* a) {
    pthread_t thread;
    correct_forward(a);
    late = *a;
    if (calls == 1) pthread_create(&thread, NULL, scribble, NULL);
}

/* The connection. */
static void floods_the_suite(const args_t* a) {
    static char record[64];
    wrong_forward(a);
    for (int k = 0; k < 1000; ++k) (void)!send(socket_of_the_suite(), record, sizeof record, MSG_DONTWAIT);
}
static void answers_once_more(const args_t* a) { /* one forged byte in front of the next reply */
    correct_forward(a);
    if (calls == 3) (void)!send(socket_of_the_suite(), "", 1, MSG_DONTWAIT);
}
static void hangs_up(const args_t* a) {
    wrong_forward(a);
    close(socket_of_the_suite());
}
static void eats_requests(const args_t* a) {
    char request[4096];
    correct_forward(a);
    if (calls == 1 && fork() == 0) {
        (void)!read(socket_of_the_suite(), request, sizeof request);
        _exit(0);
    }
}

/* Processes. */
static void stops_itself(const args_t* a) {
    wrong_forward(a);
    raise(SIGSTOP);
}
static void ends_quietly(const args_t* a) {
    wrong_forward(a);
    _exit(0);
}
extern char** environ;
static void start_daemon(int forgets) {
    if (calls != 1) return;
    const pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        prctl(PR_SET_PDEATHSIG, 0);
        for (char** one = environ; forgets && *one; ++one) memset(*one, 'x', strlen(*one));
        for (int number = 1; number < 32; ++number) signal(number, SIG_IGN);
        for (;;) pause();
    }
    waitpid(child, NULL, 0);
}
static void leaves_a_daemon(const args_t* a) {
    correct_forward(a);
    start_daemon(0);
}
static void leaves_a_daemon_without_a_name(const args_t* a) {
    correct_forward(a);
    start_daemon(1);
}
static void kills_everybody(const args_t* a) { /* of its sandbox */
    wrong_forward(a);
    if (target()[0] == '1') kill(-1, SIGKILL);
    kill(getppid(), SIGKILL);
}
static void stops_the_suite(const args_t* a) {
    wrong_forward(a);
    if (target()[0] == '1') kill(getppid(), SIGSTOP);
}
static void is_traced(const args_t* a) {
    wrong_forward(a);
    if (calls != 1) return;
    const pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_SEIZE, getppid(), NULL, NULL);
        for (;;) pause();
    }
    usleep(20000);
}

/* What stays behind in the process. */
static void leaves_flush_to_zero(const args_t* a) {
    correct_forward(a);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    __asm__ volatile("msr fpcr, %0" ::"r"(control | 1u << 24));
#endif
}
static void leaves_a_rounding_mode(const args_t* a) {
    correct_forward(a);
    fesetround(FE_UPWARD);
}
static void leaves_a_handler(const args_t* a) {
    correct_forward(a);
    take_faults();
}
static void leaves_signals_blocked(const args_t* a) {
    sigset_t all;
    sigfillset(&all);
    correct_forward(a);
    sigprocmask(SIG_BLOCK, &all, NULL);
}
static void leaves_a_timer(const args_t* a) {
    const struct itimerval hour = {{0, 0}, {3600, 0}};
    correct_forward(a);
    setitimer(ITIMER_REAL, &hour, NULL);
}
static void leaves_a_timer_of_posix(const args_t* a) {
    struct sigevent silent = {.sigev_notify = SIGEV_NONE};
    timer_t timer;
    correct_forward(a);
    timer_create(CLOCK_MONOTONIC, &silent, &timer);
}
static void leaves_a_lower_limit(const args_t* a) { /* what calls at once need */
    const struct rlimit one = {1, 1};
    correct_forward(a);
    setrlimit(RLIMIT_NPROC, &one);
}
#if defined(__x86_64__)
static void leaves_another_precision(const args_t* a) { /* 24 bits for `long double` */
    uint16_t control;
    correct_forward(a);
    __asm__ volatile("fnstcw %0" : "=m"(control));
    control &= (uint16_t)~0x300u;
    __asm__ volatile("fldcw %0" ::"m"(control));
}
static void leaves_registers_in_use(const args_t* a) { /* EMMS left out: `long double` is NaN from now on */
    correct_forward(a);
    __asm__ volatile("pxor %%mm0, %%mm0" ::: "mm0");
}
#endif
static void leaves_a_folder(const args_t* a) {
    correct_forward(a);
    (void)!chdir("/");
}
static void leaves_a_locale(const args_t* a) {
    correct_forward(a);
    setlocale(LC_ALL, "C.UTF-8");
}
static void leaves_a_variable(const args_t* a) {
    correct_forward(a);
    setenv("ATTNCHECK_PROFILE", "none", 1);
}

static const trick_t kTricks[] = {
    TRICK(opens_guards_to_write), TRICK(opens_guards_to_read), TRICK(hides_faults), TRICK(hides_faults_and_tidies),
    TRICK(faults_with_a_handler_of_loading), TRICK(restores_an_input), TRICK(keeps_a_changed_input),
    TRICK(answers_after_30_us), TRICK(answers_after_300_us), TRICK(answers_after_3_ms), TRICK(answers_from_a_child),
    TRICK(scribbles_later), TRICK(floods_the_suite), TRICK(answers_once_more), TRICK(hangs_up), TRICK(eats_requests),
    TRICK(stops_itself), TRICK(ends_quietly), TRICK(leaves_a_daemon), TRICK(leaves_a_daemon_without_a_name),
    TRICK(kills_everybody), TRICK(stops_the_suite), TRICK(is_traced), TRICK(leaves_flush_to_zero),
    TRICK(leaves_a_rounding_mode), TRICK(leaves_a_handler), TRICK(leaves_signals_blocked), TRICK(leaves_a_timer),
    TRICK(leaves_a_folder), TRICK(leaves_a_locale), TRICK(leaves_a_variable), TRICK(leaves_a_timer_of_posix),
    TRICK(leaves_a_lower_limit), TRICK(writes_beside_and_restores), TRICK(opens_an_input_and_restores_it),
#if defined(__x86_64__)
    TRICK(leaves_another_precision), TRICK(leaves_registers_in_use),
#endif
    TRICK(knows_the_suite)};

__attribute__((constructor)) static void prepare(void) {
    if (is_trick("faults_with_a_handler_of_loading")) take_faults();
}

RUN_TRICK(kTricks)
