package price

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"soma/message"
)

// Cost is an amount of money, or the fact that it is not known.
type Cost struct {
	// Nano is nano-dollars. With Unknown it is the sum of what is known.
	Nano    int64 `json:"nano"`
	Unknown bool  `json:"unknown,omitempty"`
	// Estimated says that it rests on token counts which no provider reported.
	Estimated bool `json:"estimated,omitempty"`
}

// Add returns the sum; it is unknown or estimated if one of them is.
func (c Cost) Add(d Cost) Cost {
	sum := c.Nano + d.Nano
	if c.Nano > 0 && d.Nano > 0 && sum < 0 {
		sum = math.MaxInt64
	}
	return Cost{Nano: sum, Unknown: c.Unknown || d.Unknown, Estimated: c.Estimated || d.Estimated}
}

// String gives dollars with four digits or more where they say something: "$0.0123", "~$0.0123" for an estimate,
// "unknown", or "over $0.0123" where only a part is known.
func (c Cost) String() string {
	switch {
	case c.Unknown && c.Nano == 0:
		return "unknown"
	case c.Unknown:
		return "over " + dollars(c.Nano)
	case c.Estimated && c.Nano != 0:
		return "~" + dollars(c.Nano)
	}
	return dollars(c.Nano)
}

func dollars(nano int64) string {
	digits := 4
	if nano > 0 && nano < 1_000_000 {
		digits = 9
	}
	return fmt.Sprintf("$%.*f", digits, float64(nano)/1e9)
}

// Of returns what usage costs with this provider and model at this time. Pure; safe for concurrent use.
func (t *Table) Of(provider, model string, at time.Time, u message.Usage) Cost {
	r := t.find(provider, model, at, u.Input+u.CacheRead+u.CacheWrite)
	if r == nil {
		return Cost{Unknown: true, Estimated: u.Estimated}
	}
	sum := new(big.Int)
	for _, part := range []struct {
		tokens int64
		price  *int64
	}{{u.Input, r.input}, {u.CacheRead, r.cacheRead}, {u.CacheWrite, r.cacheWrite}, {u.Output, r.output}} {
		if part.tokens <= 0 {
			continue
		}
		if part.price == nil {
			return Cost{Unknown: true, Estimated: u.Estimated}
		}
		sum.Add(sum, new(big.Int).Mul(big.NewInt(part.tokens), big.NewInt(*part.price)))
	}
	// prices are nano-dollars per million tokens; half a nano-dollar rounds up
	sum.Add(sum, big.NewInt(500_000))
	sum.Div(sum, big.NewInt(1_000_000))
	if !sum.IsInt64() {
		return Cost{Unknown: true, Estimated: u.Estimated}
	}
	return Cost{Nano: sum.Int64(), Estimated: u.Estimated}
}
