// Package script plays a language model from a YAML file (docs/formats/script.md): the offline default for the demo, and
// what tests stand on. It keeps no state: which step comes next follows from the request's messages alone, so a new daemon
// goes on where the old one was killed.
//
// It must not know stores, processes or python kernels. It imports agent/model, agent/tool, message and a YAML library.
package script
