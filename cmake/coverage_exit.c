/* Writes gcov's counters where a process ends by _exit; part of the preset `coverage` alone.
 *
 * Every program and shared library has a copy of gcov's runtime of its own, which knows the
 * counters of that file only. So each has this function, and a program that ends calls those of the
 * libraries that it loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>

void __gcov_dump(void);
void __gcov_reset(void);
void __real__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status) __attribute__((noreturn));
__attribute__((visibility("default"))) void attncheck_coverage_dump(void);

void attncheck_coverage_dump(void) {
    __gcov_dump();
    __gcov_reset(); /* a second call adds nothing twice */
}

static int dump_library(struct dl_phdr_info* info, size_t size, void* unused) {
    (void)size, (void)unused;
    void* library =
        info->dlpi_name[0] != '\0' ? dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (library == NULL) return 0;
    void (*dump)(void) = (void (*)(void))dlsym(library, "attncheck_coverage_dump");
    if (dump != NULL && dump != attncheck_coverage_dump) dump();
    dlclose(library);
    return 0;
}

void __wrap__exit(int status) {
    attncheck_coverage_dump();
    dl_iterate_phdr(dump_library, NULL);
    __real__exit(status);
}
