// Package scripts drives the whole program from the command line, as a person does: each file of testdata is one script, with
// a home of its own, a daemon that the commands start, and real python kernels.
//
// Besides the commands of testscript a script has:
//
//	until [!] PROGRAM ARGS...     run a program until it succeeds (!: fails)
//	until [!] exists FILE         wait for a file
//	until stdout PATTERN PROGRAM ARGS...   wait for an output
//	daemonpid [VARIABLE]          the pid of the home's daemon, in $DAEMON if no other is named
//	capture VARIABLE REGEXP       set a variable to what REGEXP's group matches in the last output
//	gone PID                      wait for the end of an OS process
//	nobody                        wait until no OS process of the home is left
//	tally N TEXT FILE             N lines of FILE (or stdout, stderr) hold TEXT
//	same FILE FILE                two files (or stdout, stderr) are equal but for times and ids of cells
package scripts
