/* The worker as a library with a C interface: a process of another language, started by the suite in
 * place of attncheck-worker, serves its functions as a candidate. Not for kernels: those include
 * attncheck/candidate.h. python/attncheck/_worker.py is its user. */
#ifndef ATTNCHECK_WORKER_LIBRARY_H
#define ATTNCHECK_WORKER_LIBRARY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One call of an entry point, named without the prefix "attncheck_", with the address of its
 * argument struct: its status as candidate.h has them. A text for people may be left in `message`,
 * `bytes` with its NUL. Comes from several threads where the suite asks for calls at once. */
typedef int (*attncheck_worker_call)(const char* entry, const void* arguments, char* message,
                                     size_t bytes);

/* Takes the two descriptors that the suite passed, before the candidate is loaded: 0, or -1 when
 * the suite was told that it cannot be served. */
__attribute__((visibility("default"))) int attncheck_worker_open(int socket, int arena);

/* Tells the suite in one line why the candidate cannot be used. */
__attribute__((visibility("default"))) void attncheck_worker_refuse(const char* why);

/* Announces the candidate (its precision and features may be empty; names of entries are separated
 * by blanks) and makes the calls that the suite asks for until it ends. Returns the exit status
 * that the process has to end with, at once. */
__attribute__((visibility("default"))) int attncheck_worker_serve(const char* name,
                                                                  const char* precision,
                                                                  const char* features,
                                                                  const char* entries,
                                                                  attncheck_worker_call call);

#ifdef __cplusplus
}
#endif

#endif /* ATTNCHECK_WORKER_LIBRARY_H */
