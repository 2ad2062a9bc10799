// Command soak tries for as long as it is given what the suites try for moments: random kills of daemons and their python
// kernels while scripted agents work, with a count of what was lost, doubled or left over; and whether the store stops growing
// under constant work.
//
// It builds the program, makes homes of its own under a temporary folder, and touches no other. What it does to daemons is
// internal/chaos, which soma chaos lets everybody do on his own disk; the suite in tests/system kills at named points instead.
package main
