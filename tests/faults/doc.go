// Package faults shows the program things as they should not be: broken files, full and read-only disks, wrong requests,
// foreign bytes on sockets, code that kills its interpreter, and stops in the middle of work. Each test runs the built
// binary, and docs/bad-input.md has a row for each case.
package faults
