// Package wire owns what goes over HTTP between client and daemon: request, response and event structs, the error codes and
// the version of the whole.
//
// It is a leaf of plain data: it imports message and the standard library only, and knows neither client nor daemon.
package wire

// Version is the version of the wire: client and daemon of different versions refuse each other. HeaderVersion carries it
// in every request and response, HeaderBuild the build of the sender.
const (
	Version       = 1
	HeaderVersion = "Soma-Wire"
	HeaderBuild   = "Soma-Build"
	// HeaderHop marks a request that one daemon has handed to another: that one answers it or refuses it.
	HeaderHop = "Soma-Hop"
)

// MaxBody bounds a request body in bytes, unless a route says more; MaxCellBody is that of the cell route.
const (
	MaxBody     = 64 << 10
	MaxCellBody = 2 << 20
)
