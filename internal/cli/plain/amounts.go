package plain

import (
	"fmt"
	"time"
)

// Size is a number of bytes as a person reads it.
func Size(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d bytes", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1_000_000_000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}

// Age is a time span in its largest unit.
func Age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// CostAbout is an amount that may come from estimated tokens.
func CostAbout(nano *int64, estimated bool) string {
	if nano != nil && estimated {
		return "~" + Cost(nano)
	}
	return Cost(nano)
}

// Cost is an amount in nano-dollars as a person reads it.
func Cost(nano *int64) string {
	switch {
	case nano == nil:
		return "unknown"
	case *nano == 0:
		return "$0"
	case *nano < 10_000_000: // a cent
		return fmt.Sprintf("$%.6f", float64(*nano)/1e9)
	}
	return fmt.Sprintf("$%.4f", float64(*nano)/1e9)
}
