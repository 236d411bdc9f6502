#ifndef ATTNCHECK_TESTS_IMPL_AMX_TRAPS_H
#define ATTNCHECK_TESTS_IMPL_AMX_TRAPS_H

#include <string>

/// Runs the machine code of AMX on a machine without it: the illegal-instruction signal decodes and
/// executes ldtilecfg, tilerelease, tilezero, tileloadd, tilestored and tdpbf16ps, as the
/// architecture defines them (Intel 64 and IA-32 Architectures Software Developer's Manual, volume
/// 2). So operands, addresses and the configuration that a kernel loads are tested, which code that
/// only imitates the unit leaves open. One thread at a time.
namespace attncheck::impl {

class AmxTraps {
public:
    AmxTraps();
    /// Puts the former handler back.
    ~AmxTraps();
    AmxTraps(const AmxTraps&) = delete;
    AmxTraps& operator=(const AmxTraps&) = delete;

    /// Instructions executed so far.
    long executed() const;
    /// What would have faulted or left state behind, empty if nothing: a tile used without
    /// configuration, a configuration that is not valid, tiles never released.
    std::string complaint() const;
};

}  // namespace attncheck::impl

#endif  // ATTNCHECK_TESTS_IMPL_AMX_TRAPS_H
