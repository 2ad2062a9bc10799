// Package chaos tries on a real disk what the promises are worth: daemons of its own, in homes of its own, are killed, paused and
// cut off from their clients at random while scripted agents run code in python kernels. Afterwards it counts what was lost,
// what ran twice and what was left over: all three must be none.
//
// It owns the child daemons, the work, the disturbances and the verdict. It touches no home but those that it makes, and knows
// the program by its binary and its API alone. It may import client, wire, message, ident and config.
package chaos
