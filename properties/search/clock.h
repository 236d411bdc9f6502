// Time and interruption, so that tests can steer them.
#pragma once

namespace attncheck::properties {

class Clock {
public:
    virtual ~Clock() = default;
    virtual double now() const = 0;  ///< seconds, monotone
    virtual bool interrupted() const = 0;
};

/// The real clock, interrupted by SIGINT and SIGTERM once catch_interrupts() was called.
const Clock& system_clock();
void catch_interrupts();

}  // namespace attncheck::properties
