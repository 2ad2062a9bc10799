package api

// Access is what a credential allows and what a route asks for; a higher level includes the lower ones.
type Access int

// The levels. Nobody is the level of a credential that is not valid; a route with it is a mistake in the table.
const (
	Nobody  Access = iota
	Open           // no credential is asked for
	Read           // sees everything
	Operate        // works with sessions and processes
	Peer           // another daemon of the store: does what is owned for one whose level it has checked, and else what Operate does
	Admin          // rules the daemon
)

func (a Access) String() string {
	switch a {
	case Open:
		return "open"
	case Read:
		return "read"
	case Operate:
		return "operate"
	case Peer:
		return "peer"
	case Admin:
		return "admin"
	}
	return "nobody"
}
