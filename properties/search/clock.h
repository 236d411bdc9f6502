// Time and interruption, so that tests can steer them.
#pragma once

namespace attncheck::properties {

class Clock {
public:
    virtual ~Clock() = default;
    virtual double now() const = 0;  ///< seconds, monotone
    virtual bool interrupted() const = 0;
};

/// The real clock, interrupted by SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGXCPU once
/// catch_interrupts() was called; not by a SIGHUP that the caller ignores, as nohup does.
const Clock& system_clock();
void catch_interrupts();

}  // namespace attncheck::properties
