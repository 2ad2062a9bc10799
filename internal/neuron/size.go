package neuron

// TableSize says how much a table holds. Bytes are those on the disk with its indexes; Rows may be an estimate of the engine.
type TableSize struct {
	Table string
	Rows  int64
	Bytes int64
}
