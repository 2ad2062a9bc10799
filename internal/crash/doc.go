// Package crash owns the named points at which a test kills the program, and the faults that negative controls switch on.
//
// In a normal build [Point] and [Off] are empty and inlined away. With the build tag `crash` three environment variables
// rule them:
//
//   - SOMA_CRASH="name" or "name:n" kills the own OS process with SIGKILL at the n-th hit of that point (default 1),
//     counted per OS process;
//   - SOMA_CRASH_HITS=FILE gets one line with the point's name per hit, also for the hit that kills;
//   - SOMA_FAULT="fault,fault" switches faults on.
//
// A name that is not listed here ends the program at once with exit code 2: a mistyped point would never be hit.
//
// It is a leaf: it knows no other room and imports the standard library only.
package crash
