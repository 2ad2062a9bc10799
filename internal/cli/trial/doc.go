// Package trial owns the command chaos: it tries the promises on the person's own disk, tells how far it is, and says the verdict
// in words.
//
// What is tried and how it is judged is the business of [chaos]. It knows the program that it is a part of by the interface
// [Program]. It may import chaos, config, exit and plain.
package trial
