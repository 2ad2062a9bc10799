// Command soak kills a daemon and its python kernels at random while scripted agents work, and counts what was lost,
// doubled or left over: all three must be 0.
//
// It builds the program, makes a home of its own under a temporary folder, and touches no other. It is for a machine's
// owner who wants to see it on his own disk, and for long runs; the suite in tests/system kills at named points instead.
package main
