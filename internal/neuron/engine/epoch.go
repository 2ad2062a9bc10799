package engine

// Epoch returns the epoch under which this engine commits; it is known once Start has returned without an error.
func (e *Engine) Epoch() uint64 { return e.fence.Epoch }
