package lifecycle

import "runtime"

// headroom is in bytes.
const headroom = 32 << 20

// Headroom lets the collector run once per 32 MiB of garbage at most, until release is called. A daemon's heap is a few MiB:
// collected at each doubling of that it would use a tenth of its CPU under load. The memory counts as live and is never
// touched, so it takes no room; a large heap grows as before.
func Headroom() (release func()) {
	b := make([]byte, headroom)
	return func() { runtime.KeepAlive(b) }
}
