package client

import "time"

// SetSilence sets how long a stream may be silent.
func (c *Client) SetSilence(d time.Duration) { c.silence = d }
