package model

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Bounds of what is tried again.
const (
	// MaxFailures is how many attempts of one inference may fail before its turn ends.
	MaxFailures = 2
	// MaxRetryAfter is the longest wait that a provider may ask for.
	MaxRetryAfter = time.Minute
	firstDelay    = 500 * time.Millisecond
)

// RetryDelay decides whether an attempt is made again after failures refusals (at least 1), and how long to wait first.
// after is the wait the provider asked for, 0 if none; beyond MaxRetryAfter nothing is tried again. Pure.
func RetryDelay(c Class, failures int, after time.Duration) (wait time.Duration, again bool) {
	if c != Retryable || failures >= MaxFailures || after > MaxRetryAfter {
		return 0, false
	}
	if after > 0 {
		return after, true
	}
	return firstDelay << (failures - 1), true
}

// RetryAfter reads the wait that a response asks for, in any of its forms: retry-after-ms, or Retry-After in seconds, as a
// fraction, or as an HTTP date. It is 0 for none, an unreadable one, and a time that has passed. Pure.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if d, ok := number(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return d
	}
	v := h.Get("Retry-After")
	if d, ok := number(v, time.Second); ok {
		return d
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

func number(s string, unit time.Duration) (time.Duration, bool) {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsNaN(f) || f < 0 {
		return 0, false
	}
	if f *= float64(unit); f < math.MaxInt64/2 {
		return time.Duration(math.Ceil(f)), true
	}
	return math.MaxInt64 / 2, true
}

// ClassOf classes an HTTP status with the provider's error code, empty if it gave none (K-31). Pure.
func ClassOf(status int, code string) Class {
	switch code {
	case "insufficient_quota", "billing_hard_limit_reached", "invalid_api_key":
		return Fatal
	case "context_length_exceeded":
		return TooLong
	}
	switch {
	case status == 401, status == 402, status == 403:
		return Fatal
	case status == 408, status == 429, status >= 500:
		return Retryable
	}
	return BadRequest
}
